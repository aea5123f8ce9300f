"""The scorer against a slow one written from the published rules: regular expressions, loops, and `==`."""

import itertools
import json
import math
import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corrgrpo_envs.tools.assignment import best_assignment
from corrgrpo_envs.tools.blocks import Layout
from corrgrpo_envs.tools.calls import parse_calls
from corrgrpo_envs.tools.matching import greedy, optimal
from corrgrpo_envs.tools.scoring import CORRGRPO, TOOLRL, Scorer
from corrgrpo_envs.tools.truth import parse_truth


def slow_format(text, wanted, *, strict=False, think=True):
    gap = r"\n" if strict else r"\s*"
    head = r"<think>.*?</think>" if think else r"(?:<think>)?.*?</think>"
    call, response = r"<tool_call>\n.*?\n</tool_call>", r"<response>.*?</response>"
    blocks = [b for tag, b in (("<tool_call>", call), ("<response>", response)) if tag in wanted]
    tags = [t for t in ("tool_call", "response") if f"<{t}>" in wanted]
    whole = re.search("^" + gap.join([head, *blocks]) + r"\Z", text, re.DOTALL)
    once = all(text.count(f"<{t}>") == 1 and text.count(f"</{t}>") == 1 for t in tags)
    return float(bool(whole) and once)


def similarity(a, b):
    if a == b:
        return 1.0
    if not a or not b:
        return 0.0
    common = sum((Counter(a) & Counter(b)).values())
    return common / (len(a) + len(b) - common)


def block(text):
    if "<tool_call>" not in text or "</tool_call>" not in text:
        raise ValueError("no block")
    inside = text.split("<tool_call>", 1)[1].split("</tool_call>", 1)[0]
    return [json.loads(line) for line in inside.strip().split("\n")]


def slow_content(text, wanted):
    """(names, parameters, values, ToolRL's correctness)."""
    if "<tool_call>" not in wanted:
        return 0.0, 0.0, 0.0, 0.0
    truth = block(wanted)
    try:
        made = block(text)
        if made == truth:
            return 0.5, 1.0, 1.5, 3.0
        names = similarity([c["name"] for c in truth], [c["name"] for c in made])
        used, p_sum, v_sum = set(), 0.0, 0
        for g in truth:
            best, chosen = 0.0, None
            for i, c in enumerate(made):
                if i in used or c["name"] != g["name"]:
                    continue
                p = similarity(list(g["parameters"].keys()), list(c["parameters"].keys()))
                v = sum(k in c["parameters"] and c["parameters"][k] == x for k, x in g["parameters"].items())
                if p + v > best:
                    best, chosen = p + v, (i, p, v)
            if chosen:
                used.add(chosen[0])
                p_sum, v_sum = p_sum + chosen[1], v_sum + chosen[2]
        total = sum(len(g["parameters"]) for g in truth)
        values = 3 * v_sum / total - 1.5 if total else 1.5
        pooled = 6 * (names + p_sum + v_sum) / (1 + sum(1 + len(g["parameters"]) for g in truth)) - 3
        return names - 0.5, 2 * p_sum / len(truth) - 1, values, pooled
    except Exception:
        return -0.5, -1.0, -1.5, -3.0


VALUES = [
    0,
    1,
    1.0,
    True,
    False,
    None,
    "1",
    "a",
    "é",
    "",
    [1, 2],
    [2, 1],
    [1.0, 2],
    {"k": 1},
    {"k": True},
    [],
    {},
]
VALUES += [-0.0, 1e22, 10**22, math.nan, [math.nan], math.inf, {"k": [math.nan]}]
KEYS = ["x", "y", "z", "x y", "é"]
NAMES = ["a", "b", "get news", "c.d(1)"]


def random_call(rng):
    keys = rng.sample(KEYS, rng.randrange(4))
    return {
        "name": rng.choice(NAMES[: rng.randrange(1, 5)]),
        "parameters": {k: rng.choice(VALUES) for k in keys},
    }


