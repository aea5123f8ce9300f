"""Openings: import lines with which programs usually begin, run once for all programs.

A program that begins with one starts behind it, in a namespace where it has been run. That saves compiling a dozen
imports, and counting references to hundreds of names, which copies the pages that they lie on: a fourteenth of a short
program's time. Modules of the standard library that are loaded already give the same names each time, so the
program finds what it would find.
"""

import builtins
import types

_STARRED = ("typing", "functools", "collections", "itertools", "heapq", "bisect", "string", "operator", "math")


def _lines(*modules: str) -> tuple[str, ...]:
    """Lines that import modules, or all of a module's names where it is written with a star."""
    return tuple(f"from {name[:-1]} import *\n" if name.endswith("*") else f"import {name}\n" for name in modules)


_LEETCODE = tuple(f"{name}*" for name in _STARRED)
OPENINGS = (
    # LeetCodeDataset v0.2.0 and v0.3.1.
    _lines(*_LEETCODE, "math", "datetime"),
    _lines("random", "functools", "collections", "string", "math", "datetime", *_LEETCODE),
    # The built-in problems.
    _lines(
        *("collections", "datetime", "functools", "heapq", "itertools", "math", "random", "string"),
        *("bisect*", "collections*", "functools*", "heapq*", "itertools*", "operator*", "string*", "typing*", "math*"),
    ),
)


class Opening:
    """Import lines, and a module in which they have been run."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        """Run the lines.

        Raises:
            ImportError: if this interpreter lacks a module.
        """
        self.lines = lines
        self.module = types.ModuleType("solution")
        self.module.__dict__["__builtins__"] = builtins
        exec("".join(lines), self.module.__dict__)

    def rest(self, source: str) -> str | None:
        """What a source has behind the opening, its lines numbered as before; None if it begins otherwise."""
        place = 0
        for line in self.lines:
            while source.startswith("\n", place):
                place += 1
            if not source.startswith(line, place):
                return None
            place += len(line)
        # A statement comes first, as in the source: what follows is no docstring, and nothing from __future__ either.
        return "pass" + "\n" * source.count("\n", 0, place) + source[place:]


def opened(openings: list[Opening], source: str) -> tuple[types.ModuleType, types.CodeType]:
    """The module that a source is to be run in, and the code that is left to run.

    Raises:
        what `compile` raises for the source.
    """
    for opening in openings:
        rest = opening.rest(source)
        if rest is None:
            continue
        try:
            code = _compiled(rest)
        except Exception:  # told as the whole source has it
            break
        # A module's annotations get their place among its names before its first line.
        if "__annotations__" in code.co_names or "__annotate__" in code.co_names:
            break
        return opening.module, code
    return types.ModuleType("solution"), _compiled(source)


def _compiled(source: str) -> types.CodeType:
    return compile(source, "<program>", "exec", dont_inherit=True)
