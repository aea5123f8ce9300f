"""The content rewards (1.3 of the tool-call facts), with values worked out from its text by hand."""

import json

import pytest

from corrgrpo_envs.tools.blocks import Layout
from corrgrpo_envs.tools.scoring import CORRGRPO, TOOLRL, Scorer
from corrgrpo_envs.tools.truth import parse_truth

MINIMA = (-0.5, -1.0, -1.5)
MAXIMA = (0.5, 1.0, 1.5)


def call(name, **parameters):
    return {"name": name, "parameters": parameters}


def answer(*lines, thought="t"):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return f"<think> {thought} </think>\n<tool_call>\n" + "\n".join(texts) + "\n</tool_call>"


def content(text, *wanted, scorer=None):
    truth = parse_truth(answer(*wanted))
    values = CORRGRPO.values((scorer or Scorer()).score(text, truth))
    assert list(values) == ["function_name", "parameter_names", "parameter_values", "format"]
    return tuple(values.values())[:3]


def test_equal_lists_are_maximal():
    two = call("a", x=1), call("b", y="2")
    assert content(answer(*two), *two) == MAXIMA


def test_order_of_calls_does_not_matter():
    two = call("a", x=1), call("b", y="2")
    assert content(answer(two[1], two[0]), *two) == MAXIMA


@pytest.mark.parametrize(
    ("made", "share"),
    [
        # multiset intersection / (|a| + |b| - intersection), ground truth a, a, b
        (["a", "a", "b"], 1),
        (["b", "a", "a"], 1),
        (["a"], 1 / 3),
        (["a", "b"], 2 / 3),
        (["a", "a", "a"], 2 / 4),
        (["c"], 0),
        (["a", "a", "b", "c"], 3 / 4),
        (["A", "a ", "b"], 1 / 5),
    ],
)
def test_name_reward_is_multiset_similarity_less_a_half(made, share):
    wanted = [call("a"), call("a"), call("b")]
    assert content(answer(*map(call, made)), *wanted)[0] == pytest.approx(share - 0.5)


def test_parameter_reward_is_the_mean_similarity_of_parameter_names():
    # p = |{x}| / |{x, y, z}| = 1/3 for the first call, 1 for the second: 2 · (4/3) / 2 - 1 = 1/3.
    # v = 0 of 2 and 1 of 1: 3 · 1/3 - 1.5 = -0.5.
    wanted = call("a", x=1, y=2), call("b", k="v")
    made = call("a", x=5, z=2), call("b", k="v")
    assert content(answer(*made), *wanted) == pytest.approx((0.5, 1 / 3, -0.5))


def test_missing_calls_count_as_zero():
    wanted = call("a", x=1), call("b", x=1)
    assert content(answer(wanted[0]), *wanted) == pytest.approx((0.0, 0.0, 0.0))


def test_surplus_calls_cost_the_name_part_only():
    # Names: 1 / (1 + 3 - 1) = 1/3.
    wanted = call("a", x=1)
    assert content(answer(wanted, wanted, call("z")), wanted) == pytest.approx((1 / 3 - 0.5, 1, 1.5))


def test_wholly_wrong_names_leave_the_minima():
    assert content(answer(call("b", x=1)), call("a", x=1)) == MINIMA


def test_matching_is_greedy_in_order_of_the_ground_truth():
    # g1 = {x:1, y:2}, g2 = {x:1}; p1 = {x:1}, p2 = {x:1, y:9, z:9}.
    # g1: p1 is worth 1/2 + 1, p2 2/3 + 1 -> p2. g2: p1 1 + 1 -> sum p = 5/3, sum v = 2 of 3.
    wanted = call("a", x=1, y=2), call("a", x=1)
    made = call("a", x=1), call("a", x=1, y=9, z=9)
    assert content(answer(*made), *wanted) == pytest.approx((0.5, 2 * (5 / 3) / 2 - 1, 3 * 2 / 3 - 1.5))


def test_greedy_is_not_optimal():
    # g1 = {x:1, y:1}, g2 = {x:1}; p1 = {x:1}, p2 = {y:5}. g1 takes p1 (1/2 + 1, against 1/2 for p2), which
    # leaves g2 with p2, worth 0: p = 1/2, v = 1. Optimal: g1-p2 (1/2) and g2-p1 (1 + 1): p = 3/2, v = 1.
    wanted = call("a", x=1, y=1), call("a", x=1)
    made = answer(call("a", x=1), call("a", y=5))
    assert content(made, *wanted) == pytest.approx((0.5, 2 * 0.5 / 2 - 1, 3 * 1 / 3 - 1.5))
    optimal = Scorer(matching="optimal")
    assert content(made, *wanted, scorer=optimal) == pytest.approx((0.5, 2 * 1.5 / 2 - 1, 3 * 1 / 3 - 1.5))


