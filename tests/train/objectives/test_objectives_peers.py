"""Advantages and losses of GRPO, GDPO, DAPO and CISPO as TRL 1.16 defines them, written out on padded rows.

TRL adds 1e-4 to standard deviations (ddof 1) and, for CISPO, bounds the ratio itself; means are over a sequence's
tokens and then sequences ("grpo"), over all tokens ("dapo", "cispo"), or over sequences of a fixed length ("dr_grpo").
"""

import pytest
import torch

from corrgrpo_train.advantages import estimate
from corrgrpo_train.objectives import AGGREGATIONS, IMPORTANCE_CORRECTIONS, OBJECTIVES, kl_k3

GROUPS, SIZE, LONGEST = 3, 4, 7
N = GROUPS * SIZE
WEIGHTS = torch.tensor([1.0, 0.5], dtype=torch.float64)
RANDOM = torch.Generator().manual_seed(5)


def drawn(*shape):
    return torch.randn(*shape, generator=RANDOM, dtype=torch.float64)


REWARDS = drawn(N, 2)
LENGTHS = torch.randint(1, LONGEST + 1, (N,), generator=RANDOM)
MASK = (torch.arange(LONGEST) < LENGTHS.unsqueeze(1)).double()
LOGPROBS, OLD = -1 + 0.3 * drawn(N, LONGEST), -1 + 0.3 * drawn(N, LONGEST)
REFERENCE, SAMPLING = -1 + 0.3 * drawn(N, LONGEST), -1 + 0.6 * drawn(N, LONGEST)


def sum_then_normalize():
    totals = (REWARDS * WEIGHTS).sum(1).view(GROUPS, SIZE)
    scores = (totals - totals.mean(1, keepdim=True)) / (totals.std(1, keepdim=True) + 1e-4)
    return scores.flatten()


def normalize_then_sum():
    grouped = REWARDS.view(GROUPS, SIZE, 2)
    scores = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    summed = (scores.view(N, 2) * WEIGHTS).sum(1)
    return (summed - summed.mean()) / (summed.std() + 1e-4)


def clipped(logprobs, advantages, low, high):
    ratio = (logprobs - OLD).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def bounded(logprobs, advantages, bound):
    return -(logprobs - OLD).exp().clamp(max=bound).detach() * advantages * logprobs


def by_sequence(losses):
    return ((losses * MASK).sum(1) / MASK.sum(1)).mean()


def by_token(losses):
    return (losses * MASK).sum() / MASK.sum()


def by_constant(losses):
    return (losses * MASK).sum() / (N * 50)


CASES = {
    # name: their advantages, loss per token, mean; our estimator, its options, objective, its options, aggregation
    "grpo": (
        (sum_then_normalize, lambda x, a: clipped(x, a, 0.2, 0.2), by_sequence),
        ("grpo", {"epsilon": 1e-4}, "grpo", {}, "sequence"),
    ),
    "gdpo": (
        (normalize_then_sum, lambda x, a: clipped(x, a, 0.2, 0.2), by_sequence),
        ("gdpo", {}, "grpo", {}, "sequence"),
    ),
    "dapo": (
        (sum_then_normalize, lambda x, a: clipped(x, a, 0.2, 0.28), by_token),
        ("grpo", {"epsilon": 1e-4}, "dapo", {}, "token"),
    ),
    "cispo": (
        (sum_then_normalize, lambda x, a: bounded(x, a, 1.1), by_token),
        ("grpo", {"epsilon": 1e-4}, "cispo", {"cispo_max_ratio": 1.1}, "token"),
    ),
    "dr_grpo": (
        (lambda: sum_then_normalize_none(), lambda x, a: clipped(x, a, 0.2, 0.2), by_constant),
        ("dr_grpo", {}, "grpo", {}, "constant"),
    ),
}


def sum_then_normalize_none():
    totals = (REWARDS * WEIGHTS).sum(1).view(GROUPS, SIZE)
    return (totals - totals.mean(1, keepdim=True)).flatten()


@pytest.mark.parametrize("correction", IMPORTANCE_CORRECTIONS)
@pytest.mark.parametrize("kl", [0.0, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_the_definition(case, kl, correction):
    (advantages_of, loss_of, mean), (method, options, objective, bounds, aggregation) = CASES[case]

    theirs = LOGPROBS.clone().requires_grad_()
    expected_advantages = advantages_of()
    losses = loss_of(theirs, expected_advantages.unsqueeze(1))
    ratio = (OLD - SAMPLING).exp()
    factor = {"none": 1.0, "truncate": ratio.clamp(max=1.5), "mask": ratio.masked_fill(ratio > 1.5, 0.0)}[correction]
    difference = REFERENCE - theirs
    expected = mean(losses * factor + kl * (difference.exp() - difference - 1))
    expected.backward()

    ours = LOGPROBS.clone().requires_grad_()
    found = estimate(method, REWARDS, torch.arange(N) // SIZE, WEIGHTS, LENGTHS, **options).advantages
    assert found.tolist() == pytest.approx(expected_advantages.tolist(), abs=1e-6)
    owners = torch.arange(N).repeat_interleave(LENGTHS)  # all tokens in one row, no padding
    taken = MASK.bool()
    importance = IMPORTANCE_CORRECTIONS[correction](OLD[taken], SAMPLING[taken], importance_cap=1.5)
    surrogate = OBJECTIVES[objective](ours[taken], OLD[taken], found.double()[owners], **bounds)
    weights = AGGREGATIONS[aggregation](LENGTHS, 50)[owners]
    loss = ((surrogate.losses * importance + kl * kl_k3(ours[taken], REFERENCE[taken])) * weights).sum()
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)