def random_truth(rng):
    thought = "<think> t </think>"
    calls = [random_call(rng) for _ in range(rng.choice([0, 1, 1, 2, 3, 5]))]
    blocks = [thought]
    if calls:
        blocks += ["<tool_call>", *map(json.dumps, calls), "</tool_call>"]
    if not calls or rng.random() < 0.2:
        blocks.append("<response> r </response>")
    return "\n".join(blocks), calls


def mutated_calls(rng, calls):
    calls = [json.loads(json.dumps(c)) for c in calls]
    for _ in range(rng.randrange(4)):
        if not calls:
            calls = [random_call(rng)]
        c = rng.choice(calls)
        match rng.randrange(10):
            case 0:
                calls.append(random_call(rng))
            case 1:
                calls.remove(c)
            case 2:
                rng.shuffle(calls)
            case 3:
                c["name"] = rng.choice([*NAMES, 5, None, [1], {}])
            case 4 | 5 if isinstance(c.get("parameters"), dict):
                c["parameters"][rng.choice(KEYS)] = rng.choice(VALUES)
            case 6 if c.get("parameters"):
                c["parameters"] = dict(list(c["parameters"].items())[1:]) if isinstance(c["parameters"], dict) else 1
            case 7:
                calls.append(json.loads(json.dumps(c)))
            case 8:
                c[rng.choice(["id", "arguments"])] = 1
            case 9 if rng.random() < 0.3:
                c["parameters"] = rng.choice([[], None, "x", 3])
    return calls


PIECES = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<response>",
    "</response>",
    "\n",
    " ",
    "x",
    "{}",
    "\r",
]


def mutated_text(rng, text):
    for _ in range(rng.choice([0, 0, 0, 1, 2, 3])):
        at = rng.randrange(len(text) + 1)
        if rng.random() < 0.5:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        else:
            piece = rng.choice(PIECES)
            text = text.replace(piece, rng.choice(["", *PIECES]), 1)
    return text


def random_answer(rng, calls):
    made = mutated_calls(rng, calls)
    blocks = ["<think> t </think>"]
    if made:
        blocks += ["<tool_call>", *map(json.dumps, made), "</tool_call>"]
    if not made or rng.random() < 0.2:
        blocks.append("<response> r </response>")
    return mutated_text(rng, "\n".join(blocks))


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_the_slow_scorer_on_random_answers(seed):
    rng = random.Random(seed)
    scorer = Scorer()
    differing = 0
    for _ in range(1000):
        wanted, calls = random_truth(rng)
        text = random_answer(rng, calls)
        score = scorer.score(text, parse_truth(wanted))
        got = (*CORRGRPO.values(score).values(), TOOLRL.values(score)["correctness"])
        names, parameters, values, pooled = slow_content(text.strip(), wanted)
        expected = (names, parameters, values, slow_format(text.strip(), wanted), pooled)
        assert got == pytest.approx(expected, abs=1e-12), (text, wanted)
        differing += -0.5 < names < 0.5 or -1 < parameters < 1 or -1.5 < values < 1.5
    assert differing > 150  # the answers are neither all right nor all unreadable


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        (Layout(separator="newline"), {"strict": True}),
        (Layout(think="optional"), {"think": False}),
        (Layout(separator="newline", think="optional"), {"strict": True, "think": False}),
    ],
)
def test_format_options_agree_with_the_slow_scorer(layout, options):
    rng = random.Random(99)
    passed = 0
    for _ in range(3000):
        wanted, calls = random_truth(rng)
        text = random_answer(rng, calls).strip()
        if rng.random() < 0.3:
            text = text.removeprefix("<think>").strip()
        truth = parse_truth(wanted)
        got = layout.holds(text, calls=truth.calls is not None, response=truth.response)
        assert got == bool(slow_format(text, wanted, **options)), (text, wanted)
        passed += got
    assert 300 < passed < 2700


SOUP = st.lists(
    st.sampled_from([*PIECES, '{"name": "a", "parameters": {"x": 1}}', '"', "[", "]", "{", "}", ":", "\\", "1e999"])
    | st.text(max_size=4)
    | st.characters(categories=["Cs"]),
    max_size=30,
).map("".join)
WANTED = parse_truth('<think> t </think>\n<tool_call>\n{"name": "a", "parameters": {"x": 1}}\n</tool_call>')
ANSWERED = parse_truth("<think> t </think>\n<response> r </response>")


