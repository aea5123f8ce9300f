"""The policy: a causal language model and the log-probabilities of given tokens under it."""

import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from corrgrpo_train.models.layers import recompute_layers
from corrgrpo_train.models.lora import Adapter, merged_weights
from corrgrpo_train.packing import MicroBatch, micro_batches, without_targets
from corrgrpo_train.processes import Processes
from corrgrpo_train.rollout.episode import TokenSequence
from corrgrpo_train.scoring import CHUNK, Scorer, TokenScores
from corrgrpo_train.sharding import filled, gathered, shard, spread_like, without_weights

logger = logging.getLogger(__name__)


class Policy:
    """Scores tokens under a model, with logits of a few hundred tokens at a time.

    Attributes:
        model: the transformers model; with LoRA its layers carry the adapter.
        adapter: its LoRA adapter, or None where all weights are trained.
        generator: what engines in this process generate with, inside `gathered`: the model itself, or with sharding a
            copy that has weights only there.
        processes: those that train this policy together.
        sharded: each process keeps a part of the weights.
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
        processes: Processes | None = None,
    ) -> None:
        """Wrap a transformers causal language model.

        Args:
            model: float32 weights; stays in evaluation mode, for dropout would change the ratio to the old policy.
            autocast: float type of the training passes; None computes in the weights' own.
            share_prompts: False gives each sequence a row of its own.
            adapter: the LoRA adapter in the model's layers, where only that is trained.
            gradient_checkpointing: keep only the inputs of layers for the backward pass: less memory, more time.
            chunk: tokens whose logits exist at one time.
            processes: those that train this policy together, each with a copy of it, or after `shard` a part.

        Raises:
            UsageError: if gradient checkpointing is asked of a model that does not mark its layers.
        """
        self.model, self.adapter, self.autocast = model.eval(), adapter, autocast
        self.processes = processes or Processes()
        self.generator, self.sharded = model, False
        self.shares_prompts = self._recomputes = False
        self._scorer = Scorer(model, chunk).eval()
        self._frozen: Scorer | None = None
        self._probe(share_prompts)
        if gradient_checkpointing:
            recompute_layers(model)
            self._recomputes = True

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        device: torch.device = self.model.device
        return device

    def parameters(self) -> list[torch.nn.Parameter]:
        """The weights that are trained: all of the model's, with LoRA the adapter's."""
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def shard(self, device: str, *, with_reference: bool) -> None:
        """Keep only this process's part of the weights from now on; gather layers where they are computed.

        Args:
            device: where the part is kept.
            with_reference: a reference policy will be frozen, which then needs a part of its own.

        Raises:
            UsageError: if the model does not mark its layers.
        """
        if with_reference and self.adapter is None:
            self._frozen = copy.deepcopy(self._scorer).requires_grad_(False)
        self.generator, self.sharded = without_weights(self.model), True
        for scorer in filter(None, (self._scorer, self._frozen)):
            shard(scorer, self.processes.count, device)

    @contextmanager
    def gathered(self) -> Iterator[Any]:
        """Have all weights in `generator` for as long as the context lasts; every process must take part."""
        with filled(self.generator, self.model) if self.sharded else nullcontext():
            yield self.generator

    def deal(self, batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        """This process's share of the micro-batches, which all processes have."""
        mine = self.processes.share(batches)
        if self.sharded and batches:
            # Layers are gathered from all processes: each must make as many passes as the others.
            mine += [without_targets(batches[-1])] * (-(-len(batches) // self.processes.count) - len(mine))
        return mine

    def clip_gradients(self, max_norm: float) -> float:
        """Add the gradients of all processes up, scale them down to the norm and return their norm before."""
        weights = self.parameters()
        if not self.sharded:
            self.processes.sum_gradients(weights)
        return float(gathered(torch.nn.utils.clip_grad_norm_(weights, max_norm)))

    def plain_weights(self) -> Iterator[tuple[str, Tensor]]:
        """All weights under the plain model's names, the adapter added in: what an engine elsewhere must load.

        With sharding they are there inside `gathered` only.
        """
        return merged_weights(self.generator)

    def save_pretrained(self, folder: str) -> None:
        """Write a Hugging Face folder of the model, or of the adapter alone; with sharding inside `gathered`."""
        if self.adapter is None:
            self.generator.save_pretrained(folder)
        else:
            self.adapter.save_pretrained(folder, self.generator.state_dict())

    def score(self, batch: MicroBatch, temperature: float, entropy_gradient: bool = False) -> TokenScores:
        """Log-probabilities and entropies of the batch's sampled tokens.

        Args:
            batch: rows of tokens.
            temperature: the logits are divided by it.
            entropy_gradient: give the entropies a gradient as well, for an entropy bonus.
        """
        batch = _moved(batch, self.device)
        with self._cast():
            return TokenScores(*self._scorer(batch, temperature, entropy_gradient))

    def freeze_reference(self) -> None:
        """Make the weights of this moment those that `reference` scores under.

        Costs a second copy of the model. With LoRA it does nothing: the reference is the model without the adapter.
        """
        if self.adapter is not None:
            return
        if not self.sharded:
            self._frozen = copy.deepcopy(self._scorer).requires_grad_(False)
        elif self._frozen is not None:
            with torch.no_grad():
                for kept, weight in zip(self._frozen.parameters(), self._scorer.parameters(), strict=True):
                    kept.copy_(weight)

    def load_reference(self, weights: Mapping[str, Tensor]) -> None:
        """Make the given weights, under the model's names, those that `reference` scores under.

        Raises:
            ValueError: if they are not the model's.
        """
        self.freeze_reference()
        assert self._frozen is not None
        with torch.no_grad():
            left = {id(weight): name for name, weight in self._frozen.model.named_parameters()}
            for name, weight in self._frozen.model.named_parameters(remove_duplicate=False):
                if name in weights and weights[name].shape == weight.shape:
                    weight.copy_(spread_like(weights[name], weight))
                    left.pop(id(weight), None)
        if left:
            raise ValueError(f"{next(iter(left.values()))} is missing or of another shape")

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
        if self.autocast is None:
            return nullcontext()
        # The cache keeps a copy of all weights for as long as the pass lasts, and spares little: what is recomputed
        # is cast again, which takes a hundredth of the time of a layer.
        return torch.autocast(self.device.type, dtype=self.autocast, cache_enabled=not self._recomputes)

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
