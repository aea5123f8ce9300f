"""Where the published form goes wrong: constant decimals taken for live rewards, and opposed rewards."""

import math

import numpy as np
import pytest
import torch

from corrgrpo_train.advantages import estimate

torch.set_num_threads(1)
SIZES = range(3, 17)
THIRDS = (1 / 3, (0.1 + 0.2 + 0.3) / 1.8, (0.3 + 0.2 + 0.1) / 1.8, 1 - 2 / 3, 0.1 + 0.7 / 3)
CONSTANTS = {"0.05": (0.05,), "0.1": (0.1,), "0.3": (0.3,), "0.6": (0.6,), "1/3": (1 / 3,), "thirds": THIRDS}


def constant_column(values, n):
    return [values[i % len(values)] for i in range(n)]


def naive_correlation_sum(rows, weights, dtype):
    """The trap itself: weights first, then every column of variance > 0 counts."""
    weighted = (np.array(rows) * np.array(weights)).astype(dtype)
    centred = weighted - weighted.mean(axis=0)
    covariance = centred.T @ centred / (len(rows) - 1)
    with np.errstate(divide="ignore"):
        inverse = np.where(np.diag(covariance) > 0, 1 / np.sqrt(np.diag(covariance)), 0)
    return (covariance * inverse[:, None] * inverse).sum()


def test_the_third_is_reached_by_different_sums():
    assert len(set(THIRDS)) > 1


@pytest.mark.parametrize("paper_exact", [False, True])
@pytest.mark.parametrize("values", CONSTANTS.values(), ids=CONSTANTS)
@pytest.mark.parametrize("n", SIZES)
def test_constant_components_are_constant(n, values, paper_exact):
    """One live component beside three constant ones: Q = 1, and Dr. GRPO's advantages of the live one."""
    live = [float(i % 3 == 0) for i in range(n)]
    rows = [[a, b, c, d] for a, b, c, d in zip(*[constant_column(values, n)] * 3, live, strict=True)]
    out = estimate("corrgrpo", rows, [0] * n, [0.05, 0.1, -0.3, 0.6], paper_exact=paper_exact)
    assert out.diagnostics["correlation_sum"].item() == pytest.approx(1.0, rel=1e-12)
    assert out.diagnostics["constant_share"].tolist() == [1, 1, 1, 0]
    mean = sum(live) / n
    expected = [0.6 * (value - mean) / math.sqrt(1 + 1e-6) for value in live]
    assert out.advantages.tolist() == pytest.approx(expected, rel=1e-6)


def test_a_variance_test_falls_for_them():
    """The cases above bite: a test of variance > 0 gives Q > 1 in many of them."""
    wrong = 0
    for n in SIZES:
        for values in CONSTANTS.values():
            rows = [[*[constant_column(values, n)[i]] * 3, float(i % 3 == 0)] for i in range(n)]
            wrong += abs(naive_correlation_sum(rows, [0.05, 0.1, 0.3, 0.6], np.float64) - 1) > 0.1
    assert wrong > 30


@pytest.mark.parametrize("n", SIZES)
def test_saturated_code_rewards(n):
    """LeetCode's weights with format, syntax and compile at 1: the other four decide."""
    rng = np.random.default_rng(n)
    live = rng.random((n, 4))
    rows = np.concatenate([np.ones((n, 3)), live], axis=1)
    out = estimate("corrgrpo", rows, [0] * n, [0.05, 0.05, 0.05, 0.25, 0.60, 0.30, 0.20])
    expected = np.corrcoef(live, rowvar=False).sum()
    assert out.diagnostics["correlation_sum"].item() == pytest.approx(expected, rel=1e-9)


def test_the_tolerance_is_relative_to_the_size():
    """A spread of 1e-9 of the size is rounding; 1e-8 of it is a reward."""
    for size in (1e-6, 1.0, 1e6):
        for share, q in ((0.9e-9, 0.0), (1e-8, 1.0)):
            rows = [[size], [size], [size * (1 + share)]]
            found = estimate("corrgrpo", rows, [0] * 3, [1.0]).diagnostics["correlation_sum"].item()
            assert found == pytest.approx(q, abs=1e-6)


OPPOSED = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]


def test_opposed_rewards_explode_in_the_published_form():
    out = estimate("corrgrpo", OPPOSED, [0] * 4, [1.0, 0.6], paper_exact=True)
    assert out.advantages.tolist() == pytest.approx([200, -200, 200, -200], rel=1e-6)
    assert out.diagnostics["share_below_guard"] == 1.0


def test_opposed_rewards_are_bounded_by_the_guard():
    out = estimate("corrgrpo", OPPOSED, [0] * 4, [1.0, 0.6])
    bound = 0.2 / math.sqrt(0.1 + 1e-6)
    assert out.advantages.tolist() == pytest.approx([bound, -bound, bound, -bound], rel=1e-6)
    grpo = estimate("grpo", OPPOSED, [0] * 4, [1.0, 0.6]).advantages
    assert grpo.tolist() == pytest.approx([0.866, -0.866, 0.866, -0.866], abs=5e-4)


