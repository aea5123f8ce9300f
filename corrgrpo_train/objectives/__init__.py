"""Objectives: token losses and how they are aggregated. Pure tensors, no trainer import."""

from corrgrpo_train.objectives.aggregation import (
    AGGREGATIONS,
    constant_weights,
    sequence_weights,
    token_weights,
)
from corrgrpo_train.objectives.surrogate import Surrogate, clipped_surrogate

OBJECTIVES = {"grpo": clipped_surrogate}

__all__ = [
    "AGGREGATIONS",
    "OBJECTIVES",
    "Surrogate",
    "clipped_surrogate",
    "constant_weights",
    "sequence_weights",
    "token_weights",
]
