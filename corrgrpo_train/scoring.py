"""`Scorer`: a causal language model's way from packed rows to log-probabilities, a chunk of logits at a time."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from corrgrpo_train.packing import MicroBatch

CHUNK = 512
"""Tokens whose logits exist at one time."""

_ROWS = 8  # whose probabilities exist at one time
_NOTHING = -200.0  # log-probability below which a float32 probability is 0


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What the policy says of a micro-batch's sampled tokens.

    Attributes:
        logprobs: (T,) float32 log-probabilities at the sampling temperature, with gradient where enabled.
        entropies: (T,) float32 entropies of the distributions they were drawn from, same temperature; with gradient
            only where asked for.
    """

    logprobs: Tensor
    entropies: Tensor


class Scorer(torch.nn.Module):
    """Log-probabilities and entropies of sampled tokens.

    A module of its own around the model, so that everything that computes them hangs under one forward pass.

    Attributes:
        splits_head: the body and the output layer run apart, which keeps the logits of a whole batch from existing.
            False for models that change the logits after the output layer; those run as they are.
    """

    def __init__(self, model: Any, chunk: int = CHUNK) -> None:
        """Wrap a transformers causal language model; `chunk` tokens' logits exist at one time."""
        super().__init__()
        self.model, self.chunk, self.splits_head = model, chunk, False

    def forward(self, batch: MicroBatch, temperature: float, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        """The batch's log-probabilities and entropies, as in `TokenScores`."""
        head: Any
        if self.splits_head:
            hidden = self._run(self.model.get_decoder(), batch).last_hidden_state[batch.rows, batch.sources]
            head = self.model.get_output_embeddings()
        else:
            hidden = self._run(self.model, batch).logits[batch.rows, batch.sources]
            head = torch.nn.Identity()
        pieces = [
            # Recomputed in the backward pass: a whole batch of logits would be the largest thing in memory.
            checkpoint(_token_scores, head, states, targets, temperature, entropy_gradient, use_reentrant=False)
            for states, targets in zip(
                torch.split(hidden, self.chunk), torch.split(batch.targets, self.chunk), strict=True
            )
        ]
        logprobs, entropies = zip(*pieces, strict=True)
        # A plain tuple: hooks that sharding puts around this look for tensors in nothing else.
        return torch.cat(logprobs), torch.cat(entropies)

    def _run(self, module: Any, batch: MicroBatch) -> Any:
        mask = batch.mask if batch.shared else (batch.segments >= 0).long()
        return module(input_ids=batch.input_ids, attention_mask=mask, position_ids=batch.position_ids, use_cache=False)


def _token_scores(
    head: Any, states: Tensor, targets: Tensor, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    logits = head(states).float()
    if temperature != 1:
        logits = logits / temperature
    if not entropy_gradient:
        logprobs, entropies = _Scores.apply(logits, targets)  # type: ignore[no-untyped-call]
        return logprobs, entropies
    normaliser = torch.logsumexp(logits, dim=-1)
    logprobs = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - normaliser
    return logprobs, _entropies(logits, normaliser)


def _entropies(logits: Tensor, normaliser: Tensor) -> Tensor:
    """−Σ p · ln p, (T,): of tokens that cannot come (logit −inf) nothing, where 0 · ln 0 would be nan."""
    shifted = (logits - normaliser.unsqueeze(-1)).clamp(min=_NOTHING)
    return -(shifted.exp() * shifted).sum(-1)


class _Scores(torch.autograd.Function):
    """Log-probabilities of targets and entropies, the latter without gradient, with one buffer beside the logits.

    Plain operations hold four or five of the logits' size at a time, and pass over them as often.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        normaliser = torch.logsumexp(logits, dim=-1)
        ctx.save_for_backward(logits, targets, normaliser)
        # A few rows at a time, whose temporaries are small.
        parts = zip(torch.split(logits, _ROWS), torch.split(normaliser, _ROWS), strict=True)
        entropies = torch.cat([_entropies(*part) for part in parts])
        ctx.mark_non_differentiable(entropies)
        return logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - normaliser, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
        logits, targets, normaliser = ctx.saved_tensors
        # d logprob / d logit = [target] − probability
        slope = logits.sub(normaliser.unsqueeze(-1)).exp_().mul_(-gradient.unsqueeze(-1))
        slope.scatter_add_(-1, targets.unsqueeze(-1), gradient.unsqueeze(-1))
        return slope, None
