"""DAPO, CISPO, KL and importance weights against closed forms and finite differences."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corrgrpo_train.objectives import IMPORTANCE_CORRECTIONS, OBJECTIVES, kl_k3, options_of

DOUBLE = {"dtype": torch.float64}


def gradient(function, values):
    point = torch.tensor(values, **DOUBLE, requires_grad=True)
    function(point).sum().backward()
    return point.grad.tolist()


def slope(function, values, step=1e-6):
    """Central differences, one coordinate at a time."""
    return [
        float(function(torch.tensor([v + step], **DOUBLE)) - function(torch.tensor([v - step], **DOUBLE))) / (2 * step)
        for v in values
    ]


def test_dapo_lets_a_ratio_rise_further_than_it_may_fall():
    ratios, advantages = [1.25, 1.27, 1.3, 0.75, 1.3], [1.0, 1.0, 1.0, -1.0, -1.0]
    old = torch.full((5,), -2.0, **DOUBLE)
    found = OBJECTIVES["dapo"](old + torch.tensor(ratios, **DOUBLE).log(), old, torch.tensor(advantages, **DOUBLE))
    assert found.losses.tolist() == pytest.approx([-1.25, -1.27, -1.28, 0.8, 1.3])
    assert found.clipped.tolist() == [False, False, True, True, False]
    assert found.ratios.tolist() == pytest.approx(ratios)


def test_defaults_of_the_papers():
    assert options_of("grpo") == {"clip_low": 0.2, "clip_high": 0.2}
    assert options_of("dapo") == {"clip_low": 0.2, "clip_high": 0.28}
    assert options_of("cispo") == {"cispo_max_ratio": 5.0}


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-5, 0), st.floats(1, 8))
def test_cispo_weighs_the_policy_gradient(log_ratio, advantage, old, bound):
    def loss(logprob):
        found = OBJECTIVES["cispo"](
            logprob, torch.tensor([old], **DOUBLE), torch.tensor([advantage], **DOUBLE), cispo_max_ratio=bound
        )
        assert found.clipped.tolist() == [math.exp(log_ratio) > bound] or abs(math.exp(log_ratio) - bound) < 1e-6
        return found.losses

    weight = min(math.exp(log_ratio), bound)
    value = loss(torch.tensor([old + log_ratio], **DOUBLE)).item()
    assert value == pytest.approx(-weight * advantage * (old + log_ratio), abs=1e-9)
    # The weight has no gradient: a token above the bound, or with a ratio near 0, still has one.
    assert gradient(loss, [old + log_ratio]) == pytest.approx([-weight * advantage], abs=1e-9)


def test_cispo_has_the_gradient_of_the_importance_weighted_loss_below_its_bound():
    """There u · A is its own surrogate: d(u · A) = u · A · d(log π), which finite differences of u · A show."""
    for ratio in (0.3, 0.9, 1.0, 2.0, 4.9):
        for advantage in (-1.5, 0.5):

            def loss(x, a=advantage):
                return OBJECTIVES["cispo"](x, torch.zeros(1, **DOUBLE), torch.tensor([a])).losses

            expected = slope(lambda x, a=advantage: -a * x.exp(), [math.log(ratio)])
            assert gradient(loss, [math.log(ratio)]) == pytest.approx(expected, rel=1e-6)


@given(st.lists(st.floats(-4, 4), min_size=2, max_size=6), st.lists(st.floats(-4, 4), min_size=6, max_size=6))
def test_the_mean_of_k3_is_the_divergence(first, second):
    policy = torch.log_softmax(torch.tensor(first, **DOUBLE), 0)
    reference = torch.log_softmax(torch.tensor(second[: len(first)], **DOUBLE), 0)
    values = kl_k3(policy, reference)
    assert values.min() >= -1e-15
    expected = (policy.exp() * (policy - reference)).sum()
    assert float((policy.exp() * values).sum()) == pytest.approx(float(expected), abs=1e-9)


def test_k3_by_finite_differences():
    points = [-3.0, -0.5, 0.0, 0.4, 2.0]
    found = gradient(lambda x: kl_k3(x, torch.zeros(5, **DOUBLE)), points)
    assert found == pytest.approx(slope(lambda x: kl_k3(x, torch.zeros(1, **DOUBLE)), points), abs=1e-6)
    assert kl_k3(torch.tensor([-1.0]), torch.tensor([-1.0])).item() == 0.0
    assert kl_k3(torch.tensor([-1e4]), torch.tensor([-1.0])).isfinite().all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("none", [1, 1, 1, 1, 1]), ("truncate", [0.5, 1, 1.9, 2, 1]), ("mask", [0.5, 1, 1.9, 0, 1])],
)
def test_importance_corrections(name, expected):
    ratios = torch.tensor([0.5, 1.0, 1.9, 2.5, math.nan], **DOUBLE)
    old = torch.full((5,), -3.0, **DOUBLE, requires_grad=True)
    found = IMPORTANCE_CORRECTIONS[name](old, old.detach() - ratios.log(), importance_cap=2.0)
    assert found.tolist() == pytest.approx(expected)
    assert not found.requires_grad


def test_importance_weights_stay_finite():
    for name in IMPORTANCE_CORRECTIONS:
        found = IMPORTANCE_CORRECTIONS[name](torch.tensor([-1.0, -1e5]), torch.tensor([-1e5, -1.0]))
        assert found.isfinite().all()
        assert found.max() <= 2.0


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_extreme_ratios_stay_finite(objective):
    for logprob, old in [(-1e4, -1.0), (-1.0, -1e4)]:
        for advantage in (-1.0, 1.0):
            point = torch.tensor([logprob], requires_grad=True)
            found = OBJECTIVES[objective](point, torch.tensor([old]), torch.tensor([advantage]))
            found.losses.sum().backward()
            assert found.losses.isfinite().all()
            assert point.grad.isfinite().all()
