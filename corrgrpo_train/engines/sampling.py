"""Drawing tokens from logits with one random stream per sequence.

A sequence's draws depend on its own key alone: neither on the batch that it happens to be in nor on when it is
sampled, so a rollout can be repeated exactly.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def uniforms(key: tuple[int, ...], count: int) -> NDArray[np.float64]:
    """Return `count` uniform numbers in [0, 1) of the stream that belongs to `key`; shape (count,)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key))).random(count)


def seed_of(key: tuple[int, ...]) -> int:
    """A sequence's seed for engines that want one number, from 0 to 2^63 - 1; equal keys give equal seeds."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]) >> 1


def draw(logits: Tensor, uniform: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

    Args:
        logits: (B, V), any float type.
        uniform: (B,) numbers in [0, 1).
        temperature: the logits are divided by it; 0 takes the most probable token.

    Returns:
        token ids (B,) and their float32 log-probabilities (B,): at the temperature, or at 1 when greedy. Where the
        logits are not numbers, the log-probability is nan.
    """
    scaled = logits.float() if temperature in (0, 1) else logits.float() / temperature
    logprobs = scaled - torch.logsumexp(scaled, dim=-1, keepdim=True)
    if temperature == 0:
        tokens = logprobs.argmax(dim=-1)
    else:
        cumulative = logprobs.exp().cumsum(dim=-1)
        # The sum is 1 up to rounding: scaling by it keeps the draw inside the vocabulary. `right=True` never
        # picks a token of probability 0, since its cumulative value does not exceed its predecessor's.
        point = uniform.to(cumulative.dtype).unsqueeze(-1) * cumulative[:, -1:]
        point = torch.minimum(point, torch.nextafter(cumulative[:, -1:], cumulative.new_zeros(())))
        # Beyond the vocabulary it can only lie where the logits are nan, which the caller sees in what is returned.
        tokens = torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
