"""Intervals, sign-flip tests and Holm's correction against scipy and against slow computations."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_train.benchmark.statistics import holm, mean_interval, sign_flip_p

stats = pytest.importorskip("scipy.stats")

SKEWED = [0.1, 0.3, 0.2, 2.5, 0.7, 0.4, 1.1, 0.05, 0.6, 0.9]


@pytest.mark.parametrize("values", [SKEWED, [math.sin(k) for k in range(32)], [1.0, 2.0, 3.0, 4.0, 5.0, 60.0]])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_interval_is_scipys_bootstrap_at_the_widened_level(values, confidence):
    count = len(values)
    quantile = stats.t.ppf(0.5 + confidence / 2, count - 1) * math.sqrt(count / (count - 1))
    widened = 1 - 2 * stats.norm.cdf(-quantile)
    found = mean_interval(values, confidence, resamples=200_000)
    expected = stats.bootstrap(
        (np.array(values),), np.mean, confidence_level=widened, n_resamples=200_000, method="percentile", rng=7
    ).confidence_interval
    spread = np.std(values) / math.sqrt(count)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.low == pytest.approx(expected.low, abs=0.05 * spread)
    assert found.high == pytest.approx(expected.high, abs=0.05 * spread)
    assert found.count == count


def test_for_normal_values_the_interval_is_about_as_wide_as_students():
    values = stats.norm.ppf((np.arange(24) + 0.5) / 24)
    found, half = mean_interval(values), stats.t.ppf(0.975, 23) * values.std(ddof=1) / math.sqrt(24)
    assert found.high == pytest.approx(half, rel=0.04)
    assert found.low == pytest.approx(-half, rel=0.04)


def test_below_six_values_the_interval_is_students():
    values = [1.0, 2.0, 4.0]
    low, high = stats.t.interval(0.95, 2, loc=7 / 3, scale=stats.sem(values))
    found = mean_interval(values)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_single_value_has_no_interval():
    found = mean_interval([3.0])
    assert found.to_json() == {"mean": 3.0, "low": None, "high": None, "count": 1}


def test_interval_holds_the_true_mean_as_often_as_it_says():
    draws = np.random.default_rng(5).normal(size=(600, 8))
    held = [one.low <= 0 <= one.high for one in (mean_interval(row, resamples=1000) for row in draws)]
    assert 0.92 < np.mean(held) < 0.98


def slow_sign_flip(differences):
    reached = [
        abs(math.fsum(sign * d for sign, d in zip(signs, differences, strict=True)))
        >= abs(math.fsum(differences)) - 1e-9
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(reached) / len(reached)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_sign_flips_by_going_through_all(differences):
    assert sign_flip_p(differences) == pytest.approx(slow_sign_flip(differences))


def test_sign_flips_as_scipys_permutation_test_of_pairs():
    first, second = np.array(SKEWED), np.array([0.2, 0.1, 0.3, 1.5, 0.2, 0.3, 0.6, 0.1, 0.2, 0.8])
    expected = stats.permutation_test(
        (first, second), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=10_000
    ).pvalue
    assert sign_flip_p(first - second) == pytest.approx(expected)


def test_sign_flips_of_many_pairs_are_near_the_t_test():
    differences = np.random.default_rng(2).normal(0.3, 1.0, 40)
    assert sign_flip_p(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.01)
    assert sign_flip_p(np.ones(40)) == pytest.approx(1e-5)


def closed_testing(p_values):
    """Holm's procedure is closed testing with Bonferroni: a hypothesis falls if every set that holds it does."""
    count = len(p_values)
    sets = [s for size in range(1, count + 1) for s in itertools.combinations(range(count), size)]
    return [max(min(1.0, len(s) * min(p_values[k] for k in s)) for s in sets if place in s) for place in range(count)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_is_closed_testing_with_bonferroni(p_values):
    assert holm(p_values) == pytest.approx(closed_testing(p_values))


def test_holm_of_nothing():
    assert holm([]) == []