def test_first_among_equally_good_calls_is_taken():
    # Both predicted calls are worth 1/2 + 1 to g1 = {x:1, y:2}; g1 takes the first, {x:1}, so that g2 = {x:1}
    # gets {y:2}: worth 0, left unpaired. Were the second taken, g2 would be right.
    wanted = call("a", x=1, y=2), call("a", x=1)
    assert content(answer(call("a", x=1), call("a", y=2)), *wanted) == pytest.approx((0.5, -0.5, -0.5))
    assert content(answer(call("a", y=2), call("a", x=1)), *wanted) == pytest.approx((0.5, 0.5, 0.5))


def test_a_call_worth_nothing_is_not_used_up():
    # g1 = {x:1} against {y:1}: worth 0, so not paired; g2 = {y:1} takes it.
    assert content(answer(call("a", y=1)), call("a", x=1), call("a", y=1)) == pytest.approx((0.0, 0.0, 0.0))


def test_empty_parameters():
    # Two empty sets of names are alike; one empty set is like no other.
    assert content(answer(call("a")), call("a")) == MAXIMA
    assert content(answer(call("a", x=1)), call("a")) == pytest.approx((0.5, -1.0, 1.5))
    assert content(answer(call("a")), call("a", x=1)) == pytest.approx((0.5, -1.0, -1.5))


def test_without_parameters_in_the_ground_truth_the_value_part_is_maximal():
    assert content(answer(call("b", x=1)), call("a"), call("c")) == (-0.5, -1.0, 1.5)


def test_values_count_ground_truth_parameters_only():
    # v = 1 of 2 parameters although the call has two more: 3 · 1/2 - 1.5 = 0; p = 2/4.
    assert content(answer(call("a", x=1, y=0, z=1, w=1)), call("a", x=1, y=2)) == pytest.approx((0.5, 0.0, 0.0))


@pytest.mark.parametrize(
    ("wanted", "made", "equal"),
    [
        ("1", "1.0", True),
        ("1", "true", True),
        ("0", "false", True),
        ("0.0", "-0.0", True),
        ("1", '"1"', False),
        ("null", "0", False),
        ("null", "null", True),
        ("null", '""', False),
        ("[1, 2]", "[2, 1]", False),
        ("[1, 2]", "[1.0, 2.0]", True),
        ("[1]", "[true]", True),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', True),
        ('{"a": [1]}', '{"a": [1.0]}', True),
        ('{"a": 1}', '{"a": 1, "b": 2}', False),
        ("[]", "{}", False),
        ('"a"', '"A"', False),
        ('"a"', '"a "', False),
        ('"\\u00e9"', '"e\\u0301"', False),
        ('"é"', '"\\u00e9"', True),
        ("1e400", "Infinity", True),
        ("NaN", "NaN", False),
        ("[NaN]", "[NaN]", True),
        ("9007199254740993", "9007199254740992.0", False),
        ("1" + "0" * 22, "1e22", True),
        ("1" + "0" * 4000, "1" + "0" * 4000, True),
        ('"\\ud800"', '"\\ud800"', True),
    ],
)
def test_values_compare_as_python_compares_parsed_json(wanted, made, equal):
    template = '{{"name": "a", "parameters": {{"x": {}, "y": 0}}}}'
    got = content(answer(template.format(made), call("b")), template.format(wanted))
    # v is 1 (y) or 2 of 2: -1.5 + 3 · v / 2.
    assert got[2] == (1.5 if equal else 0.0)


def test_nan_counts_in_lists_that_are_wholly_equal():
    # List equality takes the decoder's one NaN object for equal, a lone comparison does not.
    line = '{"name": "a", "parameters": {"x": NaN}}'
    assert content(answer(line), line) == MAXIMA
    assert content(answer(line, line), line) == pytest.approx((0.0, 1.0, -1.5))


def test_further_keys_are_ignored():
    wanted = call("a", x=1)
    assert content(answer({**wanted, "id": 7, "why": [1]}), wanted) == MAXIMA


