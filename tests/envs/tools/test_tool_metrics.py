"""Metrics of an answer, and the published evaluation with its denominators."""

import math

import pytest

from corrgrpo_envs.tools.metrics import METRICS, metrics, summary
from corrgrpo_envs.tools.scoring import CORRGRPO, Scorer
from corrgrpo_envs.tools.truth import parse_truth

CALL = '<think> t </think>\n<tool_call>\n{"name": "a", "parameters": {"x": 1}}\n</tool_call>'
RESPONSE = "<think> t </think>\n<response> r </response>"


def episode(truth, text):
    score = Scorer().score(text, parse_truth(truth))
    return {"metrics": metrics(score), "reward_components": CORRGRPO.values(score)}


def test_metrics_of_one_answer():
    assert set(episode(CALL, CALL)["metrics"]) == set(METRICS)
    assert episode(CALL, CALL)["metrics"] == dict.fromkeys(METRICS, 1.0)
    without_format = episode(CALL, CALL.replace("<think>", ""))["metrics"]
    assert (without_format["all_exact"], without_format["exact"], without_format["format_score"]) == (1, 0, 0)
    assert episode(RESPONSE, RESPONSE)["metrics"] == {"exact": 1.0, "format_score": 1.0, "calls": 0.0}
    assert all(type(value) is float for value in episode(CALL, RESPONSE)["metrics"].values())


def test_summary_maps_rewards_to_shares_over_the_call_tasks():
    wrong_value = CALL.replace(": 1}", ": 2}")
    episodes = [
        episode(CALL, CALL),  # .5, 1, 1.5, 1
        episode(CALL, wrong_value),  # .5, 1, -1.5, 1
        episode(CALL, ""),  # -.5, -1, -1.5, 0
        episode(CALL, CALL + "x"),  # .5, 1, 1.5, 0
        episode(RESPONSE, RESPONSE),  # 0, 0, 0, 1
    ]
    got = summary(episodes)
    # Accuracy from -3..3: sums 3, 0, -3, 3 -> 1, .5, 0, 1. Combined from -3..4: 4, 1, -3, 3.
    expected = {
        "all_exact": 0.5,
        "function_name": 0.75,
        "parameter_names": 0.75,
        "parameter_values": 0.5,
        "accuracy": 0.625,
        "combined": (1 + 4 / 7 + 0 + 6 / 7) / 4,
        "format": 0.6,
        "exact": 0.4,
    }
    assert {name: got[name] for name in expected} == pytest.approx(expected)
    assert set(got) == {name + end for name in expected for end in ("", "_low", "_high", "_count")}
    assert (got["all_exact_count"], got["format_count"]) == (4, 5)


def test_summary_s_intervals_count_the_tasks_and_not_their_samples():
    right, wrong = ({**episode(CALL, text), "task_id": name} for text, name in ((CALL, "a"), ("", "b")))
    once, often = summary([right, wrong]), summary([right, wrong] * 50)
    assert (once["all_exact"], often["all_exact"], often["all_exact_count"]) == (0.5, 0.5, 100)
    # Variance of the mean by clusters of m: 2/1 · 2 · (m/2)² / (2m)² = 1/4, and p(1-p) / (1/4) = 1: Wilson with n = 1.
    z = 1.959963984540054
    half = z / (1 + z * z) * math.sqrt(0.25 + z * z / 4)
    for got in (once, often):
        assert got["all_exact_low"] == pytest.approx(0.5 - half)
        assert got["all_exact_high"] == pytest.approx(0.5 + half)


def test_summary_agrees_with_the_rewards_mapped_one_by_one():
    texts = [CALL, CALL.replace('"x"', '"y"'), CALL.replace('"a"', '"b"'), "", RESPONSE]
    episodes = [episode(CALL, text) for text in texts]
    got = summary(episodes)
    vectors = [e["reward_components"] for e in episodes]
    for name, low, high in (
        ("function_name", -0.5, 0.5),
        ("parameter_names", -1, 1),
        ("parameter_values", -1.5, 1.5),
    ):
        assert got[name] == pytest.approx(sum((v[name] - low) / (high - low) for v in vectors) / 5)
    totals = [sum(vector.values()) for vector in vectors]
    assert got["combined"] == pytest.approx(sum((total + 3) / 7 for total in totals) / 5)


def test_summary_of_nothing_is_none():
    got = summary([])
    assert got["format_count"] == 0
    assert got["all_exact"] is None
    assert summary([episode(RESPONSE, RESPONSE)])["all_exact"] is None
    with pytest.raises(ValueError, match="the episode of 'x' lacks 'metrics' with 'format_score'"):
        summary([{"task_id": "x", "metrics": {}}])


def test_published_shares_of_71():
    # 45 and 48 of 71 call tasks are the published 63.38 and 67.61.
    for right, published in ((45, 63.38), (48, 67.61)):
        episodes = [episode(CALL, CALL)] * right + [episode(CALL, "")] * (71 - right)
        episodes += [episode(RESPONSE, RESPONSE)] * 9
        assert round(100 * summary(episodes)["all_exact"], 2) == published
