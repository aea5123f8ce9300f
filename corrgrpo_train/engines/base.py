"""What an engine is asked and what it answers.

An engine samples completions of token sequences. It knows nothing of chats, environments or rewards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """One completion to sample.

    Attributes:
        prompt_ids: the tokens before the completion.
        max_new_tokens: the completion ends after so many tokens at the latest.
        key: seeds this sequence's own random numbers, e.g. (run seed, step, group, member, turn).
    """

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """What was sampled.

    Attributes:
        token_ids: the sampled tokens, the end token included where it was sampled.
        logprobs: natural log-probability of each token at the sampling temperature, same length
            (at temperature 0 that of temperature 1).
        finished: an end token was sampled; else the limit cut the completion.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


class Engine(Protocol):
    """Samples completions from the current policy."""

    def generate(self, requests: Sequence[SamplingRequest], *, temperature: float) -> list[Completion]:
        """Sample one completion per request, in order; temperature 0 is greedy."""

    def update_weights(self) -> None:
        """Take over the policy's weights after an update."""

    def close(self) -> None:
        """Give back what the engine holds; it is not used afterwards."""


@runtime_checkable
class AsyncEngine(Engine, Protocol):
    """An engine that takes requests at any time and decodes whatever is there."""

    def submit(self, request: SamplingRequest, *, temperature: float) -> str:
        """Add a request and return its ticket."""

    def advance(self) -> dict[str, Completion]:
        """Decode one more token of everything submitted and return what is complete now, by ticket."""

    def abandon(self) -> None:
        """Forget everything submitted that is not complete."""
