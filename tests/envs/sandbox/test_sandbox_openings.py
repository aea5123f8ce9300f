"""Programs that begin with known import lines run as they would without the shortcut."""

import builtins
import gzip
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corrgrpo_envs.code.prelude import PRELUDE
from corrgrpo_envs.sandbox import Check, Outcome, Sandbox
from corrgrpo_envs.sandbox.inside import zygote
from corrgrpo_envs.sandbox.inside.candidate import Program
from corrgrpo_envs.sandbox.inside.openings import OPENINGS, Opening, opened

TEXTS = ["".join(lines) for lines in OPENINGS]
PIECES = (
    *("", "\n", "\n\n", "# a comment\n", '"a string"\n', "'''two\nlines'''\n", "from __future__ import annotations\n"),
    *("    x = 1\n", "\tx = 1\n", "\f\n", "\\\n", "\r\n", "\r", "\0", "\ufeff", "\udcff", ")(\n", "x = 'open\n", ";\n"),
    *("def f(x):\n    return x\n", "class A:\n    'doc'\n    y: int = 1\n", "f = abs", "y: int = 1\n", "global x\n"),
    *("from collections import deque\n", "import math as m\n", "from math import *\n", "import no_such_module\n"),
    *("del deque, Counter\n", "deque = None\n", "inf = float('inf')\n", "raise ValueError(1)\n", "1 / 0\n", "return\n"),
    *("__doc__ = 3\n", "__name__ = 'x'\n", "names = list(globals())\n", "d = __doc__\n", "import typing\n"),
)


def outcome(opened_as: Callable[[], tuple[types.ModuleType, types.CodeType]]) -> tuple[object, ...]:
    """What running a source gives: the error and its lines, and its namespace in order."""
    failure: object = None
    try:
        module, code = opened_as()
    except (SyntaxError, ValueError) as error:
        return type(error), str(error), getattr(error, "lineno", None), getattr(error, "offset", None)
    namespace = module.__dict__
    namespace["__builtins__"] = builtins
    try:
        exec(code, namespace)
    except Exception as error:
        lines = []
        trace = error.__traceback__
        while trace is not None:
            lines.append(trace.tb_lineno)
            trace = trace.tb_next
        failure = (type(error), str(error), lines[1:])
    return failure, [(name, shown(value)) for name, value in namespace.items()]


def shown(value: object) -> object:
    """A value of a namespace, or of what the program defined what can be compared."""
    if isinstance(value, types.FunctionType) and value.__code__.co_filename == "<program>":
        return value.__name__, value.__doc__, value.__module__, value.__code__.co_firstlineno
    if isinstance(value, type) and value.__name__ == "A":
        return value.__doc__, value.__module__, value.__annotations__
    return repr(value) if isinstance(value, float) else value


def fresh() -> list[Opening]:
    """Openings whose modules no test has touched."""
    return [Opening(lines) for lines in OPENINGS]


def recognised(source: str) -> bool:
    return any(opening.rest(source) is not None for opening in fresh())


def both(source: str) -> tuple[tuple[object, ...], tuple[object, ...]]:
    def whole() -> tuple[types.ModuleType, types.CodeType]:
        return types.ModuleType("solution"), compile(source, "<program>", "exec", dont_inherit=True)

    return outcome(lambda: opened(fresh(), source)), outcome(whole)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("rest", PIECES)
def test_what_follows_runs_as_in_the_whole(text: str, rest: str) -> None:
    short, whole = both(text + rest)
    assert short == whole


@given(st.sampled_from(TEXTS), st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_any_pieces_run_as_in_the_whole(text: str, rest: str) -> None:
    short, whole = both(text + rest)
    assert short == whole


@given(st.sampled_from(OPENINGS), st.data())
def test_empty_lines_between_the_imports_count(lines: tuple[str, ...], data: st.DataObject) -> None:
    empty = data.draw(st.lists(st.integers(0, 3), min_size=len(lines), max_size=len(lines)))
    text = "".join("\n" * count + line for count, line in zip(empty, lines, strict=True))
    short, whole = both(text + "def f(): pass\n1 / 0\n")
    assert short == whole


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[1:],
        lambda text: " " + text,
        lambda text: "# first\n" + text,
        lambda text: text.rstrip("\n"),
        lambda text: text.rstrip("\n") + "; x = 1\n",
        lambda text: text.rstrip("\n") + " \n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("from math", "from cmath"),
        lambda text: text.replace("import *\n", "import *\n \n", 1),
        lambda text: "",
    ],
)
def test_another_beginning_is_left_alone(change: Callable[[str], str]) -> None:
    for text in TEXTS:
        assert recognised(text)
        assert not recognised(change(text))


def test_the_shortcut_is_taken() -> None:
    for number, text in enumerate(TEXTS):
        openings = fresh()
        module, code = opened(openings, text + "x = deque\n")
        assert module is openings[number].module
        assert set(code.co_names) == {"x", "deque"}, "the imports are not run again"
        assert opened(openings, text + "x: int = 1\n")[0] is not openings[number].module


def test_the_built_in_problems_begin_with_one() -> None:
    assert recognised(PRELUDE)
    module, _ = opened(fresh(), PRELUDE)
    assert "deque" in module.__dict__, "its imports have been run"


@pytest.mark.parametrize("name", ["LeetCodeDataset-v0.2.0-train.jsonl.gz", "LeetCodeDataset-v0.3.1-test.jsonl.gz"])
def test_most_published_programs_begin_with_one(data: Path, name: str) -> None:
    path = data / "leetcode" / name
    with gzip.open(path, "rt", encoding="utf-8") as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    assert sum(map(recognised, prompts)) > 0.9 * len(prompts)


def test_imports_are_of_modules_that_are_loaded_already() -> None:
    imported = {line.split()[1] for lines in OPENINGS for line in lines}
    assert imported <= set(zygote._WARM)
    assert imported <= sys.stdlib_module_names


def test_what_does_not_compile_is_told_as_without_it() -> None:
    for text in TEXTS:
        body = b"L" + json.dumps({"source": text + "\udcff", "names": {}, "value_bytes": 1 << 20}).encode()
        frames = [Program(openings).answer(body) for openings in (fresh(), [])]
        assert frames[0] == frames[1]
        assert frames[0].startswith(b"S")


@pytest.mark.parametrize("text", TEXTS)
def test_a_program_spoils_its_own_names_only(sandbox: Sandbox, text: str) -> None:
    check = Check(test="def check(candidate):\n    assert candidate() == [True, 'solution', None]", entry_point="f")
    honest = text + "def f():\n    return [deque([1]) == deque([1]) and inf > 1, __name__, __doc__]\n"
    spoiler = text + "deque = inf = None\n__doc__ = 'spoilt'\ndef f():\n    return [True, 'solution', None]\n"
    for program in (honest, spoiler, honest):
        assert sandbox.judge(program, check).passed
    verdict = sandbox.judge(text + "x = 1\ny = x / 0\n", check)
    assert verdict.outcome is Outcome.EXCEPTION
    assert f"line {text.count(chr(10)) + 2}" in verdict.message