@pytest.mark.parametrize("paper_exact", [False, True])
@pytest.mark.parametrize("name", ["grpo", "corrgrpo", "matched", "shuffled"])
@pytest.mark.parametrize("scale", [1.0, 1e8])
@pytest.mark.parametrize("n", SIZES)
def test_opposed_rewards_of_equal_weight_cancel_exactly(n, scale, name, paper_exact):
    """Nothing is left to learn from: no advantage from rounding at any scale."""
    rows = [[scale * value, scale * (1 - value)] for value in (i % 3 / 10 for i in range(n))]
    options = {} if name == "grpo" else {"paper_exact": paper_exact}
    out = estimate(name, rows, [0] * n, [0.3, 0.3], **options)
    assert not out.advantages.any()
    assert out.diagnostics["share_without_signal"] == 1.0


def opposed_groups(n, groups=3000):
    """Two binary rewards, the second the opposite of the first in 85 % of rollouts; weights (1, 0.5)."""
    rng = np.random.default_rng(0)
    first = rng.random((groups, n)) < 0.5
    second = np.where(rng.random((groups, n)) < 0.85, ~first, first)
    rows = np.stack([first, second], axis=-1).reshape(-1, 2).astype(float)
    return rows, np.repeat(np.arange(groups), n)


@pytest.mark.parametrize(("n", "share"), [(4, 0.45), (8, 0.27)])
def test_how_often_opposed_rewards_explode(n, share):
    rows, labels = opposed_groups(n)
    published = estimate("corrgrpo", rows, labels, [1.0, 0.5], paper_exact=True).advantages.abs()
    largest = published.reshape(-1, n).amax(dim=1)
    assert (largest > 10).double().mean().item() == pytest.approx(share, abs=0.04)
    assert 370 < largest.max().item() < 440

    guarded = estimate("corrgrpo", rows, labels, [1.0, 0.5]).advantages.abs()
    assert guarded.max().item() <= 1.5 * math.sqrt(10)
    equal = estimate("corrgrpo", rows, labels, [1.0, 1.0], paper_exact=True).advantages.abs()
    assert equal.max().item() < 10


def test_the_guard_acts_only_below_it():
    """Groups with Q ≥ 0.1 have the published advantages."""
    rows, labels = opposed_groups(8, groups=200)
    guarded = estimate("corrgrpo", rows, labels, [1.0, 0.5])
    published = estimate("corrgrpo", rows, labels, [1.0, 0.5], paper_exact=True)
    above = (guarded.diagnostics["correlation_sum"] >= 0.1)[torch.as_tensor(labels)]
    assert 0 < above.sum() < len(labels)
    assert torch.equal(guarded.advantages[above], published.advantages[above])
    assert not torch.equal(guarded.advantages[~above], published.advantages[~above])


def test_paper_exact_wins_over_the_floor():
    out = estimate("corrgrpo", OPPOSED, [0] * 4, [1.0, 0.6], paper_exact=True, min_correlation_sum=5.0)
    assert out.advantages.abs().max().item() == pytest.approx(200, rel=1e-6)


@pytest.mark.parametrize("exponent", [-300, -200, -160, -20, 20, 160, 200, 299])
def test_rewards_of_any_size(exponent):
    """Correlations, and what is free of scale, stand from 1e-300 to 1e300."""
    scale = 10.0**exponent
    rows = [[0.0, 1.0 * scale], [scale, 0.0], [scale, 3.0 * scale], [0.0, -2.0 * scale]]
    unit = [[0.0, 1.0], [1.0, 0.0], [1.0, 3.0], [0.0, -2.0]]
    for name in ("grpo", "mo_grpo"):
        found = estimate(name, rows, [0] * 4, [1.0, 0.5], epsilon=0.0)
        wanted = estimate(name, unit, [0] * 4, [1.0, 0.5], epsilon=0.0)
        torch.testing.assert_close(found.advantages, wanted.advantages, rtol=1e-6, atol=0)
    q = found.diagnostics["correlation_sum"].item()
    assert q == pytest.approx(wanted.diagnostics["correlation_sum"].item(), rel=1e-9)
    # CorrGRPO is not free of scale: rewards of its reach only, float32's.
    if exponent <= 20:
        found = estimate("corrgrpo", rows, [0] * 4, [1.0, 0.5]).advantages.double()
        wanted = estimate("corrgrpo", unit, [0] * 4, [1.0, 0.5]).advantages.double()
        torch.testing.assert_close(found, wanted * scale, rtol=1e-6, atol=1e-45)
    else:
        with pytest.raises(ValueError, match="beyond float32"):
            estimate("corrgrpo", rows, [0] * 4, [1.0, 0.5])


@pytest.mark.parametrize("exponent", [-300, 299])
def test_gdpo_at_any_size(exponent):
    scale = 10.0**exponent
    rows = [[0.0, scale], [scale, 0.0], [scale, 3 * scale], [0.0, -2 * scale]]
    for name in ("gdpo", "corr_gdpo"):
        advantages = estimate(name, rows, [0, 0, 0, 0], [1.0, 0.5]).advantages
        assert advantages.isfinite().all()
        assert bool(advantages.any()) == (exponent > 0)  # 1e-300 vanishes beside ε


def test_a_large_level_does_not_drown_a_small_spread():
    """Deviations of 1 at a level of 1e6 come out to float32's last digits."""
    rows = [[1e6 + value] for value in (0.0, 1.0, 0.0, 1.0, 1.0)]
    out = estimate("dr_grpo", rows, [0] * 5, [1.0]).advantages
    assert out.tolist() == pytest.approx([-0.6, 0.4, -0.6, 0.4, 0.4], rel=1e-7)
