"""`Surrogate`: what an objective says of every token."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A surrogate per token.

    Attributes:
        losses: (T,), to be minimised.
        ratios: (T,), detached: π(token) / π_old(token).
        clipped: (T,) bool: the bound on the ratio is what counts.
    """

    losses: Tensor
    ratios: Tensor
    clipped: Tensor


def probability_ratios(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """Each token's u = π(token) / π_old(token), shape (T,), with gradient."""
    # exp of more than 20 overflows low-precision floats; every objective bounds so large a ratio anyway.
    return torch.exp((logprobs - old_logprobs).clamp(-20.0, 20.0))
