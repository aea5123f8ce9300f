"""Measures of recorded episodes, each computed a second way."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.benchmarks import BENCHMARKS
from corrgrpo_train.evaluate.bootstrap import clustered, interval, sign_flip
from corrgrpo_train.evaluate.comparison import compared
from corrgrpo_train.evaluate.results import EnvironmentResult, Result
from corrgrpo_train.evaluate.sample import Sample, read_sample
from corrgrpo_train.evaluate.summary import aggregates, summarised
from corrgrpo_train.outcome import sign_test


def sample(environment, task, components, *, number=0, metrics=None, status="ok", error=None):
    weights = dict.fromkeys(components, 1.0)
    reward = sum(components.values()) if components else math.nan
    return Sample(
        *(environment, task, number, status, reward, components, weights, metrics or {}, ("text",), False, 3, error)
    )


def measured(environment, samples, tasks=None):
    tasks = tasks or dict.fromkeys(one.task for one in samples)
    return summarised(EnvironmentResult(environment, tuple(tasks), tuple(samples)))


def result(*environments):
    found = {one.name: one for one in environments}
    return Result({"model": "m"}, (1, 1), found, aggregates(found))


# ---- programs ----


def programs(environment, passes):
    """Samples of tasks, from strings of 1, 0 and x (could not be scored)."""
    return [
        sample(
            environment,
            f"t{task}",
            {} if letter == "x" else {"runtime": 1.0, "correctness": float(letter)},
            number=number,
            error="no sandbox" if letter == "x" else None,
        )
        for task, letters in enumerate(passes)
        for number, letter in enumerate(letters)
    ]


def by_enumeration(letters, k):
    """Pass@k as it is defined: the share of all choices of k samples with a right one among them."""
    choices = list(itertools.combinations(letters, k))
    return sum("1" in choice for choice in choices) / len(choices)


def test_pass_at_k_by_enumeration():
    passes = ["00000", "10000", "11010", "11111", "00110"]
    found = measured("HumanEval-v0", programs("HumanEval-v0", passes)).summary
    for k in (1, 5):
        assert found[f"pass_at_{k}"] == pytest.approx(np.mean([by_enumeration(letters, k) for letters in passes]))
    assert found["pass_at_1_count"] == 5
    assert found["executable"] == 1.0


def test_programs_that_could_not_be_judged_leave_their_task_with_fewer_samples():
    passes = ["1x0", "0xx", "xxx"]
    one = measured("MBPP-v0", programs("MBPP-v0", passes))
    assert one.summary["pass_at_1"] == pytest.approx((0.5 + 0) / 2)
    assert one.summary["pass_at_3"] is None
    assert one.notes == (
        "6 of 9 episodes could not be scored and count nowhere (6 × no sandbox); --retry plays them again",
    )


def test_the_code_average_is_the_mean_of_the_four():
    names = ("LeetCode-v0", "HumanEval-v0", "MBPP-v0", "LiveCodeBench-v0")
    parts = [measured(name, programs(name, ["1"] * right + ["0"] * (4 - right))) for right, name in enumerate(names)]
    assert aggregates({one.name: one for one in parts}) == {"code_average": pytest.approx((0 + 1 + 2 + 3) / 16)}
    assert aggregates({one.name: one for one in parts[1:]}) == {}


# ---- tool calls ----


def rlla(task, all_exact, names=1.0, form=1.0):
    scores = {"function_name_score": names, "parameter_names_score": 1.0, "parameter_values_score": all_exact}
    metrics = {"all_exact": all_exact, "exact": all_exact * form, "format_score": form, **scores}
    return sample("RLLA-v0", task, {"format": form}, metrics=metrics)


def apibank(task, level, correct):
    names = ("function_name", "parameter_names", "parameter_values", "format")
    components = {"correct": correct, **dict.fromkeys(names, 1.0)}
    return sample("APIBank-v0", task, components, metrics={"level": float(level)})


def test_overall_is_the_mean_of_all_exact_and_the_average_of_the_levels():
    tools = measured("RLLA-v0", [rlla("a", 1.0), rlla("b", 0.0), rlla("c", 0.0), rlla("d", 1.0)])
    items = [("a", 1, 1.0), ("b", 1, 0.0), ("c", 2, 1.0), ("d", 3, 0.0), ("e", 3, 0.0), ("f", 3, 1.0), ("g", 3, 0.0)]
    bank = measured("APIBank-v0", [apibank(*item) for item in items])
    assert tools.summary["all_exact"] == 0.5
    assert [bank.summary[f"level_{level}"] for level in (1, 2, 3)] == [0.5, 1.0, 0.25]
    assert bank.summary["average"] == pytest.approx((0.5 + 1 + 0.25) / 3)
    assert bank.summary["pooled"] == pytest.approx(3 / 7)
    found = aggregates({"RLLA-v0": tools, "APIBank-v0": bank})
    assert found == {"overall": pytest.approx((0.5 + (0.5 + 1 + 0.25) / 3) / 2)}


# ---- agents ----


def dojo(user, attack=None, utility=1.0, success=0.0, valid=1.0):
    task = f"banking:user_task_{user}:" + ("clean" if attack is None else f"injection_task_{attack}:tool_knowledge")
    metrics = {"format_valid": valid} | ({} if attack is None else {"attack_success": success, "payload_seen": 1.0})
    return sample("AgentDojo-v0", task, {"utility": utility, "security": 1 - success}, metrics=metrics)


def test_joint_accuracy_by_hand():
    samples = [
        dojo(0, utility=1.0),
        dojo(1, utility=0.0),
        dojo(0, 0, utility=1.0, success=0.0),  # (1 - 0)(1 + 1)/2 = 1
        dojo(0, 1, utility=1.0, success=1.0),  # 0
        dojo(1, 0, utility=1.0, success=0.0),  # (0 + 1)/2
        dojo(1, 1, utility=0.0, success=1.0, valid=0.0),  # invalid: no utility, no success: (0 + 0)/2
    ]
    found = measured("AgentDojo-v0", samples).summary
    assert found["clean_utility"] == 0.5
    assert found["utility_under_attack"] == 0.75
    assert found["attack_success_rate"] == 0.25
    assert found["joint_accuracy"] == pytest.approx(1.5 / 4)
    assert found["banking/joint_accuracy"] == found["tool_knowledge/joint_accuracy"] == found["joint_accuracy"]
    values = BENCHMARKS["AgentDojo-v0"].values([one.info() for one in samples])
    assert [value.number for value in values["joint_accuracy"]] == [1.0, 0.0, 0.5, 0.0]
    assert {value.cluster for value in values["joint_accuracy"]} == {"banking:user_task_0", "banking:user_task_1"}


def test_without_a_partner_joint_accuracy_is_left_out_and_said_to_be():
    one = measured("AgentDojo-v0", [dojo(0), dojo(1, 0)])
    assert "joint_accuracy" not in one.summary
    assert (one.summary["clean_utility"], one.summary["utility_under_attack"]) == (1.0, 1.0)
    assert any("Joint Accuracy is left out" in note for note in one.notes)


def asb(agent, clean, utility, success=0.0):
    task = f"{agent}:0:clean" if clean else f"{agent}:0:Tool"
    return sample(
        "ASB-v0",
        task,
        {"utility": utility, "security": 1 - success, "plan": 1.0},
        metrics={"attack_success": success, "planned": 1.0, "payload_seen": 1.0},
    )


def test_nrp_by_hand():
    samples = [asb("a", True, 1.0), asb("b", True, 1.0), asb("a", False, 0.0, 1.0), asb("b", False, 1.0, 0.0)]
    found = measured("ASB-v0", samples).summary
    # c(1 - a): 1·0 and 1·1. Joint: 0, and (1 + 1)/2.
    assert (found["nrp"], found["joint_accuracy"], found["attack_success_rate"]) == (0.5, 0.5, 0.5)


def injec(task, first, second="none"):
    metrics = {"data_stealing": float(second != "none")}
    for rules in ("official", "relaxed"):
        metrics |= {f"{rules}_stage_1_valid": float(first is not None), f"{rules}_stage_1_success": float(first or 0)}
        if second not in ("none", "not reached"):
            metrics |= {f"{rules}_stage_2_valid": float(second is not None)}
            metrics |= {f"{rules}_stage_2_success": float(second or 0)}
    return sample("InjecAgent-v0", task, {"security": 1.0}, metrics=metrics)


def test_asr_by_part_by_hand():
    samples = [
        injec("dh:0:0", 1),
        injec("dh:0:1", 0),
        injec("dh:1:0", None),
        injec("ds:0:0", 1, 1),
        injec("ds:0:1", 1, 0),
        injec("ds:1:0", 0, "not reached"),
        injec("ds:1:1", 1, None),
    ]
    found = measured("InjecAgent-v0", samples).summary
    expected = {
        "asr_valid_direct_harm": 1 / 2,
        "asr_all_direct_harm": 1 / 3,
        "asr_valid_s1": 3 / 4,
        "asr_all_s1": 3 / 4,
        "asr_valid_s2": 1 / 2,
        "asr_all_s2": 1 / 3,
        "asr_valid_data_stealing": 1 / 3,
        "asr_all_data_stealing": 1 / 4,
        "asr_valid_total": 2 / 5,
        "asr_all_total": 2 / 7,
        "valid_rate": 5 / 7,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["relaxed/asr_valid_total"] == pytest.approx(2 / 5)


# ---- what a comparison takes for the values of a measure is what the summary is the mean of ----


CASES = {
    "RLLA-v0": [rlla("a", 1.0), rlla("b", 0.0, names=0.5), rlla("c", 1.0, form=0.0)],
    "APIBank-v0": [apibank("a", 1, 1.0), apibank("b", 1, 0.0), apibank("c", 2, 1.0), apibank("d", 3, 0.0)],
    "AgentDojo-v0": [dojo(0), dojo(1, utility=0.0), dojo(0, 0, 0.0, 1.0), dojo(1, 0), dojo(1, 1, 1.0, 1.0)],
    "ASB-v0": [asb("a", True, 1.0), asb("b", True, 0.0), asb("a", False, 1.0, 1.0), asb("b", False, 1.0, 0.0)],
    "InjecAgent-v0": [
        injec("dh:0:0", 1),
        injec("dh:1:0", None),
        injec("ds:0:0", 1, 1),
        injec("ds:1:0", 0, "not reached"),
    ],
    "HumanEval-v0": programs("HumanEval-v0", ["1", "0", "1"]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_have_the_summary_as_their_mean(name):
    summary = measured(name, CASES[name]).summary
    values = BENCHMARKS[name].values([one.info() for one in CASES[name]])
    assert values
    for measure, some in values.items():
        if some:
            assert np.mean([value.number for value in some]) == pytest.approx(summary[measure]), measure
    assert set(BENCHMARKS[name].lower_is_better) & set(values) == {m for m in values if m.startswith(("asr", "attack"))}


def test_samples_come_back_from_json_as_they_were():
    odd = sample("e", "t", {"a": 0.1, "b": math.nan}, metrics={"m": 2.0})
    (back,) = [read_sample(odd.row())]
    assert back.components["a"] == 0.1
    assert math.isnan(back.components["b"])
    assert not back.scored
    for broken in ({}, [], None, {**odd.row(), "texts": [1]}, {**odd.row(), "components": {"a": "1"}}):
        with pytest.raises(ValueError, match="no sample"):
            read_sample(broken)


# ---- intervals and tests against scipy ----


def test_the_sign_test_is_scipy_s():
    for better, worse in ((0, 0), (1, 0), (5, 5), (9, 2), (3, 14), (40, 21)):
        expected = scipy.stats.binomtest(better, better + worse).pvalue if better + worse else 1.0
        assert sign_test(better, worse) == pytest.approx(expected)


def test_sign_flips_are_scipy_s_permutation_test():
    random = np.random.default_rng(1)
    for size in (5, 9, 12):
        values = random.normal(0.4, 1, size)
        exact = scipy.stats.permutation_test(
            (values,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=False
        )
        assert sign_flip(clustered(values, list(map(str, range(size))))) == pytest.approx(exact.pvalue)
    values = random.normal(0.25, 1, 60)
    drawn = scipy.stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=20_000, rng=random)
    assert sign_flip(clustered(values, list(map(str, range(60))))) == pytest.approx(drawn.pvalue, abs=0.012)


def test_the_bootstrap_is_scipy_s():
    values = np.random.default_rng(2).exponential(1, 40)
    expected = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(3)
    ).confidence_interval
    found = interval(clustered(values, list(map(str, range(40)))))
    assert found == pytest.approx((expected.low, expected.high), abs=0.03)


def test_the_bootstrap_draws_whole_clusters():
    # Ten copies of each of 12 values say no more than the 12.
    values = np.random.default_rng(4).normal(0, 1, 12)
    names = list(map(str, range(12)))
    alone = interval(clustered(values, names))
    assert interval(clustered(np.repeat(values, 10), np.repeat(names, 10))) == pytest.approx(alone)
    assert all(map(math.isnan, interval(clustered([1.0, 1.0], ["a", "b"]))))
    assert all(map(math.isnan, interval(clustered([1.0, 2.0], ["a", "a"]))))
    assert all(map(math.isnan, interval(clustered([], []))))


# ---- comparison ----


def test_a_comparison_of_passes_is_mcnemar_s_on_the_tasks_that_both_have():
    first, second = "1100010110x", "1011110111111"
    one = measured("HumanEval-v0", programs("HumanEval-v0", first))
    other = measured("HumanEval-v0", programs("HumanEval-v0", second))
    found = {d.measure: d for d in compared(result(one), result(other))}["pass_at_1"]
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if "x" not in (a, b)]
    up, down = sum(pair == ("0", "1") for pair in pairs), sum(pair == ("1", "0") for pair in pairs)
    assert (found.tasks, found.better, found.worse, found.test) == (10, up, down, "McNemar")
    assert found.p == pytest.approx(scipy.stats.binomtest(up, up + down).pvalue)
    assert found.difference == pytest.approx((up - down) / 10)
    assert found.low <= found.difference <= found.high


def test_a_comparison_of_agents_takes_the_cases_of_a_user_task_together():
    first = [dojo(user) for user in range(6)] + [dojo(u, i, float(u < 3)) for u in range(6) for i in range(4)]
    second = [dojo(user) for user in range(6)] + [dojo(u, i, float(u < 5)) for u in range(6) for i in range(4)]
    one, other = measured("AgentDojo-v0", first), measured("AgentDojo-v0", second)
    found = {d.measure: d for d in compared(result(one), result(other))}["utility_under_attack"]
    assert (found.tasks, found.better, found.worse, found.test) == (24, 8, 0, "sign flip")
    # Eight cases, but two user tasks: of the four ways to flip their signs two are as far from 0.
    assert found.p == pytest.approx(0.5)


def test_equal_results_do_not_differ():
    one = measured("RLLA-v0", CASES["RLLA-v0"])
    for difference in compared(result(one), result(one)):
        assert (difference.difference, difference.p) == (0.0, 1.0)


def test_results_without_a_common_task_are_refused():
    one, other = measured("RLLA-v0", [rlla("a", 1.0)]), measured("MBPP-v0", programs("MBPP-v0", ["1"]))
    with pytest.raises(UsageError, match="no scored task in common: the first is on RLLA-v0, the second on MBPP-v0"):
        compared(result(one), result(other))
