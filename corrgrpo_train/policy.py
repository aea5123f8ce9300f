"""The policy: a causal language model and the log-probabilities of given tokens under it."""

import copy
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from corrgrpo_train.models.layers import recompute_layers
from corrgrpo_train.models.lora import Adapter, merged_weights
from corrgrpo_train.packing import MicroBatch, micro_batches
from corrgrpo_train.rollout.episode import TokenSequence
from corrgrpo_train.scoring import CHUNK, Scorer, TokenScores

logger = logging.getLogger(__name__)


class Policy:
    """Scores tokens under a model, with logits of a few hundred tokens at a time.

    Attributes:
        model: the transformers model; with LoRA its layers carry the adapter.
        adapter: its LoRA adapter, or None where all weights are trained.
        shares_prompts: rows may hold several completions of one prompt. Found out by comparison with plain rows
            when the policy is made, for a model may ignore or refuse such a mask.
    """

    def __init__(
        self,
        model: Any,
        *,
        autocast: torch.dtype | None = None,
        share_prompts: bool = True,
        adapter: Adapter | None = None,
        gradient_checkpointing: bool = False,
        chunk: int = CHUNK,
    ) -> None:
        """Wrap a transformers causal language model.

        Args:
            model: float32 weights; stays in evaluation mode, for dropout would change the ratio to the old policy.
            autocast: float type of the training passes; None computes in the weights' own.
            share_prompts: False gives each sequence a row of its own.
            adapter: the LoRA adapter in the model's layers, where only that is trained.
            gradient_checkpointing: keep only the inputs of layers for the backward pass: less memory, more time.
            chunk: tokens whose logits exist at one time.

        Raises:
            UsageError: if gradient checkpointing is asked of a model that does not mark its layers.
        """
        self.model, self.adapter, self.autocast = model.eval(), adapter, autocast
        self.shares_prompts = False
        self._scorer = Scorer(model, chunk).eval()
        self._frozen: Scorer | None = None
        self._probe(share_prompts)
        if gradient_checkpointing:
            recompute_layers(model)

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        device: torch.device = self.model.device
        return device

    def parameters(self) -> list[torch.nn.Parameter]:
        """The weights that are trained: all of the model's, with LoRA the adapter's."""
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def plain_weights(self) -> Iterator[tuple[str, Tensor]]:
        """All weights under the plain model's names, the adapter added in: what an engine elsewhere must load."""
        return merged_weights(self.model)

    def save_pretrained(self, folder: str) -> None:
        """Write a Hugging Face folder of the model, or of the adapter alone."""
        (self.model if self.adapter is None else self.adapter).save_pretrained(folder)

    def score(self, batch: MicroBatch, temperature: float, entropy_gradient: bool = False) -> TokenScores:
        """Log-probabilities and entropies of the batch's sampled tokens.

        Args:
            batch: rows of tokens.
            temperature: the logits are divided by it.
            entropy_gradient: give the entropies a gradient as well, for an entropy bonus.
        """
        batch = _moved(batch, self.device)
        with self._cast():
            scores: TokenScores = self._scorer(batch, temperature, entropy_gradient)
        return scores

    def freeze_reference(self) -> None:
        """Make the weights of this moment those that `reference` scores under.

        Costs a second copy of the model. With LoRA it does nothing: the reference is the model without the adapter.
        """
        if self.adapter is None:
            frozen = copy.deepcopy(self._scorer)
            self._frozen = frozen.requires_grad_(False)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Score under the reference policy, without gradient, for as long as the context lasts.

        The reference is the model without its adapter, or else the copy that `freeze_reference` made.

        Raises:
            RuntimeError: if no reference has been made.
        """
        if self.adapter is None and self._frozen is None:
            raise RuntimeError("there is no reference policy: call freeze_reference first")
        current = self._scorer
        with torch.no_grad(), nullcontext() if self.adapter is None else self.adapter.switched_off():
            try:
                self._scorer = self._frozen or current
                yield
            finally:
                self._scorer = current

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
            self._scorer.splits_head = True
            if not self._agrees(probe, plain, shared=False):
                # Some models scale or cap the logits after the head; they keep their own forward pass.
                self._scorer.splits_head = False
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


def _moved(batch: MicroBatch, device: torch.device) -> MicroBatch:
    tensors = {f.name: getattr(batch, f.name).to(device) for f in fields(batch) if f.name != "shared"}
    return replace(batch, **tensors)
