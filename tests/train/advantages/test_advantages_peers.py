"""GDPO and its relatives, the variants that other projects ship, and our two controls."""

import math
import statistics

import pytest
import torch

from corrgrpo_train.advantages import estimate

torch.set_num_threads(1)
RNG = torch.Generator().manual_seed(3)
ROWS = torch.rand(24, 3, generator=RNG, dtype=torch.float64)
LABELS = torch.arange(24) % 6
WEIGHTS = [1.0, 0.5, -0.3]
LENGTHS = [1 + 3 * i for i in range(24)]


def test_grpo_of_a_known_group():
    """Rewards 0, 1, 1, 2: mean 1, ddof-1 deviation sqrt(2/3); TRL's ε is 1e-4."""
    rows = [[0.0], [1.0], [1.0], [2.0]]
    for epsilon in (1e-6, 1e-4):
        expected = 1 / (math.sqrt(2 / 3) + epsilon)
        found = estimate("grpo", rows, [0] * 4, [1.0], epsilon=epsilon).advantages
        assert found.tolist() == pytest.approx([-expected, 0, 0, expected], rel=1e-7)
    assert estimate("grpo", rows, [0] * 4, [1.0]).advantages[3].item() == pytest.approx(
        1 / (math.sqrt(2 / 3) + 1e-6), rel=1e-7
    )


def test_rloo_is_the_reward_less_the_others_mean():
    found = estimate("rloo", [[0.0], [1.0], [1.0], [2.0]], [0] * 4, [1.0]).advantages
    assert found.tolist() == pytest.approx([0 - 4 / 3, 1 - 1, 1 - 1, 2 - 2 / 3], abs=1e-7)


def test_mo_grpo_gives_every_component_its_weight():
    """Two components of one shape and any scales: z-scores add up."""
    rows = [[0.0, 0.0], [1.0, 1000.0]]
    expected = (1.0 + 0.25) / math.sqrt(2)
    found = estimate("mo_grpo", rows, [0, 0], [1.0, 0.25]).advantages
    assert found.tolist() == pytest.approx([-expected, expected], rel=1e-5)


def test_gdpo_has_unit_spread_over_completions():
    values = estimate("gdpo", ROWS, LABELS, WEIGHTS, epsilon=0.0).advantages.tolist()
    assert statistics.mean(values) == pytest.approx(0, abs=1e-7)
    assert statistics.stdev(values) == pytest.approx(1, rel=1e-6)


def test_gdpo_has_unit_spread_over_tokens_if_asked():
    values = estimate("gdpo", ROWS, LABELS, WEIGHTS, LENGTHS, whitening="tokens").advantages.tolist()
    tokens = [value for value, length in zip(values, LENGTHS, strict=True) for _ in range(length)]
    assert statistics.mean(tokens) == pytest.approx(0, abs=1e-7)
    assert statistics.stdev(tokens) == pytest.approx(1, rel=1e-6)
    assert abs(statistics.mean(values)) > 1e-3  # not over completions


def test_equal_lengths_make_token_means_completion_means():
    by_token = estimate("corr_gdpo", ROWS, LABELS, WEIGHTS, [7] * 24, whitening="tokens", component_epsilon=1e-4)
    by_completion = estimate("corr_gdpo", ROWS, LABELS, WEIGHTS)
    torch.testing.assert_close(by_token.advantages, by_completion.advantages, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("whitening", ["completions", "tokens"])
def test_corr_gdpo_is_gdpo_rescaled(whitening):
    """One factor for the whole batch."""
    gdpo = estimate("gdpo", ROWS, LABELS, WEIGHTS, LENGTHS, whitening=whitening).advantages
    corr_gdpo = estimate("corr_gdpo", ROWS, LABELS, WEIGHTS, LENGTHS, whitening=whitening).advantages
    ratio = corr_gdpo / gdpo
    torch.testing.assert_close(ratio, ratio[0].expand(24), rtol=1e-4, atol=0)
    assert ratio[0] > 0


def test_corr_gdpo_of_one_component():
    """Q_B = 1: only the centred z-scores are left."""
    found = estimate("corr_gdpo", [[0.0], [1.0], [0.0], [5.0]], [0, 0, 1, 1], [2.0]).advantages
    z = [2 * d / (s + 1e-4) for d, s in ((-0.5, 0.5**0.5), (0.5, 0.5**0.5), (-2.5, 12.5**0.5), (2.5, 12.5**0.5))]
    assert found.tolist() == pytest.approx([value / math.sqrt(1 + 1e-6) for value in z], rel=1e-6)


def test_completions_without_tokens_count_nothing_by_token():
    rows = [[0.0, 1.0], [1.0, 0.2], [0.5, 0.5], [0.0, 0.1]]
    for name in ("gdpo", "corr_gdpo"):
        out = estimate(name, rows, [0, 0, 1, 1], [1.0, 0.3], [0, 0, 0, 0], whitening="tokens").advantages
        assert out.isfinite().all()


@pytest.mark.parametrize("paper_exact", [False, True])
def test_matched_has_corrgrpos_step_size(paper_exact):
    corrgrpo = estimate("corrgrpo", ROWS, LABELS, WEIGHTS, paper_exact=paper_exact).advantages
    matched = estimate("matched", ROWS, LABELS, WEIGHTS, paper_exact=paper_exact).advantages
    dr_grpo = estimate("dr_grpo", ROWS, LABELS, WEIGHTS).advantages
    assert matched.abs().mean().item() == pytest.approx(corrgrpo.abs().mean().item(), rel=1e-6)
    ratio = matched / dr_grpo
    torch.testing.assert_close(ratio, ratio[0].expand(24), rtol=1e-5, atol=0)
    assert not torch.allclose(matched, corrgrpo, rtol=1e-3)


def factors(name, rows, labels, **options):
    """1 / denominator of each group with a signal."""
    denominator = estimate(name, rows, labels, WEIGHTS, **options).diagnostics["denominator"]
    return (1 / denominator).tolist()


def test_shuffled_deals_the_same_factors_to_other_groups():
    right = factors("corrgrpo", ROWS, LABELS)
    wrong = factors("shuffled", ROWS, LABELS, seed=1)
    assert sorted(wrong) == pytest.approx(sorted(right), rel=1e-6)
    assert wrong != pytest.approx(right, rel=1e-3)


def test_shuffled_is_decided_by_its_seed():
    first, again, other = (factors("shuffled", ROWS, LABELS, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    state = torch.random.get_rng_state()
    estimate("shuffled", ROWS, LABELS, WEIGHTS)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_shuffled_takes_a_generator_that_moves_on():
    generator = torch.Generator().manual_seed(5)
    draws = [factors("shuffled", ROWS, LABELS, seed=generator) for _ in range(2)]
    assert draws[0] == factors("shuffled", ROWS, LABELS, seed=5)
    assert draws[1] != draws[0]


def test_shuffled_reaches_every_group():
    """Over seeds, the first group gets every factor."""
    seen = {round(factors("shuffled", ROWS, LABELS, seed=seed)[0], 6) for seed in range(60)}
    assert len(seen) == 6


def test_shuffled_keeps_dead_groups_out():
    """The factor of a group without a signal says nothing and reaches nobody."""
    rows = ROWS.clone()
    rows[LABELS == 2] = 0.3
    right = [value for value in factors("corrgrpo", rows, LABELS) if not math.isnan(value)]
    for seed in range(20):
        wrong = [value for value in factors("shuffled", rows, LABELS, seed=seed) if not math.isnan(value)]
        assert sorted(wrong) == pytest.approx(sorted(right), rel=1e-6)
