"""Policy gradients under single reward components, and how far they agree."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from corrgrpo_train.config import Config
from corrgrpo_train.estimating import estimated
from corrgrpo_train.objectives import AGGREGATIONS
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import Episode

PUBLISHED_SHARE = (10 / 36, 25 / 36)
"""First and last of the layers that arXiv 2509.11452 takes, in a model of 36, as shares of the depth."""


def gradient_products(
    policy: Policy,
    episodes: Sequence[Episode],
    base: Mapping[str, float],
    config: Config,
    step: int,
    layers: tuple[int, int] | None = None,
) -> dict[str, float]:
    """s_i = Σ_j ⟨g_i, g_j⟩ for every component of non-zero base weight, j = i included.

    g_i is the gradient of Σ_t weight_t · A_i · log π(token t), with A_i the run's estimator on component i alone
    (turned round where its weight is negative) and the run's aggregation: the policy gradient of an on-policy
    step, which no clipping touches. One forward pass and, per component, one backward pass over the rollout.

    Args:
        policy: as it sampled the rollout; its gradients are not touched.
        episodes: of one rollout.
        base: weights by component, of which the signs count.
        config: estimator, aggregation, temperature, token budget.
        step: as for `estimated`.
        layers: first and last layer, inclusive, over whose parameters the products are; None: the published share.
    """
    signs = {name: math.copysign(1.0, weight) for name, weight in base.items() if weight != 0}
    valid = [e for e in episodes if e.components and not any(math.isnan(e.components[name]) for name in signs)]
    results = [estimated(valid, config, step, {name: sign})[1] for name, sign in signs.items()]
    if not valid:
        return dict.fromkeys(signs, 0.0)
    advantages = torch.stack([result.advantages for result in results if result is not None], dim=1)
    lengths = torch.tensor([episode.tokens.completion_length for episode in valid])
    factors = advantages * AGGREGATIONS[config.aggregation](lengths, config.aggregation_length)[:, None].float()
    live = factors.any(dim=1).nonzero().flatten().tolist()
    gradients = _gradients(policy, [valid[i] for i in live], factors[live], config, layers)
    total = [torch.stack(parts).sum(dim=0) for parts in zip(*gradients, strict=True)]
    products = [
        math.fsum(float((part.double() * whole.double()).sum()) for part, whole in zip(gradient, total, strict=True))
        for gradient in gradients
    ]
    return dict(zip(signs, products, strict=True))


def layer_parameters(model: Any, layers: tuple[int, int] | None) -> list[Tensor]:
    """Trained parameters of a range of layers; all of the model where none has a layer's number in its name."""
    numbered = [
        (int(match[1]) if (match := re.search(r"\.(?:layers|h|blocks?)\.(\d+)\.", f".{name}")) else None, parameter)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    depth = 1 + max((number for number, _ in numbered if number is not None), default=-1)
    first, last = layers or (round(PUBLISHED_SHARE[0] * depth), round(PUBLISHED_SHARE[1] * depth))
    chosen = [parameter for number, parameter in numbered if number is not None and first <= number <= last]
    return chosen or [parameter for _, parameter in numbered]


def _gradients(
    policy: Policy, episodes: Sequence[Episode], factors: Tensor, config: Config, layers: tuple[int, int] | None
) -> list[list[Tensor]]:
    """Gradient of every component, a tensor per parameter; `factors` (S, K) are advantage times token weight."""
    parameters = layer_parameters(policy.model, layers)
    sums = [[torch.zeros_like(parameter) for parameter in parameters] for _ in range(factors.shape[1])]
    batches = micro_batches(
        [episode.tokens for episode in episodes],
        [episode.group for episode in episodes],
        config.token_budget,
        shared=policy.shares_prompts,
    )
    for batch in batches:
        logprobs = policy.score(batch, config.temperature).logprobs
        for component, gradient in enumerate(sums):
            weighted = (logprobs * factors[batch.owners, component].to(logprobs.device)).sum()
            found = torch.autograd.grad(weighted, parameters, retain_graph=True, allow_unused=True)
            for accumulated, part in zip(gradient, found, strict=True):
                if part is not None:
                    accumulated += part
    return sums
