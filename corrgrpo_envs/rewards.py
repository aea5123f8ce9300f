"""Reward components and the one place where their weights live.

`RewardComponent` describes one named reward, `RewardSpec` an ordered set of them. The scalar reward of an
environment, its `info`, the trainer's log and the advantage estimator all read the same `RewardSpec`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from corrgrpo_envs.errors import unknown


@dataclass(frozen=True, slots=True)
class RewardComponent:
    """One named reward.

    Attributes:
        name: key in `info["reward_components"]`.
        weight: factor in the scalar reward. 0 keeps the component measured and logged, and out of the
            reward and of every advantage.
        low: smallest raw value that an episode can get.
        high: largest raw value.
        description: one line for people.
    """

    name: str
    weight: float = 1.0
    low: float = 0.0
    high: float = 1.0
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith("_"):
            raise ValueError(f"a reward component's name must be non-empty and not start with '_': {self.name!r}")
        if isinstance(self.weight, bool) or not math.isfinite(self.weight):
            raise ValueError(f"the weight of reward component {self.name!r} must be finite, not {self.weight!r}")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(
                f"the range of reward component {self.name!r} must be finite and ordered, not [{self.low}, {self.high}]"
            )
        for field in ("weight", "low", "high"):
            object.__setattr__(self, field, float(getattr(self, field)))


class RewardSpec:
    """An ordered, immutable set of reward components with their weights."""

    def __init__(self, components: Iterable[RewardComponent]) -> None:
        self._components = tuple(components)
        self._by_name = {component.name: component for component in self._components}
        if not self._components:
            raise ValueError("a RewardSpec needs at least one component")
        if len(self._by_name) != len(self._components):
            names = [component.name for component in self._components]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"reward component names must differ; twice: {twice}")

    @property
    def names(self) -> tuple[str, ...]:
        """Component names, in order."""
        return tuple(self._by_name)

    @property
    def weights(self) -> dict[str, float]:
        """A fresh dict of weights, in order."""
        return {component.name: component.weight for component in self._components}

    def __iter__(self) -> Iterator[RewardComponent]:
        return iter(self._components)

    def __len__(self) -> int:
        return len(self._components)

    def __getitem__(self, name: str) -> RewardComponent:
        try:
            return self._by_name[name]
        except KeyError:
            raise unknown("reward component", name, self.names) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RewardSpec) and self._components == other._components

    def __hash__(self) -> int:
        return hash(self._components)

    def __repr__(self) -> str:
        return "RewardSpec(" + ", ".join(f"{c.name}={c.weight:g}" for c in self._components) + ")"

    def with_weights(self, weights: Mapping[str, float] | None) -> "RewardSpec":
        """Return a spec in which the named components have other weights.

        Raises:
            ValueError: for a name that is not a component, or a weight that is not a finite number.
        """
        changed = dict(self._by_name)
        for name, weight in (weights or {}).items():
            component = self[name]
            if isinstance(weight, bool) or not isinstance(weight, (int, float, np.integer, np.floating)):
                raise ValueError(f"the weight of reward component {name!r} must be a number, not {weight!r}")
            changed[name] = replace(component, weight=float(weight))
        return RewardSpec(changed.values())

    def zeros(self) -> dict[str, float]:
        """A fresh vector of zeros, for a step at which nothing is scored yet."""
        return dict.fromkeys(self.names, 0.0)

    def unscored(self) -> dict[str, float]:
        """A fresh vector of `nan`: what an infrastructure failure leaves."""
        return dict.fromkeys(self.names, math.nan)

    def check(self, components: Mapping[str, float]) -> dict[str, float]:
        """Return the components as plain floats in the spec's order.

        Raises:
            RuntimeError: if the key set differs from the spec's or a value is infinite: a fault of the
                environment, not of the policy.
        """
        if set(components) != set(self._by_name):
            raise RuntimeError(f"reward components are {sorted(components)}, expected {sorted(self.names)}")
        values = {name: float(components[name]) for name in self.names}
        for name, value in values.items():
            if math.isinf(value):
                raise RuntimeError(f"reward component {name!r} is {value}: components must be finite or nan")
        # One nan object everywhere, so that equal infos compare equal (see `dict.__eq__` and identity).
        return {name: math.nan if math.isnan(value) else value for name, value in values.items()}

    def total(self, components: Mapping[str, float]) -> float:
        """Σ weight · value over the components of non-zero weight; `nan` if one of those is `nan`."""
        return sum((c.weight * float(components[c.name]) for c in self._components if c.weight != 0), 0.0)

    def vector(self, components: Mapping[str, float]) -> NDArray[np.float32]:
        """The raw components as a new float32 vector, shape (K,)."""
        return np.array([components[name] for name in self.names], dtype=np.float32)

    def space(self) -> Box:
        """The `Box` of raw component vectors, shape (K,), float32."""
        low = np.array([c.low for c in self._components], dtype=np.float32)
        high = np.array([c.high for c in self._components], dtype=np.float32)
        return Box(low, high, dtype=np.float32)