def test_the_last_of_equal_keys_counts():
    wanted = call("a", x=1)
    assert content(answer('{"name": "b", "name": "a", "parameters": {"x": 2, "x": 1}}'), wanted) == MAXIMA


@pytest.mark.parametrize(
    "block",
    [
        "",
        "{",
        "nothing",
        '{"name": "a", "parameters": {"x": 1}} and more',
        '{"name": "a", "parameters": {"x": 1}},',
        '{"name": "a", "parameters": {"x": 1}}\n\n{"name": "a", "parameters": {"x": 1}}',
        '{"name": "a", "parameters": {"x": 1}}{"name": "a", "parameters": {"x": 1}}',
        '[{"name": "a", "parameters": {"x": 1}}]',
        '{"name": "a",\n"parameters": {"x": 1}}',
        "{'name': 'a', 'parameters': {'x': 1}}",
        '{"name": "a", "arguments": {"x": 1}}',
        '{"name": "a"}',
        '{"name": "a", "parameters": [["x", 1]]}',
        '{"name": "a", "parameters": "x"}',
        '{"name": "a", "parameters": null}',
        '{"parameters": {"x": 1}}',
        '{"name": ["a"], "parameters": {"x": 1}}',
        '{"name": {}, "parameters": {"x": 1}}',
        '{"name": "a", "parameters": {"x": 1}}\n5',
        '{"name": "a", "parameters": {"x": 1}}\n"name"',
        '{"name": "a", "parameters": {"x": 1}}\nnull',
        '{"name": "a", "parameters": {"x": ' + "1" * 5000 + "}}",
        '{"name": "a", "parameters": {"x": ' + "[" * 100_000 + "}}",
        '{"name": "a", "parameters": {"x": ' + "[" * 100_000 + "]" * 100_000 + "}}",
        '{"name": "a", "parameters": {"x": ' + '{"k":' * 3000 + "1" + "}" * 3000 + "}}",
        '\ufeff{"name": "a", "parameters": {"x": 1}}',
    ],
    ids=range(26),
)
def test_what_cannot_be_read_gives_all_minima(block):
    wanted = call("a", x=1)
    score = Scorer().score(answer(block), parse_truth(answer(wanted)))
    assert tuple(CORRGRPO.values(score).values()) == (*MINIMA, 1.0)
    assert score.status == "unparsable_call"


def test_parameters_are_looked_at_only_where_the_name_matches():
    # Names: 1 / 2; the other call has no parameters, but nobody asks.
    wanted = call("a", x=1)
    assert content(answer(wanted, '{"name": "b"}'), wanted) == pytest.approx((0.0, 1.0, 1.5))
    assert content(answer(wanted, '{"name": 5, "arguments": 1}'), wanted) == pytest.approx((0.0, 1.0, 1.5))
    assert content(answer(wanted, '{"name": "a"}'), wanted) == MINIMA


def test_white_space_around_block_and_lines():
    wanted = call("a", x=1), call("b")
    text = answer("", "  ", json.dumps(wanted[0]) + " \t\r", "\t" + json.dumps(wanted[1]), "", "")
    assert content(text, *wanted) == MAXIMA


@pytest.mark.parametrize("text", ["", "<tool_call>", "</tool_call>", "<think> t </think>\n<response> r </response>"])
def test_without_both_tags_all_minima(text):
    score = Scorer().score(text, parse_truth(answer(call("a", x=1))))
    assert tuple(CORRGRPO.values(score).values())[:3] == MINIMA
    assert score.status == "no_call"


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "a", "parameters": {"x": 1}}</tool_call>',
        'rubbish <tool_call>{"name": "a", "parameters": {"x": 1}}</tool_call> more </tool_call>',
        '</tool_call> <tool_call>{"name": "a", "parameters": {"x": 1}}',
        '<tool_call>{"name": "a", "parameters": {"x": 1}}</tool_call><tool_call>bad</tool_call>',
    ],
)
def test_content_is_credited_without_format(text):
    score = Scorer().score(text, parse_truth(answer(call("a", x=1))))
    assert tuple(CORRGRPO.values(score).values()) == (*MAXIMA, 0.0)
    assert (score.status, score.all_exact, score.exact) == ("invalid_format", True, False)


