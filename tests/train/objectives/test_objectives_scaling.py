"""The paper's scaling identities with a real model: F.2.1 (DAPO), F.2.2 (CISPO), F.2.3 (GDPO) and L.3 (one group).

Within a group CorrGRPO's advantages are c_q times GRPO's, c_q > 0, so every token keeps its branch of the clip and the
gradient is c_q times GRPO's; a KL term has no such factor. GDPO + CorrGRPO has one factor for the whole batch.
"""

import math
import statistics

import pytest
import torch

from corrgrpo_train.advantages import estimate
from corrgrpo_train.objectives import AGGREGATIONS, OBJECTIVES, kl_k3
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence

LENGTHS = [3, 5, 1, 4, 2, 6, 4, 3]
SEQUENCES = [
    TokenSequence([10 + i // 4, 11] + [(7 * i + 3 * j) % 200 + 3 for j in range(n)], [False] * 2 + [True] * n)
    for i, n in enumerate(LENGTHS)
]
REWARDS = [[0, 0.3], [1, 0.1], [1, 0.9], [0, 0.8], [0, 0.5], [0, 0.2], [1, 0.4], [0, 0.4]]
WEIGHTS = [1.0, 2.0]


def gradient(model, advantages, objective, rows, *, kl=0.0, aggregation="sequence"):
    """The gradient of one update on some of the sequences, with ratios on both sides of every bound."""
    policy = Policy(model)
    sequences = [SEQUENCES[i] for i in rows]
    (batch,) = micro_batches(sequences, [i // 4 for i in rows], 10_000)
    scores = policy.score(batch, 1.0).logprobs
    noise = torch.Generator().manual_seed(1)
    old = scores.detach() + 0.5 * torch.randn(len(scores), generator=noise)
    reference = scores.detach() + 0.5 * torch.randn(len(scores), generator=noise)
    surrogate = OBJECTIVES[objective](scores, old, advantages[rows][batch.owners])
    if objective != "cispo":
        assert 0 < surrogate.clipped.sum() < len(scores)
    weights = AGGREGATIONS[aggregation](torch.tensor([LENGTHS[i] for i in rows]), None)[batch.owners].float()
    model.zero_grad()
    ((surrogate.losses + kl * kl_k3(scores, reference)) * weights).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def correlation(x, y):
    mx, my = statistics.mean(x), statistics.mean(y)
    product = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return product / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))


def factor_of(rows):
    """c_q = std(total) / sqrt(Q), from the definitions."""
    first, second = ([REWARDS[i][column] for i in rows] for column in (0, 1))
    totals = [WEIGHTS[0] * a + WEIGHTS[1] * b for a, b in zip(first, second, strict=True)]
    return statistics.stdev(totals) / math.sqrt(2 + 2 * correlation(first, second))


def both(first, second):
    groups = [i // 4 for i in range(8)]
    return [estimate(name, REWARDS, groups, WEIGHTS).advantages for name in (first, second)]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("aggregation", ["sequence", "token"])
@pytest.mark.parametrize("group", [0, 1])
def test_within_a_group_the_gradient_is_a_multiple_of_grpos(tiny, objective, aggregation, group):
    model, _ = tiny
    rows = list(range(4 * group, 4 * group + 4))
    corr, grpo = both("corrgrpo", "grpo")
    found = gradient(model, corr, objective, rows, aggregation=aggregation)
    expected = factor_of(rows) * gradient(model, grpo, objective, rows, aggregation=aggregation)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_between_groups_the_factors_differ(tiny, objective):
    model, _ = tiny
    assert factor_of([0, 1, 2, 3]) / factor_of([4, 5, 6, 7]) > 1.5
    corr, grpo = both("corrgrpo", "grpo")
    found, other = (gradient(model, advantages, objective, list(range(8))) for advantages in (corr, grpo))
    assert float(torch.nn.functional.cosine_similarity(found, other, dim=0)) < 0.999


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_with_a_kl_term_it_is_no_multiple(tiny, objective):
    model, _ = tiny
    rows = [0, 1, 2, 3]
    corr, grpo = both("corrgrpo", "grpo")
    found, other = (gradient(model, advantages, objective, rows, kl=1.0) for advantages in (corr, grpo))
    assert float(torch.nn.functional.cosine_similarity(found, other, dim=0)) < 0.999


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gdpo_and_corr_gdpo_differ_by_one_factor_for_the_batch(tiny, objective):
    model, _ = tiny
    corr, gdpo = both("corr_gdpo", "gdpo")
    # From the definitions: H over sqrt(Q_B) in place of H over its deviation.
    scores = [[], []]
    for group in (range(4), range(4, 8)):
        for column in (0, 1):
            values = [REWARDS[i][column] for i in group]
            mean, deviation = statistics.mean(values), statistics.stdev(values) + 1e-4
            scores[column] += [WEIGHTS[column] * (value - mean) / deviation for value in values]
    totals = [a + b for a, b in zip(*scores, strict=True)]
    factor = (statistics.stdev(totals) + 1e-4) / math.sqrt(2 + 2 * correlation(*scores))
    found = gradient(model, corr, objective, list(range(8)))
    expected = factor * gradient(model, gdpo, objective, list(range(8)))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))
