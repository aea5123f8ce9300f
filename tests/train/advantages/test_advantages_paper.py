"""Numbers and identities that the paper prints or proves."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from corrgrpo_train.advantages import estimate

torch.set_num_threads(1)

# Four rollouts, three rewards: two correlated on a small scale, one on a large scale.
EXAMPLE = [[0.1, 0.18, 0.8], [0.18, 0.1, 7.28], [0.82, 0.9, 8.0], [0.9, 0.82, 1.52]]


def one_group(name, rows, weights=None, **options):
    weights = [1.0] * len(rows[0]) if weights is None else weights
    return estimate(name, rows, [0] * len(rows), weights, **options)


def with_correlations(matrix, scales):
    """Four rows whose sample correlations are exactly `matrix` and whose ddof-1 deviations `scales`."""
    contrasts = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) * math.sqrt(3) / 2
    return (contrasts @ np.linalg.cholesky(np.array(matrix)).T * np.array(scales)).tolist()


def appendix_k(a, pair=None, delta=0.0):
    matrix = [[1, 0.9, 0.1], [0.9, 1, 0.1], [0.1, 0.1, 1]]
    if pair:
        matrix[pair[0]][pair[1]] += delta
        matrix[pair[1]][pair[0]] += delta
    return with_correlations(matrix, (1, 1, a))


@pytest.mark.parametrize("paper_exact", [False, True])
def test_worked_example(paper_exact):
    out = one_group("corrgrpo", EXAMPLE, paper_exact=paper_exact)
    assert out.advantages.tolist() == pytest.approx([-1.86071, 0.93036, 1.86071, -0.93036], abs=5e-6)
    assert out.diagnostics["correlation_sum"].item() == pytest.approx(5.39024, abs=5e-6)
    assert 1 / out.diagnostics["denominator"].item() == pytest.approx(0.430721, abs=5e-7)
    correlation = out.diagnostics["correlation"]
    assert correlation[0, 1].item() == pytest.approx(0.9756, abs=5e-5)
    assert correlation[0, 2].item() == pytest.approx(0.1098, abs=5e-5)
    assert correlation[1, 2].item() == pytest.approx(0.1098, abs=5e-5)


def test_worked_example_under_grpo():
    out = one_group("grpo", EXAMPLE)
    # Printed without ε, which moves the last digit.
    assert out.advantages.tolist() == pytest.approx([-1.09545, 0.54772, 1.09545, -0.54772], abs=6e-6)
    assert 1 / out.diagnostics["denominator"].item() == pytest.approx(0.253575, abs=5e-7)
    assert out.diagnostics["grpo_denominator"].item() ** 2 == pytest.approx(15.5520, abs=5e-5)
    assert out.diagnostics["component_std"][2].item() ** 2 == pytest.approx(14.1696, abs=5e-5)


@pytest.mark.parametrize("a", [0.01, 0.2, 1.0, 5.0, 1000.0])
def test_appendix_k_multipliers(a):
    """GRPO's multiplier falls with the third reward's scale, CorrGRPO's does not."""
    rows = appendix_k(a)
    grpo = 1 / one_group("grpo", rows).diagnostics["denominator"].item()
    corrgrpo = 1 / one_group("corrgrpo", rows).diagnostics["denominator"].item()
    assert grpo == pytest.approx(1 / math.sqrt(a**2 + 0.4 * a + 3.8), rel=2e-6)
    assert corrgrpo == pytest.approx(1 / math.sqrt(5.2), rel=2e-6)
    assert round(corrgrpo, 4) == 0.4385
    if a == 5:
        assert round(grpo, 4) == 0.1802
        share = one_group("grpo", rows).diagnostics["component_std"][2].item() ** 2 * grpo**2
        assert round(share, 3) == 0.812


@pytest.mark.parametrize(("pair", "grpo_change"), [((0, 1), 2), ((0, 2), 10)])
def test_appendix_k_sensitivity(pair, grpo_change):
    """A change δ of one correlation moves CorrGRPO's sum by 2δ whichever pair it is, GRPO's by scale."""
    delta = 0.02
    before = one_group("corrgrpo", appendix_k(5)).diagnostics
    after = one_group("corrgrpo", appendix_k(5, pair, delta)).diagnostics
    corrgrpo = after["correlation_sum"].item() - before["correlation_sum"].item()
    grpo = (after["grpo_denominator"].item() - 1e-6) ** 2 - (before["grpo_denominator"].item() - 1e-6) ** 2
    assert corrgrpo == pytest.approx(2 * delta, rel=1e-9)
    assert grpo == pytest.approx(grpo_change * delta, rel=1e-9)


@pytest.mark.parametrize("copies", [2, 3, 7, 64])
def test_a_reward_given_twice_counts_once(copies):
    """Q = r² for r copies, so the advantage is that of one of them, centred."""
    rows = [[value] * copies for value in (0.0, 1.0, 0.25, 0.5, 1.0)]
    out = one_group("corrgrpo", rows)
    assert out.diagnostics["correlation_sum"].item() == pytest.approx(copies**2, rel=1e-12)
    assert out.advantages.tolist() == pytest.approx([-0.55, 0.45, -0.3, -0.05, 0.45], rel=1e-6)


@pytest.mark.parametrize(("ran", "passed", "n"), [(7, 3, 8), (5, 1, 8), (12, 11, 16), (2, 1, 4)])
def test_appendix_c_nested_binary_rewards(ran, passed, n):
    """A program that passes has run: ρ = sqrt(p (1 − u) / (u (1 − p)))."""
    rows = [[float(i < ran), float(i < passed)] for i in range(n)]
    u, p = ran / n, passed / n
    rho = math.sqrt(p * (1 - u) / (u * (1 - p)))
    out = one_group("corrgrpo", rows)
    assert out.diagnostics["correlation"][0, 1].item() == pytest.approx(rho, rel=1e-12)
    expected = [(run - u + good - p) / (math.sqrt(2 + 2 * rho) + 1e-6) for run, good in rows]
    assert out.advantages.tolist() == pytest.approx(expected, rel=2e-6, abs=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_appendix_l_variance_of_the_sum_is_the_sum_of_covariances(seed):
    """L.1: with one divisor everywhere; L.2: so the sum of correlations is a variance, and not negative."""
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(2, 12)), int(rng.integers(1, 8))
    rows = rng.normal(size=(n, width)) * 10 ** rng.uniform(-2, 2, width)
    weights = rng.normal(size=width)
    diagnostics = one_group("corrgrpo", rows, weights).diagnostics
    covariance = sum(
        weights[i] * weights[j] * ((rows[:, i] - rows[:, i].mean()) * (rows[:, j] - rows[:, j].mean())).sum() / (n - 1)
        for i, j in product(range(width), repeat=2)
    )
    variance = (diagnostics["grpo_denominator"].item() - 1e-6) ** 2
    assert variance == pytest.approx(covariance, rel=1e-9)
    assert variance * (n - 1) / n != pytest.approx(covariance, rel=1e-3)  # another divisor would show

    signs = np.sign(weights)
    matrix = np.atleast_2d(np.corrcoef(rows, rowvar=False)) * signs[:, None] * signs
    assert diagnostics["correlation_sum"].item() == pytest.approx(matrix.sum(), rel=1e-9, abs=1e-12)
    assert diagnostics["correlation_sum"].item() >= 0


def test_uncorrelated_rewards_count_their_number():
    rows = with_correlations(np.eye(3), (1, 10, 0.1))
    assert one_group("corrgrpo", rows).diagnostics["correlation_sum"].item() == pytest.approx(3, rel=1e-12)
