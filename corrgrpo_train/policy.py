"""The policy: a causal language model and the log-probabilities of given tokens under it."""

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from corrgrpo_train.packing import MicroBatch, micro_batches
from corrgrpo_train.rollout.episode import TokenSequence

logger = logging.getLogger(__name__)

_CHUNK = 512  # tokens whose logits exist at one time


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What the policy says of a micro-batch's sampled tokens.

    Attributes:
        logprobs: (T,) float32 log-probabilities at the sampling temperature, with gradient where enabled.
        entropies: (T,) float32 entropies of the distributions they were drawn from, same temperature; without
            gradient unless asked for.
    """

    logprobs: Tensor
    entropies: Tensor


class Policy:
    """Scores tokens under a model, with logits of a few hundred tokens at a time.

    Attributes:
        shares_prompts: rows may hold several completions of one prompt. Found out by comparison with plain rows
            when the policy is made, for a model may ignore or refuse such a mask.
    """

    def __init__(self, model: Any, *, autocast: torch.dtype | None = None, share_prompts: bool = True) -> None:
        """Wrap a transformers causal language model.

        Args:
            model: float32 weights; stays in evaluation mode, for dropout would change the ratio to the old policy.
            autocast: float type of the training passes; None computes in the weights' own.
            share_prompts: False gives each sequence a row of its own.
        """
        self.model, self.autocast = model.eval(), autocast
        self.body, self.head = model.get_decoder(), model.get_output_embeddings()
        self.shares_prompts, self._splits_head = False, False
        self._probe(share_prompts)

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        device: torch.device = self.model.device
        return device

    def score(self, batch: MicroBatch, temperature: float, *, entropy_gradient: bool = False) -> TokenScores:
        """Log-probabilities and entropies of the batch's sampled tokens."""
        batch = _moved(batch, self.device)
        with self._cast():
            if self._splits_head:
                hidden = self._run(self.body, batch).last_hidden_state[batch.rows, batch.sources]
                head = self.head
            else:
                hidden = self._run(self.model, batch).logits[batch.rows, batch.sources]
                head = torch.nn.Identity()
            pieces = [
                # Recomputed in the backward pass: a whole batch of logits would be the largest thing in memory.
                checkpoint(_token_scores, head, states, targets, temperature, entropy_gradient, use_reentrant=False)
                for states, targets in zip(torch.split(hidden, _CHUNK), torch.split(batch.targets, _CHUNK), strict=True)
            ]
        logprobs, entropies = zip(*pieces, strict=True)
        return TokenScores(torch.cat(logprobs), torch.cat(entropies))

    def _run(self, module: Any, batch: MicroBatch) -> Any:
        mask = batch.mask if batch.shared else (batch.segments >= 0).long()
        return module(input_ids=batch.input_ids, attention_mask=mask, position_ids=batch.position_ids, use_cache=False)

    def _cast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, dtype=self.autocast)

    @torch.no_grad()
    def _probe(self, share_prompts: bool) -> None:
        """Find out what the architecture allows by comparing with the plain way on a few tokens."""
        autocast, self.autocast = self.autocast, None
        try:
            high = min(50, self.model.config.get_text_config().vocab_size)
            prompt, ends = (
                [i % high for i in range(3, 12)],
                ([5 % high, 7 % high, 9 % high], [8 % high, 6 % high]),
            )
            probe = [
                TokenSequence(prompt + end, [False] * 9 + [True] * len(end), [0.0] * (9 + len(end))) for end in ends
            ]
            plain = torch.cat([self.score(b, 1.0).logprobs for b in micro_batches(probe, [0, 0], 12, shared=False)])
            self._splits_head = True
            if not self._agrees(probe, plain, shared=False):
                # Some models scale or cap the logits after the head; they keep their own forward pass.
                self._splits_head = False
            self.shares_prompts = share_prompts and self._agrees(probe, plain, shared=True)
            if share_prompts and not self.shares_prompts:
                logger.warning("%s can't share prompts in a row; plain batches are used", type(self.model).__name__)
        finally:
            self.autocast = autocast

    def _agrees(self, probe: list[TokenSequence], plain: Tensor, *, shared: bool) -> bool:
        try:
            batches = micro_batches(probe, [0, 0], 64 if shared else 12, shared=shared)
            scores = torch.cat([self.score(batch, 1.0).logprobs for batch in batches])
        except Exception as error:  # an architecture may refuse in any way
            logger.info("probe of %s: %s", type(self.model).__name__, error)
            return False
        return scores.shape == plain.shape and bool(torch.allclose(scores, plain, atol=1e-4, rtol=1e-4))


def _token_scores(
    head: Any, states: Tensor, targets: Tensor, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    logits = head(states).float() / temperature
    normaliser = torch.logsumexp(logits, dim=-1)
    logprobs = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - normaliser
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropies = normaliser - (torch.softmax(logits, dim=-1) * logits).sum(-1)
    return logprobs, entropies


def _moved(batch: MicroBatch, device: torch.device) -> MicroBatch:
    tensors = {f.name: getattr(batch, f.name).to(device) for f in fields(batch) if f.name != "shared"}
    return replace(batch, **tensors)
