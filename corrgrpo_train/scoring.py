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

_ROWS, _ROWS_GPU = 8, 128  # whose float32 logits and probabilities exist at one time
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
    logits = head(states)
    if not entropy_gradient:
        logprobs, entropies = _Scores.apply(logits, targets, temperature)  # type: ignore[no-untyped-call]
        return logprobs, entropies
    logits = _tempered(logits, temperature)
    normaliser = torch.logsumexp(logits, dim=-1)
    logprobs = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - normaliser
    return logprobs, _entropies(logits, normaliser)


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    logits = logits.float()
    return logits if temperature == 1 else logits / temperature


def _entropies(logits: Tensor, normaliser: Tensor) -> Tensor:
    """−Σ p · ln p, (T,): of tokens that cannot come (logit −inf) nothing, where 0 · ln 0 would be nan."""
    shifted = (logits - normaliser.unsqueeze(-1)).clamp(min=_NOTHING)
    return -(shifted.exp() * shifted).sum(-1)


class _Scores(torch.autograd.Function):
    """Log-probabilities of targets and entropies, the latter without gradient.

    Goes through a few rows at a time, so that beside the logits, in the type in which the head gives them, and later
    their gradient nothing of their size exists. Plain operations hold four or five such, in float32.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        normaliser = torch.empty(len(logits), device=logits.device)
        logprobs, entropies = torch.empty_like(normaliser), torch.empty_like(normaliser)
        for piece in _pieces(logits):
            rows = _tempered(logits[piece], temperature)
            normaliser[piece] = torch.logsumexp(rows, dim=-1)
            logprobs[piece] = rows.gather(-1, targets[piece].unsqueeze(-1)).squeeze(-1) - normaliser[piece]
            entropies[piece] = _entropies(rows, normaliser[piece])
        ctx.save_for_backward(logits, targets, normaliser)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        logits, targets, normaliser = ctx.saved_tensors
        slope = torch.empty_like(logits)
        for piece in _pieces(logits):
            # d logprob / d logit = ([target] − probability) / temperature
            share = (gradient[piece] / ctx.temperature).unsqueeze(-1)
            rows = _tempered(logits[piece], ctx.temperature).sub(normaliser[piece].unsqueeze(-1)).exp_().mul_(-share)
            slope[piece] = rows.scatter_add_(-1, targets[piece].unsqueeze(-1), share)
        return slope, None, None


def _pieces(logits: Tensor) -> list[slice]:
    # A CPU is fastest where the rows stay in its cache, a GPU where its kernels are few.
    rows = _ROWS if logits.device.type == "cpu" else _ROWS_GPU
    return [slice(begin, begin + rows) for begin in range(0, len(logits), rows)]
