"""Weights that follow a line or a broken line over the steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from corrgrpo_train.weighting.registry import register
from corrgrpo_train.weighting.rule import Rule, State, Weights, is_number, numbers_by_component


def interpolated(points: Sequence[tuple[float, float]], step: float) -> float:
    """The broken line through `points` (step, weight), ascending in step; level before the first and after the last."""
    if step <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if step <= right:
            return low + (high - low) * (step - left) / (right - left)
    return points[-1][1]


@register("linear")
@dataclass(frozen=True, kw_only=True)
class Linear(Rule):
    """From the base weight at step `start_step` in a straight line to `to` at step `end`, and level from there.

    Components that `to` does not name keep their base weight.
    """

    to: Mapping[str, float]
    end: int
    start_step: int = 1

    def __post_init__(self) -> None:
        numbers_by_component("to", self.to)
        for name in ("start_step", "end"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"option {name!r} must be a step, a whole number, not {value!r}")
        if not self.start_step < self.end:
            raise ValueError(f"option 'end' ({self.end}) must be above 'start_step' ({self.start_step})")

    @property
    def names(self) -> tuple[str, ...]:
        """The components that change."""
        return tuple(self.to)

    def weights(self, state: State, base: Mapping[str, float], step: int) -> Weights:
        """Base weights on their way to `to`."""
        return {
            name: interpolated([(self.start_step, weight), (self.end, self.to.get(name, weight))], step)
            for name, weight in base.items()
        }


@register("piecewise")
@dataclass(frozen=True, kw_only=True)
class Piecewise(Rule):
    """A broken line per component, `points` = {name: [[step, weight], …]}; others keep their base weight.

    Before a line's first step its first weight holds, after its last step its last one. A jump is two points a
    step apart.
    """

    points: Mapping[str, Sequence[Sequence[float]]]

    def __post_init__(self) -> None:
        if not isinstance(self.points, Mapping):
            raise ValueError(f"option 'points' must be a mapping of component names to lines, not {self.points!r}")
        for name, line in self.points.items():
            _check_line(name, line)

    @property
    def names(self) -> tuple[str, ...]:
        """The components that change."""
        return tuple(self.points)

    def weights(self, state: State, base: Mapping[str, float], step: int) -> Weights:
        """Each component's line at the step."""
        lines = {name: [(at, weight) for at, weight in line] for name, line in self.points.items()}
        return {name: interpolated(lines[name], step) if name in lines else weight for name, weight in base.items()}


def _check_line(name: str, line: Any) -> None:
    is_line = isinstance(line, Sequence) and not isinstance(line, str) and len(line) > 0
    pairs = is_line and all(isinstance(p, Sequence) and len(p) == 2 and all(map(is_number, p)) for p in line)
    if not pairs or any(left[0] >= right[0] for left, right in pairwise(line)):
        raise ValueError(f"option 'points.{name}' must be pairs [step, weight] of ascending steps, not {line!r}")
