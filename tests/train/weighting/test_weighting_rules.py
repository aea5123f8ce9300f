"""The rules against closed forms and slow calculations."""

import itertools
import json
import math
import random

import pytest

from corrgrpo_train.weighting import WEIGHTINGS, Rollout, make_rule, register
from corrgrpo_train.weighting.gradient import updated_log_shares
from corrgrpo_train.weighting.hypervolume import factor_of_gain, hypervolume
from corrgrpo_train.weighting.lagrangian import updated_log_multiplier
from corrgrpo_train.weighting.rule import Rule
from corrgrpo_train.weighting.schedule import interpolated

BASE = {"a": 1.0, "b": 0.5, "c": 0.0, "d": -2.0}


def rollout(components=None, products=None, base=BASE, learning_rate=1e-6):
    return Rollout(base, components or {}, learning_rate, lambda layers: products or {})


def test_fixed():
    rule = make_rule("fixed", {})
    assert rule.weights(rule.start(), BASE, 7) == BASE


# ---- schedules -------------------------------------------------------------------------------------------


def test_linear():
    rule = make_rule("linear", {"to": {"a": 0.0, "c": 4.0}, "end": 5})
    by_step = {step: rule.weights({}, BASE, step) for step in (0, 1, 2, 3, 5, 9)}
    assert [by_step[step]["a"] for step in by_step] == [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]
    assert [by_step[step]["c"] for step in by_step] == [0.0, 0.0, 1.0, 2.0, 4.0, 4.0]
    assert all(weights["b"] == 0.5 and weights["d"] == -2.0 for weights in by_step.values())
    late = make_rule("linear", {"to": {"a": 3.0}, "start_step": 10, "end": 12})
    assert [late.weights({}, BASE, step)["a"] for step in (10, 11, 12)] == [1.0, 2.0, 3.0]


def test_piecewise():
    rule = make_rule("piecewise", {"points": {"a": [[2, 1.0], [4, 0.0], [5, 10]], "b": [[1, 7]]}})
    assert [rule.weights({}, BASE, step)["a"] for step in range(1, 8)] == [1.0, 1.0, 0.5, 0.0, 10.0, 10.0, 10.0]
    assert {rule.weights({}, BASE, step)["b"] for step in range(1, 8)} == {7}
    assert rule.weights({}, BASE, 3)["d"] == -2.0


def test_interpolation_between_points():
    assert interpolated([(0, 0.0), (10, 1.0), (20, -1.0)], 2.5) == 0.25
    assert interpolated([(0, 0.0), (10, 1.0), (20, -1.0)], 15) == 0.0


# ---- lagrangian ------------------------------------------------------------------------------------------


def test_the_lagrangian_begins_with_multipliers_of_one():
    rule = make_rule("lagrangian", {"at_least": {"b": 0.9}, "at_most": {"c": 0.1}})
    weights = rule.weights(rule.start(), BASE, 1)
    # (R + λ_b b − λ_c c) / (1 + λ_b + λ_c), R the unconstrained part.
    assert weights == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": -1 / 3, "d": -2 / 3})


def test_multipliers_follow_the_published_rule():
    """log λ ← log λ + α λ (C̄ − d), by hand over three rollouts with a window of three episodes."""
    rule = make_rule("lagrangian", {"at_most": {"c": 0.25}, "learning_rate": 0.5, "window": 3, "start_at": 2.0})
    state, multiplier, seen = rule.start(), 2.0, []
    for values in ([1.0, 0.0], [math.nan, 1.0], [0.0, 0.0, 0.0, 0.0]):
        state = rule.after_rollout(state, rollout({"c": values}))
        seen = [*seen, *(v for v in values if v == v)][-3:]
        multiplier *= math.exp(0.5 * multiplier * (sum(seen) / len(seen) - 0.25))
        assert rule.measures(state)["multiplier/c"] == pytest.approx(multiplier)
    assert rule.measures(state)["violation/c"] == pytest.approx(-0.25)
    assert state["recent"] == {"c": [0.0, 0.0, 0.0]}


def test_a_broken_constraint_gains_weight_until_the_largest_multiplier():
    rule = make_rule("lagrangian", {"at_least": {"b": 0.9}})
    state = rule.start()
    shares = []
    for _ in range(400):
        state = rule.after_rollout(state, rollout({"b": [0.0] * 8}))
        weights = rule.weights(state, BASE, 1)
        shares.append(weights["b"] / weights["a"])
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(5.0)
    kept = rule.after_rollout(rule.start(), rollout({"b": [1.0] * 8}))
    assert rule.weights(kept, BASE, 1)["b"] < 0.5


