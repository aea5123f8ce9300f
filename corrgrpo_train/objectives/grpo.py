"""The clipped surrogate of PPO and GRPO, per token."""

import torch
from torch import Tensor

from corrgrpo_train.objectives.surrogate import Surrogate, probability_ratios


def clipped_surrogate(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Surrogate:
    """−min(u·A, clip(u, 1 − clip_low, 1 + clip_high)·A) with u = exp(logprob − old logprob).

    A clipped token has no gradient.

    Args:
        logprobs: (T,) of the policy, with gradient.
        old_logprobs: (T,) of the policy that is the ratio's denominator, without gradient.
        advantages: (T,) each token's advantage.
        clip_low: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1.

    Source: PPO, arXiv 1707.06347, Eq. 7; GRPO, arXiv 2402.03300, Eq. 3.
    """
    ratios = probability_ratios(logprobs, old_logprobs)
    free, bounded = ratios * advantages, ratios.clamp(1 - clip_low, 1 + clip_high) * advantages
    return Surrogate(losses=-torch.minimum(free, bounded), ratios=ratios.detach(), clipped=(bounded < free).detach())
