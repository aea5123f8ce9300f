"""The environment's weights, all the time."""

from collections.abc import Mapping
from dataclasses import dataclass

from corrgrpo_train.weighting.registry import register
from corrgrpo_train.weighting.rule import Rule, State, Weights


@register("fixed")
@dataclass(frozen=True, kw_only=True)
class Fixed(Rule):
    """w(step) = base."""

    def weights(self, state: State, base: Mapping[str, float], step: int) -> Weights:
        """The base weights."""
        return dict(base)
