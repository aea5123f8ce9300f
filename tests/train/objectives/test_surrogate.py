import math

import pytest
import torch

from corrgrpo_train.objectives import clipped_surrogate


def loss(logprob, old, advantage, **clips):
    x = torch.tensor([logprob], dtype=torch.float64, requires_grad=True)
    result = clipped_surrogate(x, torch.tensor([old], dtype=torch.float64), torch.tensor([advantage]), **clips)
    result.losses.sum().backward()
    return result.losses.item(), x.grad.item(), bool(result.clipped)


def test_at_ratio_one_the_gradient_is_minus_the_advantage():
    for advantage in (-2.0, 0.5, 3.0):
        assert loss(-1.3, -1.3, advantage) == (-advantage, -advantage, False)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "clipped"),
    [
        (1.1, 2.0, -1.1 * 2.0, False),
        (1.5, 2.0, -1.28 * 2.0, True),  # better than it was: no reason to go further
        (0.5, 2.0, -0.5 * 2.0, False),  # worse than it was: must come back
        (0.5, -2.0, 0.8 * 2.0, True),
        (1.5, -2.0, 1.5 * 2.0, False),
    ],
)
def test_which_branch_counts(ratio, advantage, expected, clipped):
    value, gradient, was_clipped = loss(math.log(ratio) - 1, -1.0, advantage, clip_low=0.2, clip_high=0.28)
    assert value == pytest.approx(expected)
    assert was_clipped == clipped
    # d/dlogp of −ratio·A is −ratio·A; a clipped token has none.
    assert gradient == pytest.approx(0.0 if clipped else expected)


def test_gradient_by_finite_differences():
    for ratio in (0.6, 0.9, 1.05, 1.6):
        for advantage in (-1.0, 1.0):
            point, step = math.log(ratio), 1e-6
            slope = (loss(point + step, 0.0, advantage)[0] - loss(point - step, 0.0, advantage)[0]) / (2 * step)
            assert loss(point, 0.0, advantage)[1] == pytest.approx(slope, abs=1e-6)


def test_extreme_ratios_stay_finite():
    for logprob, old in [(-1e4, -1.0), (-1.0, -1e4)]:
        for advantage in (-1.0, 1.0):
            assert all(map(math.isfinite, loss(logprob, old, advantage)[:2]))
