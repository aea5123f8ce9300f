"""Importance weights for tokens that the engine sampled from slightly other probabilities than the trainer's.

An engine computes with other kernels, and often in another precision, than the update. A token's loss is then
multiplied by ρ = π_old(token) / π_engine(token), bounded: a single token that the engine gave almost no probability
would otherwise outweigh the batch. The bound costs bias, its absence variance.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def _ratios(old_logprobs: Tensor, behaviour_logprobs: Tensor) -> Tensor:
    difference = (old_logprobs - behaviour_logprobs).detach().nan_to_num(nan=0.0)
    # exp of more than 20 overflows low-precision floats; so large a ratio is beyond every bound anyway.
    return torch.exp(difference.clamp(-20.0, 20.0))


def no_correction(old_logprobs: Tensor, behaviour_logprobs: Tensor, *, importance_cap: float = 2.0) -> Tensor:
    """1 for every token: what the engine reports is only compared, for the log.

    Args:
        old_logprobs: (T,) log-probabilities of the sampled tokens under the trainer's policy that was sampled from.
        behaviour_logprobs: (T,) those that the engine reported when it sampled them; a token without one (nan)
            gets the factor 1.
        importance_cap: not used.

    Returns:
        (T,) factors of the tokens' losses, without gradient.
    """
    return torch.ones_like(old_logprobs).detach()


def truncated(old_logprobs: Tensor, behaviour_logprobs: Tensor, *, importance_cap: float = 2.0) -> Tensor:
    """min(ρ, cap) with ρ = exp(old logprob − behaviour logprob).

    Arguments and result as for `no_correction`, with `importance_cap` the largest factor.
    Source: truncated importance sampling, Ionides (2008); for this mismatch TRL's `token_truncate`.
    """
    return _ratios(old_logprobs, behaviour_logprobs).clamp(max=importance_cap)


def masked(old_logprobs: Tensor, behaviour_logprobs: Tensor, *, importance_cap: float = 2.0) -> Tensor:
    """ρ where ρ ≤ cap, else 0: tokens whose two probabilities are too far apart teach nothing.

    Arguments and result as for `no_correction`, with `importance_cap` the largest factor.
    Source: TRL's `token_mask`.
    """
    ratios = _ratios(old_logprobs, behaviour_logprobs)
    return ratios.masked_fill(ratios > importance_cap, 0.0)


IMPORTANCE_CORRECTIONS: dict[str, Callable[..., Tensor]] = {
    "none": no_correction,
    "truncate": truncated,
    "mask": masked,
}
