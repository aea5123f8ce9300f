"""The clipped surrogate of PPO and GRPO, per token."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A surrogate per token.

    Attributes:
        losses: (T,), to be minimised.
        ratios: (T,), detached: π(token) / π_old(token).
        clipped: (T,) bool: the clip is what counts, so the token has no gradient.
    """

    losses: Tensor
    ratios: Tensor
    clipped: Tensor


def clipped_surrogate(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Surrogate:
    """−min(u·A, clip(u, 1 − clip_low, 1 + clip_high)·A) with u = exp(logprob − old logprob).

    Args:
        logprobs: (T,) of the policy, with gradient.
        old_logprobs: (T,) of the policy that is the ratio's denominator, without gradient.
        advantages: (T,) each token's advantage.
        clip_low: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1.

    Source: PPO, arXiv 1707.06347, Eq. 7; GRPO, arXiv 2402.03300, Eq. 3.
    """
    # exp of more than 20 overflows low-precision floats; so large a ratio is clipped anyway.
    ratios = torch.exp((logprobs - old_logprobs).clamp(-20.0, 20.0))
    free, bounded = ratios * advantages, ratios.clamp(1 - clip_low, 1 + clip_high) * advantages
    return Surrogate(losses=-torch.minimum(free, bounded), ratios=ratios.detach(), clipped=(bounded < free).detach())
