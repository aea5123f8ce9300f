"""What the reconstruction of RDPO promises, beside its agreement with the slow reference."""

import math

import pytest
import torch

from corrgrpo_train.advantages import ESTIMATORS, estimate

torch.set_num_threads(1)


def advantages(rows, weights=None, **options):
    weights = [1.0] * len(rows[0]) if weights is None else weights
    return estimate("rdpo", rows, [0] * len(rows), weights, **options).advantages.double()


def test_one_binary_reward_is_its_z_score_over_the_ridge():
    # Two distinct values: ranks and magnitudes have the same z-scores, and the variance is 1.
    rows = [[1.0], [0.0], [0.0], [0.0]]
    expected = torch.tensor([1.5, -0.5, -0.5, -0.5], dtype=torch.float64) / math.sqrt(1 + 0.01)
    torch.testing.assert_close(advantages(rows), expected, rtol=1e-6, atol=0)


def test_copies_count_as_their_root():
    one = [[0.0], [1.0], [2.0], [5.0]]
    copies = [row * 3 for row in one]
    torch.testing.assert_close(
        advantages(copies, ridge=0.0), math.sqrt(3) * advantages(one, ridge=0.0), rtol=1e-5, atol=1e-6
    )


def test_opposed_rewards_cancel_only_at_equal_weight():
    rows = [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    assert advantages(rows).abs().max() < 1e-6
    assert advantages(rows, [1.0, 0.5]).abs().max() > 0.1


def test_whitened_rewards_are_uncorrelated():
    """Without a ridge, and with more rows than rewards, v has the identity as its covariance."""
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[:, 1] += 2 * rows[:, 0]
    # A weight of zero takes a component out, so tiny weights stand for it.
    tiny = torch.full((3, 3), 1e-12, dtype=torch.float64) + torch.eye(3, dtype=torch.float64)
    columns = torch.stack([advantages(rows, w, ridge=0.0) for w in tiny], dim=1)
    torch.testing.assert_close(torch.cov(columns.T), torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-5)


def test_ranks_bound_an_extreme_reward():
    rows = [[0.0], [1.0], [2.0], [3.0], [1e6]]
    near = [[0.0], [1.0], [2.0], [3.0], [4.0]]
    torch.testing.assert_close(advantages(rows, magnitude=0.0), advantages(near, magnitude=0.0))
    assert advantages(rows, magnitude=1.0)[-1] > advantages(rows)[-1] > advantages(rows, magnitude=0.0)[-1]


@pytest.mark.parametrize(("option", "value"), [("magnitude", 1.5), ("magnitude", -1), ("ridge", -0.1)])
def test_options_are_checked(option, value):
    with pytest.raises(ValueError, match=f"option '{option}' must be"):
        advantages([[0.0], [1.0]], **{option: value})


def test_the_docstring_says_what_it_is():
    assert "our reconstruction" in ESTIMATORS["rdpo"].summary