def test_the_update_is_clamped_above():
    assert updated_log_multiplier(0.0, 100.0, learning_rate=0.1, largest=5.0) == math.log(5)
    assert updated_log_multiplier(0.0, -1.0, learning_rate=0.1, largest=5.0) == pytest.approx(-0.1)


def test_a_rollout_without_values_moves_nothing():
    rule = make_rule("lagrangian", {"at_least": {"b": 0.9}})
    state = rule.after_rollout(rule.start(), rollout({"b": [math.nan]}))
    assert rule.measures(state) == {"multiplier/b": 1.0}


# ---- hypervolume -----------------------------------------------------------------------------------------


def by_inclusion_and_exclusion(points, reference):
    """Σ over non-empty subsets, with alternating signs, of the box that all of a subset dominate."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for subset in itertools.combinations(points, size):
            sides = [max(0.0, min(p[k] for p in subset) - r) for k, r in enumerate(reference)]
            total += (-1) ** (size + 1) * math.prod(sides)
    return total


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 7])
def test_hypervolume(objectives):
    rng = random.Random(objectives)
    for _ in range(40):
        reference = [rng.uniform(-1, 0) for _ in range(objectives)]
        points = [[rng.choice([rng.uniform(-1, 1), 0.5]) for _ in range(objectives)] for _ in range(rng.randint(0, 7))]
        expected = by_inclusion_and_exclusion(points, reference)
        assert hypervolume(points, reference) == pytest.approx(expected, abs=1e-12)


def test_hypervolume_of_a_staircase():
    # Squares under (1, 3), (2, 2), (3, 1): 3 + 2 + 1; a dominated point and a copy add nothing.
    assert hypervolume([(1, 3), (2, 2), (3, 1), (1, 1), (2, 2)], (0, 0)) == 6
    assert hypervolume([(5, 0)], (0, 0)) == 0
    assert hypervolume([], (0, 0)) == 0


def test_hypervolume_weighting_over_a_run():
    rule = make_rule("hypervolume", {})
    base = {"a": 2.0, "b": -1.0, "c": 0.0}
    state = rule.start()
    assert rule.weights(state, base, 1) == base
    state = rule.after_validation(state, base, {"a": 9.0, "b": 9.0, "c": 0.0}, 0)
    # A second validation before training, after the warm start, is the reference instead.
    state = rule.after_validation(state, base, {"a": 0.0, "b": 1.0, "c": 0.0}, 0)
    assert rule.weights(state, base, 1) == base
    state = rule.after_validation(state, base, {"a": 0.5, "b": 0.4, "c": -5.0}, 1)  # box 0.5 × 0.6
    factor = 0.5 + 1.5 * math.tanh(0.3)
    assert rule.weights(state, base, 2) == pytest.approx({"a": 2 * factor, "b": -factor, "c": 0.0})
    worse = rule.after_validation(state, base, {"a": 0.4, "b": 0.5, "c": 0.0}, 2)
    assert rule.weights(worse, base, 3) == pytest.approx({"a": 1.0, "b": -0.5, "c": 0.0})
    assert worse["front"] == state["front"]
    more = rule.after_validation(worse, base, {"a": 1.0, "b": 0.8, "c": 0.0}, 3)  # adds 0.5 × 0.2
    assert rule.measures(more) == pytest.approx({"factor": factor_of_gain(0.1), "gain": 0.1, "volume": 0.4})
    assert rule.after_validation(more, base, {"a": 1.0, "b": math.nan}, 4) == more


def test_the_factor_lies_between_a_half_and_two():
    assert factor_of_gain(0.0) == 0.5
    assert factor_of_gain(100.0) == 2.0


# ---- gradient --------------------------------------------------------------------------------------------


def test_gradient_weighting_by_hand():
    """w ← softmax(log w + η s / μ): from equal weights, exp(η s_i / μ) shared out."""
    base = {"a": 1.0, "b": 1.0, "c": 0.0, "d": -1.0}
    rule = make_rule("gradient", {})
    assert rule.weights(rule.start(), base, 1) == base
    products = {"a": 2.0, "b": 0.0, "d": -1.0}
    state = rule.after_rollout(rule.start(), rollout(products=products, base=base, learning_rate=1e-6))
    powers = {name: math.exp(0.1 * s) for name, s in products.items()}
    expected = {name: 3 * power / sum(powers.values()) for name, power in powers.items()}
    assert rule.weights(state, base, 2) == pytest.approx(
        {"a": expected["a"], "b": expected["b"], "c": 0.0, "d": -expected["d"]}
    )
    again = rule.after_rollout(state, rollout(products=products, base=base, learning_rate=2e-6))
    powers = {name: math.exp(0.3 * s) for name, s in products.items()}
    found = rule.weights(again, base, 3)
    assert found["a"] == pytest.approx(3 * powers["a"] / sum(powers.values()))
    assert sum(map(abs, found.values())) == pytest.approx(3.0)


def test_shares_begin_as_the_base_weights():
    base = {"a": 0.6, "b": 0.2}
    rule = make_rule("gradient", {})
    state = rule.after_rollout(rule.start(), rollout(products={"a": 5.0, "b": 5.0}, base=base))
    assert rule.weights(state, base, 2) == pytest.approx(base)


def test_a_share_never_vanishes_for_good():
    shares = updated_log_shares({"a": 0.0, "b": -1.0}, {"a": 1e6, "b": -1e6}, 1.0)
    assert shares == {"a": 0.0, "b": -30.0}


# ---- options and registration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("lagrange", {}, "Did you mean 'lagrangian'?"),
        ("fixed", {"to": 1}, "weighting 'fixed': option 'to' is unknown"),
        ("lagrangian", {"at_lest": {}}, "Did you mean 'at_least'?"),
        ("lagrangian", {}, "needs a threshold: give at_least or at_most"),
        ("lagrangian", {"at_least": 3}, "option 'at_least' must be a mapping of component names to finite numbers"),
        ("lagrangian", {"at_least": {"a": "x"}}, "option 'at_least' must be a mapping"),
        ("lagrangian", {"at_least": {"a": 1}, "at_most": {"a": 2}}, "component 'a' has two thresholds"),
        ("lagrangian", {"at_least": {"a": 1}, "window": 0}, "option 'window' must be a whole number"),
        ("lagrangian", {"at_least": {"a": 1}, "learning_rate": 0}, "option 'learning_rate' must be a finite number"),
        ("lagrangian", {"at_least": {"a": 1}, "start_at": 6}, "must not be above 'largest'"),
        ("linear", {"to": {"a": 1}}, "weighting 'linear' needs the option 'end'"),
        ("linear", {"to": {"a": 1}, "end": 1}, "must be above 'start_step'"),
        ("linear", {"to": {"a": 1}, "end": "5"}, "option 'end' must be a step"),
        ("piecewise", {"points": {"a": [[2, 1], [2, 3]]}}, "option 'points.a' must be pairs"),
        ("piecewise", {"points": {"a": 5}}, "option 'points.a' must be pairs"),
        ("piecewise", {"points": []}, "option 'points' must be a mapping"),
        ("gradient", {"mu": -1}, "option 'mu' must be a finite number above 0"),
        ("gradient", {"layers": [3, 1]}, r"option 'layers' must be \[first, last\]"),
    ],
)
def test_wrong_options_are_one_line(name, options, words):
    with pytest.raises(ValueError, match=words) as error:
        make_rule(name, options)
    assert "\n" not in str(error.value)


OPTIONS = {
    "lagrangian": {"at_least": {"b": 0.9}},
    "linear": {"to": {"a": 0.0}, "end": 10},
    "piecewise": {"points": {"a": [[1, 0.5], [10, 3]]}},
}


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_a_state_survives_json(name):
    """Bit for bit: a resumed run has the same weights."""
    rule, rng = make_rule(name, OPTIONS.get(name, {})), random.Random(0)
    state = rule.start()
    keys = set(state)
    for step in range(1, 6):
        values = {component: [rng.random() for _ in range(4)] for component in BASE}
        products = {component: rng.gauss(0, 1) for component, weight in BASE.items() if weight}
        state = rule.after_rollout(state, rollout(values, products))
        state = rule.after_validation(state, BASE, {k: sum(v) / 4 for k, v in values.items()}, step)
        copy = json.loads(json.dumps(state))
        assert copy == state
        assert set(copy) == keys
        assert rule.weights(copy, BASE, step) == rule.weights(state, BASE, step)


def test_a_rule_of_ones_own():
    @register("halved_test_only")
    class Halved(Rule):
        def __init__(self, *, times=1):
            self.times = times

        def weights(self, state, base, step):
            return {name: weight / 2**self.times for name, weight in base.items()}

    try:
        assert make_rule("halved_test_only", {"times": 2}).weights({}, {"a": 1.0}, 1) == {"a": 0.25}
        with pytest.raises(ValueError, match="already registered"):
            register("halved_test_only")
    finally:
        del WEIGHTINGS["halved_test_only"]


def test_a_rule_without_weights_is_refused_when_it_is_registered():
    with pytest.raises(ValueError, match="weighting 'empty_test_only' lacks weights"):

        @register("empty_test_only")
        class Empty(Rule):
            pass

    assert "empty_test_only" not in WEIGHTINGS
