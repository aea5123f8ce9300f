"""`PushCheck`: have the policy's weights arrived in another engine?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from corrgrpo_train.engines.base import Completion, SamplingRequest

_MEMBERS, _PROMPT, _NEW = 4, 32, 16  # sequences, and tokens of each
_MOVED = 1e-5  # nats: more than float32 rounding of one and the same forward pass


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found.

    Attributes:
        difference: mean absolute difference of the two log-probabilities, in nats per token.
        policy_is_nan: the policy's own log-probabilities are not all numbers.
        stale: the engine answered bit for bit as before, although the policy's log-probabilities have changed.
    """

    difference: float
    policy_is_nan: bool
    stale: bool


class PushCheck:
    """Compares an engine's log-probabilities of tokens that it has just sampled with the policy's.

    Attributes:
        requests: what the engine has to sample, at temperature 1.
    """

    def __init__(self, model: Any, *, context: int, exact: bool) -> None:
        """Choose the prompt.

        Args:
            model: the policy's causal language model.
            context: tokens that prompt and completion may have together.
            exact: the engine holds the weights in the policy's own float type, so that any change must show.
        """
        self.model, self.exact = model, exact
        length = max(1, min(_PROMPT, context // 2))
        new = max(1, min(_NEW, context - length))
        vocabulary = model.get_input_embeddings().weight.shape[0]
        prompt = np.random.default_rng(0).integers(vocabulary, size=length)
        self.requests = [SamplingRequest(tuple(prompt.tolist()), new, (0, member)) for member in range(_MEMBERS)]
        self._before: tuple[list[Completion], list[float]] | None = None

    def compare(self, completions: Sequence[Completion]) -> Comparison:
        """Compare the engine's answers to `requests`."""
        engine = [logprob for completion in completions for logprob in completion.logprobs]
        policy = [
            logprob
            for request, completion in zip(self.requests, completions, strict=True)
            for logprob in plain_logprobs(self.model, request.prompt_ids, completion.token_ids)
        ]
        stale = False
        if self.exact and self._before is not None and self._before[0] == list(completions):
            stale = max(abs(new - old) for new, old in zip(policy, self._before[1], strict=True)) > _MOVED
        if not stale:
            self._before = list(completions), policy
        difference = float(np.mean([abs(one - other) for one, other in zip(engine, policy, strict=True)]))
        return Comparison(difference, any(map(math.isnan, policy)), stale)


@torch.no_grad()
def plain_logprobs(model: Any, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float]:
    """Log-probabilities of tokens after a prompt at temperature 1, from one plain forward pass."""
    ids = torch.tensor([[*prompt_ids, *token_ids]], device=model.device)
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt_ids) - 1 : -1].float()
    chosen = torch.log_softmax(logits, dim=-1).gather(-1, ids[0, len(prompt_ids) :, None])
    found: list[float] = chosen.squeeze(-1).tolist()
    return found