def test_a_thought_that_names_the_tag_spoils_the_answer_unless_ignored():
    wanted = call("a", x=1)
    text = answer(wanted, thought="I write <tool_call> now")
    truth = parse_truth(answer(wanted))
    assert tuple(CORRGRPO.values(Scorer().score(text, truth)).values()) == (*MINIMA, 0.0)
    ignoring = Scorer(Layout(tag_in_thought="ignore"))
    assert tuple(CORRGRPO.values(ignoring.score(text, truth)).values()) == (*MAXIMA, 1.0)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("<think> t </think>\n<response> r </response>", 1.0),
        (answer(call("a")), 0.0),
        ("", 0.0),
    ],
)
def test_without_calls_in_the_ground_truth_content_is_zero(text, form):
    truth = parse_truth("<think> no tool fits </think>\n<response> Sorry. </response>")
    score = Scorer().score(text, truth)
    assert tuple(CORRGRPO.values(score).values()) == (0.0, 0.0, 0.0, form)
    assert score.status == ("ok" if form else "invalid_format")


def test_white_space_around_the_answer_is_ignored():
    wanted = call("a", x=1)
    score = Scorer().score(f"\n\n {answer(wanted)} \n", parse_truth(answer(wanted)))
    assert score.exact


def test_a_ground_truth_with_both_blocks():
    truth = parse_truth(answer(call("a", x=1)) + "\n<response> r </response>")
    assert truth.calls is not None
    assert truth.response
    assert Scorer().score(truth.text, truth).exact
    assert not Scorer().score(answer(call("a", x=1)), truth).format


def test_the_mode_comes_from_the_answer_and_not_from_the_thought():
    named = "<think> <tool_call> or <response>? </think>\n<response> r </response>"
    assert parse_truth(named).calls is None
    named = answer(call("a"), thought="no <response> and no <tool_call>")
    truth = parse_truth(named)
    assert (len(truth.calls), truth.response) == (1, False)
    assert truth.answer() == answer(call("a"), thought="no response and no tool_call")
    assert Scorer().score(truth.answer(), truth).exact


def test_toolrl_pools_names_parameters_and_values():
    # 6 · (s + Σ(p + v)) / (1 + Σ(1 + n)) - 3; one of two calls made, with one of two values right:
    # s = 1/2, p = 1, v = 1, 1 + 3 + 2 = 6: 6 · 2.5 / 6 - 3 = -0.5.
    truth = parse_truth(answer(call("a", x=1, y=2), call("b", z=3)))
    score = Scorer().score(answer(call("a", x=1, y=5)), truth)
    assert TOOLRL.values(score) == pytest.approx({"correctness": -0.5, "format": 1.0})
    assert TOOLRL.values(Scorer().score(truth.text, truth)) == {"correctness": 3.0, "format": 1.0}
    assert TOOLRL.values(Scorer().score("", truth)) == {"correctness": -3.0, "format": 0.0}
    # Without parameters: s = 0 and nothing matched is the minimum, no value part is given away.
    no_parameters = parse_truth(answer(call("a")))
    assert TOOLRL.values(Scorer().score(answer(call("b")), no_parameters))["correctness"] == -3.0


def test_surplus_penalty_weighs_calls_too_many_like_missed_ones():
    # One call needed, three made, penalty 1/2: parameter shares times 1 / (1 + 0.5 · 2) = 1/2.
    wanted = call("a", x=1)
    scorer = Scorer(surplus_penalty=0.5)
    made = answer(wanted, wanted, wanted)
    assert content(made, wanted, scorer=scorer) == pytest.approx((1 / 3 - 0.5, 0.0, 0.0))
    assert content(answer(wanted), wanted, scorer=scorer) == MAXIMA
    assert content(answer(call("b"), call("c")), wanted, scorer=scorer) == MINIMA


@pytest.mark.parametrize("penalty", [-1, float("nan"), float("inf"), True, "1", None])
def test_wrong_surplus_penalty(penalty):
    with pytest.raises(ValueError, match=r"^surplus_penalty"):
        Scorer(surplus_penalty=penalty)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no blocks",
        "<think> a </think>\n<tool_call>\n{}\n",
        "<think> a </think>\n<tool_call>\n{}\n</tool_call>",
        "<think> a </think>\n<tool_call>\nnot JSON\n</tool_call>",
        '<think> a </think>\n<tool_call>\n{"name": 1, "parameters": {}}\n</tool_call>',
        '<think> a </think>\n<tool_call>\n{"name": "a", "parameters": []}\n</tool_call>',
        "<think> a </think>\n<response> r",
        "<think> a </think> more",
    ],
)
def test_a_bad_ground_truth_is_refused_when_it_is_read(text):
    with pytest.raises(ValueError, match="ground truth"):
        parse_truth(text)