@settings(max_examples=4000, deadline=None, suppress_health_check=list(HealthCheck))
@given(SOUP)
def test_soup_of_tags_agrees_and_never_raises(text):
    for truth in (WANTED, ANSWERED):
        values = CORRGRPO.values(Scorer().score(text, truth))
        expected = (*slow_content(text.strip(), truth.text)[:3], slow_format(text.strip(), truth.text))
        assert tuple(values.values()) == pytest.approx(expected, abs=1e-12)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
LINES = st.lists(
    JSON
    | st.fixed_dictionaries({"name": st.sampled_from(["a", "b"]) | JSON})
    | st.fixed_dictionaries({"name": st.just("a"), "parameters": st.dictionaries(st.sampled_from("xyz"), JSON)})
    | st.fixed_dictionaries({"name": st.just("a"), "parameters": JSON}),
    max_size=4,
)


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(LINES, LINES)
def test_soup_of_json_agrees_and_never_raises(lines, wanted):
    def written(values):
        return "<think> </think><tool_call>\n" + "\n".join(map(json.dumps, values)) + "\n</tool_call>"

    truth = WANTED
    try:
        truth = parse_truth(written(wanted))
    except ValueError:
        # Most lists are no ground truth; slips of one are judged against the fixed one.
        lines = [*lines, {"name": "a", "parameters": {"x": 1}}]
    values = CORRGRPO.values(Scorer().score(written(lines), truth))
    assert tuple(values.values())[:3] == pytest.approx(slow_content(written(lines), truth.text)[:3], abs=1e-12)


@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(st.characters(), max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_any_text_is_scored(text):
    for truth in (WANTED, ANSWERED):
        for scorer in (Scorer(), Scorer(Layout("newline", "optional", "ignore"), "optimal", 1.0)):
            values = CORRGRPO.values(scorer.score(text, truth))
            for component in CORRGRPO.components:
                assert component.low <= values[component.name] <= component.high


def pair_worths(wanted, made):
    table = [[0.0] * len(made) for _ in wanted]
    for i, g in enumerate(wanted):
        for j, c in enumerate(made):
            if g.name == c.name:
                values = sum(k in c.parameters and c.parameters[k] == x for k, x in g.parameters.items())
                table[i][j] = similarity(list(g.parameters), list(c.parameters)) + values
    return table


def test_optimal_matching_is_the_best_of_all_matchings():
    rng = random.Random(5)
    better = 0
    for _ in range(600):
        wanted, made = ([random_call(rng) for _ in range(rng.randrange(1, 5))] for _ in range(2))
        g, c = (parse_calls("\n".join(map(json.dumps, calls))) for calls in (wanted, made))
        table = pair_worths(g, c)
        size = max(len(g), len(c))
        padded = [row + [0.0] * (size - len(c)) for row in table] + [[0.0] * size] * (size - len(g))
        best = max(sum(padded[i][j] for i, j in enumerate(order)) for order in itertools.permutations(range(size)))
        totals = [sum(pair.names + pair.values for pair in match(g, c)) for match in (greedy, optimal)]
        assert totals[1] == pytest.approx(best)
        assert totals[0] <= best + 1e-9
        better += totals[0] < best - 1e-9
    assert better > 0


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (5, 2), (4, 4)])
def test_assignment_is_the_best_of_all(shape):
    rng = random.Random(7)
    for _ in range(100):
        table = np.array(
            [[rng.choice([0.0, 0.5, 1.0, rng.random()]) for _ in range(shape[1])] for _ in range(shape[0])]
        )
        pairs = best_assignment(table)
        assert len(pairs) == min(shape) == len({i for i, _ in pairs}) == len({j for _, j in pairs})
        square = table if shape[0] <= shape[1] else table.T
        orders = itertools.permutations(range(square.shape[1]), square.shape[0])
        best = max(sum(square[i, j] for i, j in enumerate(order)) for order in orders)
        assert sum(table[i, j] for i, j in pairs) == pytest.approx(best)
