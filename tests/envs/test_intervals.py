"""Intervals of means: closed forms, clusters, means of parts, empty ones."""

import pytest

from corrgrpo_envs.intervals import Estimate, estimate, flat, macro, wilson


@pytest.mark.parametrize(("successes", "count"), [(0, 10), (3, 10), (10, 10), (81, 263)])
def test_wilson_solves_its_equation(successes, count):
    """The ends are the p with (mean - p)² = z² p(1 - p)/n."""
    one = wilson(successes / count, count, count)
    z = 1.959963984540054
    for end in (one.low, one.high):
        assert (one.value - end) ** 2 == pytest.approx(z * z * end * (1 - end) / count, abs=1e-12)
    assert 0 <= one.low <= one.value <= one.high <= 1


def test_a_published_value():
    # Newcombe (1998), table I: 81 of 263 has the score interval 0.2553 to 0.3662.
    one = wilson(81 / 263, 263, 263)
    assert (round(one.low, 4), round(one.high, 4)) == (0.2553, 0.3662)


def test_equal_values_within_clusters_count_once():
    values, clusters = [1.0] * 5 + [0.0] * 5 + [1.0] * 5 + [0.0] * 5, [name for name in "abcd" for _ in range(5)]
    together = estimate(values, clusters)
    # var = 4/3 · 4 · 2.5² / 20² = 1/12, so 0.25 · 12 = 3 independent episodes
    assert (together.low, together.high) == pytest.approx((wilson(0.5, 3, 20).low, wilson(0.5, 3, 20).high))
    assert together.count == 20
    assert estimate([1.0] * 20, clusters) == wilson(1.0, 4, 20)


def test_macro_averages():
    parts = [wilson(0.5, 10, 10), wilson(1.0, 40, 40)]
    one = macro(parts)
    assert one == wilson(0.75, 4 / (1 / 10 + 1 / 40), 50)
    assert macro(parts[:1]) == wilson(0.5, 10, 10)
    assert macro([*parts, estimate([], [])]) == one
    assert macro([]).count == 0


def test_flat():
    found = flat({"a": Estimate(0.5, 0.25, 0.75, 8), "b": estimate([], [])})
    assert found == {
        "a": 0.5,
        "a_low": 0.25,
        "a_high": 0.75,
        "a_count": 8.0,
        "b": None,
        "b_low": None,
        "b_high": None,
        "b_count": 0.0,
    }
