"""All weights larger after a step that widened the front of validation results: hypervolume weighting."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corrgrpo_train.weighting.registry import register
from corrgrpo_train.weighting.rule import Rule, State, Weights

Point = tuple[float, ...]


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Volume that the points dominate above the reference, all objectives maximised.

    Exact, by exclusive volumes: each point adds its own box less what later points cover of it. A point that
    is not above the reference in every objective adds nothing. Exponential in the number of objectives at worst;
    quick for the tens of points and the few objectives here.
    """
    above = [tuple(x - r for x, r in zip(point, reference, strict=True)) for point in points]
    return _volume([point for point in above if min(point) > 0])


def _volume(points: list[Point]) -> float:
    front = sorted(_front(points), reverse=True)
    return math.fsum(
        math.prod(point) - _volume([tuple(map(min, point, other)) for other in front[place + 1 :]])
        for place, point in enumerate(front)
    )


def _front(points: list[Point]) -> list[Point]:
    """The points that no other one dominates; of equal ones the first."""
    kept: list[Point] = []
    for point in sorted(set(points), reverse=True):  # what dominates a point stands before it
        if not any(all(a >= b for a, b in zip(other, point, strict=True)) for other in kept):
            kept.append(point)
    return kept


def factor_of_gain(gain: float) -> float:
    """0.5 + 1.5 · tanh(ΔHV): from 0.5 where nothing was gained towards 2."""
    return 0.5 + 1.5 * math.tanh(gain)


@register("hypervolume")
@dataclass(frozen=True, kw_only=True)
class Hypervolume(Rule):
    """Multiply all base weights by 0.5 + 1.5 · tanh(ΔHV) of the latest validation; by 1 before the first.

    ΔHV = HV(front ∪ p) − HV(front), p being the validation's mean components (turned round where the base
    weight is negative, left out where it is 0), the reference point those before training. p joins the front if
    ΔHV > 0. A component of which the validation says nothing (`nan`) makes it say nothing at all.

    The published form validates after every step: `validation_every=1`. Otherwise a factor holds until the next
    validation. Estimators that divide by the total's spread (`grpo`, `gdpo`, `mo_grpo`, `rdpo`) cancel a common
    factor, up to ε: use it with `corrgrpo`, `dr_grpo` or `rloo`.
    Source: arXiv 2509.11452, and its published code.
    """

    needs_validation = True

    def start(self) -> State:
        """Nothing validated."""
        return {"reference": None, "front": [], "gain": 0.0, "factor": 1.0}

    def weights(self, state: State, base: Mapping[str, float], step: int) -> Weights:
        """Base weights times the factor."""
        return {name: weight * state["factor"] for name, weight in base.items()}

    def after_validation(self, state: State, base: Mapping[str, float], means: Mapping[str, float], step: int) -> State:
        """Measure what the validation adds to the front."""
        point = [math.copysign(1.0, weight) * means.get(name, math.nan) for name, weight in base.items() if weight]
        if any(map(math.isnan, point)):
            return state
        if step == 0 or state["reference"] is None:
            return {**self.start(), "reference": point}
        before = hypervolume(state["front"], state["reference"])
        gain = hypervolume([*state["front"], point], state["reference"]) - before
        front = [*state["front"], point] if gain > 0 else state["front"]
        return {"reference": state["reference"], "front": front, "gain": gain, "factor": factor_of_gain(gain)}

    def measures(self, state: State) -> dict[str, float]:
        """Factor, latest gain, and the front's volume."""
        volume = hypervolume(state["front"], state["reference"]) if state["reference"] is not None else 0.0
        return {"factor": state["factor"], "gain": state["gain"], "volume": volume}
