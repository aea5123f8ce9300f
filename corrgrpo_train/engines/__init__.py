"""Generation: engines that sample completions of token sequences from the current policy."""

from corrgrpo_train.engines.base import Completion, Engine, SamplingRequest

__all__ = ["Completion", "Engine", "SamplingRequest"]
