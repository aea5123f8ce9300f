"""Hostile answers: huge, deep, pathological; scored right, and in a time that says the work is linear.

A regular expression that backtracks or a comparison of all pairs takes minutes on these; the limit per test
is far above what they take, so that a slow machine passes.
"""

import json
import random
import sys
import time

import pytest

from corrgrpo_envs.tools.blocks import Layout
from corrgrpo_envs.tools.calls import MAX_NESTING
from corrgrpo_envs.tools.scoring import CORRGRPO, Scorer
from corrgrpo_envs.tools.truth import parse_truth

pytestmark = pytest.mark.timeout(240)

N = 200_000
CALL = '{"name": "a", "parameters": {"x": 1}}'
WANTED = parse_truth(f"<think> t </think>\n<tool_call>\n{CALL}\n</tool_call>")
ANSWERED = parse_truth("<think> t </think>\n<response> r </response>")
BOTH = parse_truth(f"<think> t </think>\n<tool_call>\n{CALL}\n</tool_call>\n<response> r </response>")
STRICT = Scorer(Layout("newline", "required", "ignore"), "optimal", 1.0)
MINIMA = [-0.5, -1.0, -1.5]


def written(lines):
    return "<think> t </think>\n<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


def repeated(piece: str) -> str:
    return piece * (N // len(piece))


PATHOLOGICAL = {
    "open tags": repeated("<tool_call>"),
    "close tags": repeated("</tool_call>"),
    "pairs of tags": repeated("<tool_call>\n</tool_call>"),
    "think tags": repeated("<think>"),
    "closing think tags": "<think>" + repeated("</think>") + "\n<tool_call>\nx\n</tool_call",
    "think and space": "<think>" + repeated("</think> ") + "x",
    "space": repeated(" "),
    "space between": "<think></think>" + repeated(" \n") + "<tool_call>\nx",
    "newlines inside": written([repeated("\n")]),
    "response tags": "<think></think>" + repeated("<response></response>"),
    "quotes": written(['{"name": "' + repeated('\\"')]),
    "brackets": written([repeated("[")]),
    "braces": written([repeated('{"a":')]),
    "digits": written([repeated("1")]),
    "exponent": written(["1e" + repeated("9")]),
    "lines": written([CALL] * (N // len(CALL)) + ["x"]),
    "surrogates": written(['{"name": "b" + "' + repeated("\ud800") + '"}']),
    "nul": repeated("\0"),
}


@pytest.mark.parametrize("text", PATHOLOGICAL.values(), ids=PATHOLOGICAL.keys())
@pytest.mark.parametrize("scorer", [Scorer(), STRICT], ids=["published", "strict"])
def test_pathological_texts(text, scorer):
    for truth in (WANTED, ANSWERED, BOTH):
        values = list(CORRGRPO.values(scorer.score(text, truth)).values())
        assert values[:3] == ([0.0, 0.0, 0.0] if truth is ANSWERED else MINIMA)
        assert values[3] == float(truth is WANTED and text.startswith("<think> t </think>\n<tool_call>\n"))


def test_nesting_up_to_the_bound_counts_whatever_the_stack():
    def nested(depth):  # the object that holds the call and its parameters are two levels
        inner = "[" * (depth - 2) + "]" * (depth - 2)
        return written([f'{{"name": "a", "parameters": {{"x": {inner}}}}}'])

    def at_depth(frames, text, truth):
        return Scorer().score(text, truth).all_exact if frames == 0 else at_depth(frames - 1, text, truth)

    truth = parse_truth(nested(MAX_NESTING))
    for frames in (0, 200, sys.getrecursionlimit() // 2):
        assert at_depth(frames, nested(MAX_NESTING), truth)
        assert Scorer().score(nested(MAX_NESTING + 1), truth).status == "unparsable_call"
    with pytest.raises(ValueError, match="nested more than"):
        parse_truth(nested(MAX_NESTING + 1))


def test_no_room_left_on_the_stack_is_no_crash():
    text = written(['{"name": "a", "parameters": {"x": ' + "[" * 90 + "]" * 90 + "}}"])

    def dig(left):
        if left:
            return dig(left - 1)
        try:
            return Scorer().score(text, WANTED).status
        except RecursionError:  # before scoring began
            return "none"

    for left in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() - 60, 7):
        try:
            assert dig(left) in ("wrong_call", "unparsable_call", "none")
        except RecursionError:
            break


def distinct(count, start=0):
    return [json.dumps({"name": "a", "parameters": {"x": i, "y": i % 7}}) for i in range(start, start + count)]


@pytest.mark.parametrize("matching", ["greedy", "optimal"])
def test_thousands_of_calls_of_one_tool(matching):
    scorer, lines = Scorer(matching=matching), distinct(3000)
    truth = parse_truth(written(lines))
    assert scorer.score(written(lines), truth).exact
    shuffled = written(random.Random(0).sample(lines, len(lines)))
    begin = time.process_time()
    assert scorer.score(shuffled, truth).exact
    assert time.process_time() - begin < 1.0  # CPU seconds, about ten times what it takes; all pairs take minutes
    assert scorer.score(written(lines[:1500]), truth).parameter_values == pytest.approx(0.5)
    # 3000 other values of x: each call finds one whose y is equal. 3000 = 428 · 7 + 4 and the other range is
    # shifted by 10,000 = 4 mod 7: the counts of each y differ, min(429, 428) for some.
    others = scorer.score(written(distinct(3000, 10_000)), truth)
    assert others.parameter_names == 1.0
    assert 0.495 < others.parameter_values <= 0.5
    same = scorer.score(written([CALL] * 3000), truth)
    assert same.function_name == 1.0


@pytest.mark.parametrize("matching", ["greedy", "optimal"])
def test_thousands_of_parameters(matching):
    def one(value):
        return json.dumps({"name": "a", "parameters": {f"p{i}": value for i in range(3000)}})

    score = Scorer(matching=matching).score(written([one(1)] * 20), parse_truth(written([one(1), one(2)])))
    assert score.parameter_names == 1.0
    assert score.parameter_values == 0.5


@pytest.mark.parametrize("matching", ["greedy", "optimal"])
def test_numbers_whose_hashes_collide(matching):
    # Integers that differ by multiples of the modulus of Python's number hash all hash alike.
    modulus = sys.hash_info.modulus
    names = [json.dumps({"name": i * modulus, "parameters": {}}) for i in range(1, 5000)]
    values = [json.dumps({"name": "a", "parameters": {"x": i * modulus}}) for i in range(1, 5000)]
    scorer = Scorer(matching=matching)
    assert scorer.score(written([*names, CALL]), WANTED).parameter_values == 1.0
    assert scorer.score(written([*values, CALL]), WANTED).parameter_values == 1.0


def test_cut_references_never_raise():
    text = written(['{"name": "a", "parameters": {"x": [1, {"y": "é\ud83d"}], "z": -1.5e3}}', CALL])
    truth = parse_truth(text)
    for end in range(len(text)):
        for piece in (text[:end], text[end:], text[:end] + "\0" + text[end:]):
            score = Scorer().score(piece, truth)
            assert not score.exact or piece.strip() == text or "\0" in piece
