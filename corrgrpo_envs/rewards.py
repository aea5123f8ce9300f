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

from corrgrpo_envs.errors import shown, unknown

# Vector environments put keys of their own into `info`.
_RESERVED = ("final_obs", "final_info", "episode")
_LARGEST = float(np.finfo(np.float32).max)


def check_name(what: str, name: object) -> None:
    """Check that a name can be a key of an `info` dict, also in a vector environment.

    Raises:
        ValueError: if it is not a text, is empty, starts with `_` or is one of Gymnasium's own keys.
    """
    if not isinstance(name, str) or not name or name.startswith("_") or name in _RESERVED:
        raise ValueError(f"{what} must be a text that does not start with '_' nor is one of {_RESERVED}: {name!r}")


def _number(what: str, value: object) -> float:
    """Return a finite number as a float."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if abs(number) <= _LARGEST:
            return number
    raise ValueError(f"{what} must be a finite number, not {shown(value)}")


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
        check_name("a reward component's name", self.name)
        for attribute in ("weight", "low", "high"):
            what = f"the {attribute} of reward component {self.name!r}"
            object.__setattr__(self, attribute, _number(what, getattr(self, attribute)))
        if self.low > self.high:
            raise ValueError(f"the range of reward component {self.name!r} must be ordered: [{self.low}, {self.high}]")


class RewardSpec:
    """An ordered, immutable set of reward components with their weights."""

    def __init__(self, components: Iterable[RewardComponent]) -> None:
        """Keep the components in the order given.

        Raises:
            ValueError: if there are none, one is no `RewardComponent`, or two share a name.
        """
        self._components = tuple(components)
        for component in self._components:
            if not isinstance(component, RewardComponent):
                raise ValueError(f"components must be RewardComponents, not {shown(component)}")
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

    def __contains__(self, item: object) -> bool:
        return item in self._by_name if isinstance(item, str) else item in self._components

    def __getitem__(self, name: str) -> RewardComponent:
        if isinstance(name, str) and name in self._by_name:
            return self._by_name[name]
        raise unknown("reward component", name, self.names)

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
        if weights is not None and not isinstance(weights, Mapping):
            names = ", ".join(self.names)
            raise ValueError(f"reward_weights must map component names ({names}) to numbers, not {shown(weights)}")
        changed = dict(self._by_name)
        for name, weight in (weights or {}).items():
            changed[name] = replace(self[name], weight=weight)
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
            RuntimeError: if the key set differs from the spec's, or a value is no number or infinite: a fault
                of the environment, not of the policy.
        """
        if set(components) != set(self._by_name):
            raise RuntimeError(f"reward components are {sorted(map(str, components))}, expected {sorted(self.names)}")
        checked: dict[str, float] = {}
        for name in self.names:
            try:
                value = float(components[name])
            except (TypeError, ValueError, OverflowError):
                value = math.inf
            if math.isinf(value):
                raise RuntimeError(f"reward component {name!r} is {shown(components[name])}: must be finite or nan")
            # One nan object everywhere, so that equal infos compare equal (dicts compare identity first).
            checked[name] = math.nan if math.isnan(value) else value
        return checked

    def total(self, components: Mapping[str, float]) -> float:
        """Σ weight · value over the components of non-zero weight; `nan` if one of those is `nan`.

        Raises:
            RuntimeError: if the sum is infinite.
        """
        terms = [c.weight * float(components[c.name]) for c in self._components if c.weight != 0]
        if any(math.isnan(term) for term in terms):
            return math.nan
        # Correctly rounded, so the same on every Python and in every order of the components.
        total = math.fsum(terms) if all(math.isfinite(term) for term in terms) else math.inf
        if math.isinf(total):
            raise RuntimeError(f"the weighted sum of the reward components {dict(components)} is not finite")
        return total

    def vector(self, components: Mapping[str, float]) -> NDArray[np.float32]:
        """The raw components as a new float32 vector, shape (K,)."""
        return np.array([components[name] for name in self.names], dtype=np.float32)

    def space(self) -> Box:
        """The `Box` of a step's raw component vector, shape (K,), float32.

        It spans the components' ranges and 0, which is what a step without scores returns.
        """
        low = np.array([min(c.low, 0.0) for c in self._components], dtype=np.float32)
        high = np.array([max(c.high, 0.0) for c in self._components], dtype=np.float32)
        return Box(low, high, dtype=np.float32)
