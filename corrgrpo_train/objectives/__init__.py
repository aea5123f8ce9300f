"""Objectives: token losses, their parts, and how they are aggregated. Pure tensors, no trainer import.

`OBJECTIVES` holds the surrogates by name; each is a function of log-probabilities, old log-probabilities and
advantages whose keyword options are settings of the same names.
"""

import inspect
from collections.abc import Callable

from corrgrpo_train.objectives.aggregation import (
    AGGREGATIONS,
    constant_weights,
    sequence_weights,
    token_weights,
)
from corrgrpo_train.objectives.cispo import cispo
from corrgrpo_train.objectives.dapo import dapo
from corrgrpo_train.objectives.grpo import clipped_surrogate
from corrgrpo_train.objectives.importance import IMPORTANCE_CORRECTIONS
from corrgrpo_train.objectives.kl import kl_k3
from corrgrpo_train.objectives.surrogate import Surrogate

OBJECTIVES: dict[str, Callable[..., Surrogate]] = {"grpo": clipped_surrogate, "dapo": dapo, "cispo": cispo}


def options_of(objective: str) -> dict[str, float]:
    """The options of an objective and their defaults."""
    parameters = inspect.signature(OBJECTIVES[objective]).parameters.values()
    return {item.name: item.default for item in parameters if item.kind is item.KEYWORD_ONLY}


__all__ = [
    "AGGREGATIONS",
    "IMPORTANCE_CORRECTIONS",
    "OBJECTIVES",
    "Surrogate",
    "cispo",
    "clipped_surrogate",
    "constant_weights",
    "dapo",
    "kl_k3",
    "options_of",
    "sequence_weights",
    "token_weights",
]
