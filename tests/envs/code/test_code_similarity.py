"""Similarity of syntax trees: the published cases, the published definition written out, hostile sources."""

import ast
import random
from difflib import SequenceMatcher

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_envs.code.scoring import analysis
from corrgrpo_envs.code.similarity import MAX_TOKENS, parsed, ratio, similarity, tokens
from corrgrpo_envs.sandbox import shared

CODE = """\
class Solution:
    def f(self, xs):
        total = 0
        for x in xs:
            total += x
        return total
"""
RENAMED = CODE.replace("total", "s").replace("xs", "values")
OTHER_LITERAL = CODE.replace("= 0", "= 1")
OTHER = "class Solution:\n    def f(self, xs):\n        return sum(xs)\n"


def by_definition(candidate, reference):
    """The definition once more, recursive, with difflib."""

    def walk(node):
        yield type(node).__name__
        for child in ast.iter_child_nodes(node):
            yield from walk(child)
        yield "/" + type(node).__name__

    sides = [list(walk(ast.parse(source))) for source in (candidate, reference)]
    return SequenceMatcher(None, *sides, autojunk=False).ratio()


def test_published_cases():
    assert similarity(CODE, CODE) == similarity(RENAMED, CODE) == similarity(OTHER_LITERAL, CODE) == 1.0
    assert 0 < similarity(OTHER, CODE) < 1
    assert similarity("def f(:", CODE) == 0.0
    assert similarity(CODE, "def f(:") is None
    assert similarity(CODE, "") is None
    assert similarity(CODE, " \n") is None


def test_closed_form():
    # Module, Expr, Constant and their ends are six tokens; a second expression adds four; all six match.
    assert similarity("1", "1\n2") == 2 * 6 / (6 + 10)
    assert tokens(ast.parse("a")) == ["Module", "Expr", "Name", "Load", "/Load", "/Name", "/Expr", "/Module"]


@pytest.mark.parametrize("pair", [(OTHER, CODE), (CODE, OTHER), (CODE * 3, OTHER), (OTHER, CODE * 5), ("", CODE)])
def test_equals_the_definition(pair):
    assert similarity(*pair) == by_definition(*pair)


LETTERS = st.lists(st.sampled_from("abcd"), max_size=30)


@given(LETTERS, LETTERS)
@settings(max_examples=500, deadline=None)
def test_ratio_equals_difflib(a, b):
    assert ratio(a, b) == SequenceMatcher(None, a, b, autojunk=False).ratio()


def test_ratio_of_long_lists_equals_difflib():
    draw = random.Random(5)
    a, b = ([draw.choice("abcdef") for _ in range(700)] for _ in range(2))
    assert ratio(a, b) == SequenceMatcher(None, a, b, autojunk=False).ratio()


@given(st.text(max_size=60) | st.text(alphabet="()[]{}:=+-*.,'\"\\#\n\t abdefilnor0_\x00\ud800", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_has_a_similarity(source):
    assert 0 <= similarity(source, CODE) <= 1
    own = similarity(CODE, source)
    assert own is None or 0 <= own <= 1


def test_too_long_candidates_score_zero():
    few = "x\n" * 10
    many = "x\n" * (MAX_TOKENS // 6 + 2)
    assert len(tokens(parsed(many))) > MAX_TOKENS
    assert similarity(many, few) == 0.0
    assert similarity(many, many + "y = 1\n") > 0.9  # not longer than four times the reference


REPETITIVE = "a\n" * 650
HOSTILE = {
    "operators": "x = " + "+".join(["1"] * 3000),
    "signs": "x = " + "-" * 3000 + "1",
    "attributes": "a" + ".b" * 5000,
    "brackets": "[" * 3000,
    "closed brackets": "(" * 500 + ")" * 500,
    "lambdas": "lambda:" * 3000 + "1",
    "deep blocks": "".join(" " * depth + "if 1:\n" for depth in range(1000)),
    "200 KB of elements": "x = [" + "1," * 100_000 + "]",
    "200 KB of lines": "a = b\n" * 34_000,
    "one line of 200 KB": "x" * 200_000,
    "digits": "x = " + "9" * 200_000,
    "null bytes": "a = 1\x00",
    "surrogates": "a = '\ud800'",
    "repetition": REPETITIVE,
    "empty": "",
    "continuation": "\\" + "\n\\" * 5000,
}


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
def test_hostile_sources_are_analysed_in_the_sandbox(code):
    parses, alike = analysis(shared(), code, CODE)
    assert isinstance(parses, bool)
    assert 0 <= alike <= 1
    assert parses or alike == 0


def test_sources_that_are_fine_parse():
    assert analysis(shared(), OTHER, CODE) == (True, by_definition(OTHER, CODE))
    assert analysis(shared(), OTHER, None) == (True, None)
    assert analysis(shared(), OTHER, "(") == (True, None)
    assert analysis(shared(), "return 1", CODE)[0]  # parses, and does not compile
    assert analysis(shared(), "(", CODE) == (False, 0.0)
    assert analysis(shared(), HOSTILE["200 KB of lines"], CODE) == (True, 0.0)
