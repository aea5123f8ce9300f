"""What a weighting rule is, and what it is shown."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

Weights: TypeAlias = dict[str, float]
State: TypeAlias = dict[str, Any]
"""What a rule remembers: JSON data with text keys, so that a checkpoint can hold it exactly."""


@dataclass(frozen=True)
class Rollout:
    """What a rule is shown of a rollout, before the policy is updated on it.

    Attributes:
        base: the environment's weights by component.
        components: raw values by component, one per episode that was scored; `nan` where one has no value.
        learning_rate: of the update that follows.
        products: given a range of layers (None: the rule's authors' choice), returns for every component of
            non-zero base weight s_i = Σ_j ⟨g_i, g_j⟩, g_i the policy gradient under component i alone, turned
            round where its weight is negative. It costs a forward and K backward passes.
    """

    base: Mapping[str, float]
    components: Mapping[str, Sequence[float]]
    learning_rate: float
    products: Callable[[tuple[int, int] | None], Mapping[str, float]]


class Rule(ABC):
    """A rule: its options, and pure functions from state to weights and from state to state.

    Only `weights` must be given. `needs_validation` and `needs_gradients` say what a run must offer.
    """

    needs_validation: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False

    @property
    def names(self) -> tuple[str, ...]:
        """Components that the options speak of: they must exist."""
        return ()

    def start(self) -> State:
        """The state before anything was seen. Later ones have the same keys."""
        return {}

    @abstractmethod
    def weights(self, state: State, base: Mapping[str, float], step: int) -> Weights:
        """The effective weights of a step (1, 2, …), for the names of `base`."""

    def after_rollout(self, state: State, rollout: Rollout) -> State:
        """The state after a training step's rollout."""
        return state

    def after_validation(self, state: State, base: Mapping[str, float], means: Mapping[str, float], step: int) -> State:
        """The state after a validation with these mean components; `step` 0 is before training."""
        return state

    def measures(self, state: State) -> dict[str, float]:
        """Numbers for the log."""
        return {}


def positive(**options: object) -> None:
    """Raise `ValueError` for the first option that is not a finite number above 0."""
    for name, value in options.items():
        if not is_number(value) or not value > 0:  # type: ignore[operator]
            raise ValueError(f"option {name!r} must be a finite number above 0, not {value!r}")


def numbers_by_component(option: str, value: object) -> dict[str, float]:
    """Read a mapping of component names to finite numbers.

    Raises:
        ValueError: if it is not one.
    """
    if not isinstance(value, Mapping) or not all(is_number(number) for number in value.values()):
        raise ValueError(f"option {option!r} must be a mapping of component names to finite numbers, not {value!r}")
    return {str(name): float(number) for name, number in value.items()}


def is_number(value: object) -> bool:
    """Whether it is a finite number, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are not nan; nan if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
