"""Generation: engines that sample completions of token sequences from the current policy."""

from corrgrpo_train.engines.base import AsyncEngine, Completion, Engine, SamplingRequest

__all__ = ["AsyncEngine", "Completion", "Engine", "SamplingRequest"]
