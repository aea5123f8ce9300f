"""Metrics of programs: Pass@k by enumeration, intervals, the published averages, efficiency over answers."""

import itertools
import math

import pytest

from corrgrpo_envs.code.metrics import code_average, efficiency, pass_at_k, summary
from corrgrpo_envs.code.problems import CodeProblem

NAN = math.nan


def episode(task_id, correctness, runtime=None, **components):
    runtime = correctness if runtime is None else runtime
    return {"task_id": task_id, "reward_components": {"runtime": runtime, "correctness": correctness, **components}}


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_all_draws(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)


def test_pass_at_k_is_the_published_product():
    for n, c, k in [(200, 3, 100), (200, 150, 10), (10, 9, 2), (1000, 1, 1)]:
        product = math.prod(1 - k / i for i in range(n - c + 1, n + 1))
        assert pass_at_k(n, c, k) == pytest.approx(1.0 if n - c < k else 1 - product, abs=1e-12)


def test_pass_at_k_refuses_what_cannot_be():
    for n, c, k in [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0), (0, 0, 1)]:
        with pytest.raises(ValueError, match=r"must be in \d\.\."):
            pass_at_k(n, c, k)


def test_summary_averages_over_tasks():
    episodes = [episode("a", 1.0), episode("a", 0.0, 1.0), episode("a", 0.0), episode("b", 0.0), episode("b", 0.0, 1.0)]
    found = summary(episodes)
    assert found["pass_at_1"] == pytest.approx((1 / 3 + 0) / 2)
    assert found["pass_at_1_count"] == 2.0
    assert (found["executable"], found["executable_count"]) == (pytest.approx(3 / 5), 5.0)
    assert found["pass_at_1_low"] < found["pass_at_1"] < found["pass_at_1_high"]
    assert summary(episodes, ks=(1, 2))["pass_at_2"] == pytest.approx((2 / 3 + 0) / 2)
    assert (found["syntax"], found["syntax_count"], found["unscored_count"]) == (None, 0.0, 0.0)


def test_intervals_with_one_sample_are_wilson_s():
    found = summary([episode(str(number), float(number < 8)) for number in range(10)])
    # Wilson's score interval of 8 of 10 at 95 %, e.g. Brown, Cai and DasGupta (2001).
    assert (found["pass_at_1_low"], found["pass_at_1_high"]) == (
        pytest.approx(0.4902, abs=5e-5),
        pytest.approx(0.9433, abs=5e-5),
    )


def test_failures_of_the_sandbox_count_nowhere():
    episodes = [episode("a", NAN, NAN), episode("a", 1.0), episode("b", NAN, NAN), episode("b", NAN, NAN)]
    found = summary(episodes, ks=(1, 2))
    assert (found["pass_at_1"], found["pass_at_1_count"], found["unscored_count"]) == (1.0, 1.0, 3.0)
    assert (found["pass_at_2"], found["pass_at_2_count"], found["executable"]) == (None, 0.0, 1.0)
    empty = summary([])
    assert (empty["pass_at_1"], empty["pass_at_1_low"], empty["executable"]) == (None, None, None)


def test_wrong_episodes_are_named():
    with pytest.raises(ValueError, match="Pass@3 needs 3 samples a task, and task 'a' has 2"):
        summary([episode("a", 1.0)] * 2, ks=(3,))
    with pytest.raises(ValueError, match="'x' lacks 'reward_components' with 'runtime' and 'correctness'"):
        summary([{"task_id": "x", "reward_components": {"utility": 1.0}}])
    for k in (0, True, 1.5):
        with pytest.raises(ValueError, match="k of Pass@k must be a positive integer"):
            summary([episode("a", 1.0)], ks=(k,))


@pytest.mark.parametrize(
    ("parts", "average"),
    [  # CorrGRPO, table 1: LeetCode, HumanEval, MBPP, LiveCodeBench v6; Avg.
        ((1.75, 54.88, 33.60, 5.14), 23.84),
        ((24.12, 78.66, 78.60, 24.57), 51.49),
        ((12.28, 80.49, 63.80, 16.57), 43.29),
        ((8.77, 68.90, 57.60, 10.29), 36.39),
    ],
)
def test_the_code_average_is_the_paper_s(parts, average):
    assert code_average(*parts) == pytest.approx(average, abs=0.0051)


def solution(body):
    return f"```python\nclass Solution:\n    def total(self, n):\n        {body}\n```"


def test_efficiency_counts_pairs_of_right_programs():
    slow = "class Solution:\n    def total(self, n):\n        return sum(i for i in range(n + 1))\n"
    test = "def check(candidate):\n    assert candidate(200000) == 20000100000\n"
    problem = CodeProblem("Sum 1 to n.", "", "", "import math\n", test, "Solution().total", completion=slow)
    unanswerable = CodeProblem("Sum 1 to n.", "", "", "import math\n", test, "Solution().total")
    fast, wrong = solution("return n * (n + 1) // 2"), solution("return n")
    slower = solution("return sum(i for i in range(n + 1) for _ in range(8)) // 8")
    answers = [(problem, fast), (problem, slower), (problem, wrong), (problem, ""), (unanswerable, fast)]
    found = efficiency(answers, rounds=2)
    assert (found["efficiency"], found["efficiency_count"]) == (0.5, 2.0)
    assert (found["efficiency_cpu"], found["efficiency_cpu_count"]) == (0.5, 2.0)
    nothing = efficiency([(problem, wrong)], rounds=2)
    assert (nothing["efficiency"], nothing["efficiency_low"], nothing["efficiency_count"]) == (None, None, 0.0)
