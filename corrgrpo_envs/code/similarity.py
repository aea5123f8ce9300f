"""How alike two programs are: the ratio of matching nodes of their syntax trees (CorrGRPO, appendix J.1).

This module needs nothing but the standard library, because its text also runs as a program in the sandbox:
`analyse` reads what a model wrote, and a text can break a parser, or make comparing slow.
"""

import ast

# An answer of 2,048 tokens of a language model has no more. Nothing below it takes longer than seconds to compare.
MAX_TOKENS = 4_000
PARSE_ERRORS = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, OverflowError)


def analyse(code: str, reference: str | None) -> list[bool | float | None]:
    """Whether code parses, and how alike it is to a reference (see `similarity`; None without one).

    Returns:
        A list of the two: what this function returns leaves a sandbox as a plain value.
    """
    tree = parsed(code)
    wanted = None if reference is None or not reference.strip() else parsed(reference)
    alike = None if wanted is None else 0.0 if tree is None else ratio(tokens(tree), tokens(wanted))
    return [tree is not None, alike]


def similarity(candidate: str, reference: str) -> float | None:
    """Compare two sources; None if the reference is empty or can't be parsed, 0 if the candidate can't.

    The value is 2 M / (|a| + |b|) for M matching tokens, 0 to 1. It may change when the two are exchanged. A candidate
    of more than `MAX_TOKENS` tokens that has more than four times the reference's scores 0, where it could have 0.4 at
    most.
    """
    alike = analyse(candidate, reference)[1]
    return None if alike is None else float(alike)


def parsed(source: str) -> ast.Module | None:
    """The syntax tree, or None for what is no Python, or too much for the parser."""
    try:
        return ast.parse(source)
    except PARSE_ERRORS:
        return None


def tokens(tree: ast.AST) -> list[str]:
    """The tree's node classes in the order of a walk, each name again with a `/` where its node ends.

    Names, values of literals and attributes leave no trace; contexts and operators are nodes and do. The walk does not
    recurse, so no depth is too much.
    """
    found: list[str] = []
    stack: list[ast.AST | str] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
            continue
        name = type(item).__name__
        found.append(name)
        stack.append("/" + name)
        stack.extend(reversed(list(ast.iter_child_nodes(item))))
    return found


def ratio(candidate: list[str], reference: list[str]) -> float:
    """The ratio of two lists of tokens, see `similarity`."""
    if candidate == reference:
        return 1.0
    if len(candidate) > max(MAX_TOKENS, 4 * len(reference)):
        return 0.0
    letters = {token: chr(number) for number, token in enumerate(dict.fromkeys(reference), 1)}
    first, second = ("".join(letters.get(token, "\0") for token in side) for side in (candidate, reference))
    return 2 * _matching(first, second) / (len(first) + len(second))


def _matching(a: str, b: str) -> int:
    """The number of letters that `difflib.SequenceMatcher(None, a, b, autojunk=False)` matches.

    The longest common block is taken, of several the first in `a`, then the first in `b`; then the same on both sides
    of it. Searching whole blocks finds the same ones as that class, which counts pairs of letters and can take a
    minute where two programs repeat themselves.
    """
    total, ranges = 0, [(0, len(a), 0, len(b))]
    while ranges:
        a_start, a_end, b_start, b_end = ranges.pop()
        size, in_a, in_b = _longest(a, a_start, a_end, b, b_start, b_end)
        if size:
            total += size
            ranges += [(a_start, in_a, b_start, in_b), (in_a + size, a_end, in_b + size, b_end)]
    return total


def _longest(a: str, a_start: int, a_end: int, b: str, b_start: int, b_end: int) -> tuple[int, int, int]:
    """The longest common block of two ranges: its length and where it begins in each."""
    size, in_a, in_b = 0, a_start, b_start
    start, most = a_start, min(a_end - a_start, b_end - b_start)
    while size < most and start + size < a_end:
        found = b.find(a[start : start + size + 1], b_start, b_end)
        while found >= 0:  # a longer block never begins before a shorter part of it does
            size, in_a, in_b = size + 1, start, found
            if start + size == a_end:
                break
            found = b.find(a[start : start + size + 1], found, b_end)
        start += 1
    return size, in_a, in_b
