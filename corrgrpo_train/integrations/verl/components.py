"""`BatchComponents`: the reward components of a batch, carried past verl to the estimator that needs them.

verl calls an estimator that it does not know with scalar rewards, masks and group labels; only its own "gdpo" gets
the rest of the batch. So whoever calls verl's `compute_advantage` holds the components ready around the call:

    with BatchComponents.of_batch(data.non_tensor_batch).carried():
        data = compute_advantage(data, adv_estimator="corrgrpo", config=config)
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

COMPONENTS = "reward_components"
"""Key of a row's raw components by name, in `extra_fields` and in `non_tensor_batch`."""
WEIGHTS = "reward_weights"
"""Key of their weights by name."""


@dataclass(eq=False)
class BatchComponents:
    """What an estimator needs beside verl's own tensors.

    Attributes:
        names: of the components, K of them.
        values: raw components, shape (N, K), float64, rows in the batch's order; nan where a row is not scored.
        real: shape (N,), False for rows that only fill a batch up.
        weights: shape (K,), float64.
        options: of the estimator.
        diagnostics: what the estimator said of the batch; filled in by the call.
    """

    names: tuple[str, ...]
    values: Tensor
    real: Tensor
    weights: Tensor
    options: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_rows(
        cls,
        components: Sequence[Mapping[str, float] | None],
        weights: Sequence[Mapping[str, float] | None],
        options: Mapping[str, Any] | None = None,
    ) -> "BatchComponents":
        """Read rows of names and numbers.

        Args:
            components: of each row; empty where the episode was not scored, None where the row only fills a batch up.
            weights: of each row, the same in all scored rows.
            options: of the estimator.

        Raises:
            ValueError: if scored rows differ in names or weights.
        """
        scored = [(row, dict(factors or {})) for row, factors in zip(components, weights, strict=True) if row]
        real = torch.tensor([row is not None for row in components], dtype=torch.bool)
        if not scored:
            empty = torch.empty(len(components), 0, dtype=torch.float64)
            return cls((), empty, real, torch.empty(0, dtype=torch.float64))
        names, factors = tuple(scored[0][0]), scored[0][1]
        for row, others in scored:
            if set(row) != set(names):
                raise ValueError(f"reward components differ between rows: {sorted(row)} and {sorted(names)}")
            if others != factors:
                raise ValueError(f"reward weights differ between rows: {others} and {factors}")
        if set(factors) != set(names):
            raise ValueError(f"reward weights are given for {sorted(factors)}, components for {sorted(names)}")
        values = [[float((row or {}).get(name, math.nan)) for name in names] for row in components]
        return cls(
            names,
            torch.tensor(values, dtype=torch.float64),
            real,
            torch.tensor([float(factors[name]) for name in names], dtype=torch.float64),
            dict(options or {}),
        )

    @classmethod
    def of_batch(cls, batch: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> "BatchComponents":
        """Read a verl batch's `non_tensor_batch`, into which verl's agent loops put our loop's extra fields.

        Raises:
            ValueError: if the components are not there, or rows differ.
        """
        for key in (COMPONENTS, WEIGHTS):
            if key not in batch:
                raise ValueError(f"the batch has no {key!r}; it has {sorted(batch)}. Use the agent loop 'corrgrpo'")
        return cls.of_rows(list(batch[COMPONENTS]), list(batch[WEIGHTS]), options)

    @contextmanager
    def carried(self) -> Iterator["BatchComponents"]:
        """Hold these components ready for estimators that are called inside the block, in this thread or task."""
        token = _CARRIED.set(self)
        try:
            yield self
        finally:
            _CARRIED.reset(token)


_CARRIED: ContextVar[BatchComponents | None] = ContextVar("carried_components", default=None)


def carried_components() -> BatchComponents | None:
    """What a `carried` block around the caller holds; None outside of one."""
    return _CARRIED.get()
