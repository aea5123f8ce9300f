"""Generation with a transformers model: an own sampling loop with exact tokens and log-probabilities.

Each distinct prompt is computed once and its cache copied to the members of its group, what the prompts of later turns
begin with as well; sequences that have ended leave the batch.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from corrgrpo_train.engines.base import Completion, SamplingRequest
from corrgrpo_train.engines.cache import roomy_cache
from corrgrpo_train.engines.prefixes import common_prefixes
from corrgrpo_train.engines.sampling import draw, uniforms
from corrgrpo_train.errors import UsageError, first_line


class TransformersEngine:
    """Samples from a model in this process; it shares the policy's weights."""

    def __init__(
        self, model: Any, eos_ids: Sequence[int], *, max_batch: int = 64, max_cached_tokens: int = 16_384
    ) -> None:
        """Wrap a model.

        Args:
            model: a transformers causal language model.
            eos_ids: a completion ends with any of these.
            max_batch: at most so many sequences are decoded together,
            max_cached_tokens: and so many that their prompts and longest completions, padded to the longest, are
                within this number of tokens; one sequence always is decoded.
        """
        self.model, self.max_batch, self.max_cached_tokens = model, max_batch, max_cached_tokens
        self.eos = torch.tensor(sorted(set(eos_ids)))

    def update_weights(self) -> None:
        """Nothing to do: the weights are the policy's own."""

    def close(self) -> None:
        """Nothing to do: the model is the policy's."""

    @torch.inference_mode()
    def generate(self, requests: Sequence[SamplingRequest], *, temperature: float) -> list[Completion]:
        """Sample one completion per request, in order; temperature 0 is greedy.

        Raises:
            UsageError: if the model's output is not numbers any more, training having diverged, or the device fails.
        """
        training = self.model.training
        self.model.eval()
        try:
            return [completion for batch in self._batches(requests) for completion in self._batch(batch, temperature)]
        except torch.OutOfMemoryError:
            raise  # whoever knows the settings says which to lower
        except RuntimeError as error:
            if "can't allocate memory" in str(error):
                raise
            raise UsageError(
                f"generation failed: {first_line(error)}; what the run folder holds is kept: continue with --resume "
                "(--traceback shows where it failed)"
            ) from error
        finally:
            self.model.train(training)

    def _batches(self, requests: Sequence[SamplingRequest]) -> Iterator[Sequence[SamplingRequest]]:
        """Cut the requests, in their order, into parts of even size that can be decoded together."""
        longest = max((len(request.prompt_ids) + request.max_new_tokens for request in requests), default=1)
        most = max(1, min(self.max_batch, self.max_cached_tokens // longest))
        count = -(-len(requests) // most)
        for part in range(count):
            yield requests[part * len(requests) // count : (part + 1) * len(requests) // count]

    def _batch(self, requests: Sequence[SamplingRequest], temperature: float) -> list[Completion]:
        device, eos = self.model.device, self.eos.to(self.model.device)
        limits = [request.max_new_tokens for request in requests]
        longest = max(limits)
        noise = torch.zeros(len(requests), longest, dtype=torch.float64)
        if temperature > 0:
            for row, request in enumerate(requests):
                noise[row, : limits[row]] = torch.from_numpy(uniforms(request.key, limits[row]))
        noise = noise.to(device)
        tokens = torch.zeros(len(requests), longest, dtype=torch.long, device=device)
        logprobs = torch.zeros(len(requests), longest, device=device)
        lengths = torch.tensor(limits, device=device)
        finished = torch.zeros(len(requests), dtype=torch.bool, device=device)

        logits, cache, mask = self._prefill([request.prompt_ids for request in requests])
        live = torch.arange(len(requests), device=device)  # rows of the batch that are still decoded
        for position in range(longest):
            drawn, drawn_logprobs = draw(logits, noise[live, position], temperature)
            tokens[live, position], logprobs[live, position] = drawn, drawn_logprobs
            ended = torch.isin(drawn, eos)
            finished[live] |= ended
            lengths[live] = torch.where(ended, position + 1, lengths[live])
            stays = position + 1 < lengths[live]
            if not stays.any():
                break
            if not stays.all():
                keep = stays.nonzero().squeeze(-1)
                live, drawn, mask = live[keep], drawn[keep], mask[keep]
                cache.batch_select_indices(keep)
            mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)
            logits = self._forward(drawn.unsqueeze(-1), mask, mask.sum(1, keepdim=True) - 1, cache)
        if not logprobs.isfinite().all():
            raise UsageError(
                "the policy's probabilities are not numbers any more (nan): training has diverged; start again with a "
                "lower learning_rate or max_grad_norm"
            )
        return [
            Completion(
                token_ids=tuple(tokens[row, : lengths[row]].tolist()),
                logprobs=tuple(logprobs[row, : lengths[row]].tolist()),
                finished=bool(finished[row]),
            )
            for row in range(len(requests))
        ]

    def _prefill(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Tensor, DynamicCache, Tensor]:
        """Compute each distinct prompt once, and what several begin with once for all of them.

        Returns:
            logits (B, V), cache and mask (B, L) of all requests.
        """
        device = self.model.device
        distinct = {prompt: index for index, prompt in enumerate(dict.fromkeys(prompts))}
        prefixes, family = common_prefixes(list(distinct))
        cache = roomy_cache(self.model.config)
        mask = torch.zeros(len(prefixes), 0, dtype=torch.long, device=device)
        if any(prefixes):
            _, mask = self._extend(prefixes, mask, cache)
            rows = torch.tensor(family, device=device)
            cache.batch_select_indices(rows)
            mask = mask[rows]
        else:
            mask = mask.expand(len(distinct), 0)
        rests = [prompt[len(prefixes[number]) :] for prompt, number in zip(distinct, family, strict=True)]
        logits, mask = self._extend(rests, mask, cache)
        rows = torch.tensor([distinct[prompt] for prompt in prompts], device=device)
        cache.batch_select_indices(rows)
        return logits[rows], cache, mask[rows]

    def _extend(self, texts: Sequence[tuple[int, ...]], mask: Tensor, cache: DynamicCache) -> tuple[Tensor, Tensor]:
        """Compute further tokens of every sequence; return the last one's logits (B, V) and the new mask (B, L)."""
        longest = max(map(len, texts))
        # Padded on the left, so that every sequence's next token lies in the same column.
        ids = torch.tensor([[0] * (longest - len(text)) + list(text) for text in texts])
        new = torch.tensor([[0] * (longest - len(text)) + [1] * len(text) for text in texts])
        mask = torch.cat([mask, new.to(mask.device)], dim=1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -longest:]
        return self._forward(ids.to(mask.device), mask, positions, cache), mask

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache) -> Tensor:
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1]
        return logits
