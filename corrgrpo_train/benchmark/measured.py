"""`Measured`: what the runs of one cell gave, as curves over the steps, one line per seed."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from corrgrpo_train.benchmark.plan import Cell

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """A number over the course of training.

    Attributes:
        steps: training steps done at each measurement, ascending, length E.
        values: shape (S, E), a line per seed.
    """

    steps: tuple[float, ...]
    values: Values

    @property
    def first(self) -> Values:
        """Value before training, shape (S,)."""
        return self.values[:, 0]

    @property
    def final(self) -> Values:
        """Value at the last measurement, shape (S,)."""
        return self.values[:, -1]

    @property
    def area(self) -> Values:
        """Area under the curve by trapezoids over the steps between first and last, shape (S,).

        It has the unit of the values: the mean over the course of training.
        """
        if len(self.steps) == 1:
            return self.final
        width = np.diff(self.steps)
        heights = (self.values[:, 1:] + self.values[:, :-1]) / 2
        return np.asarray(heights @ width / width.sum(), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Measured:
    """The runs of one cell.

    Attributes:
        cell: what was run.
        seeds: one per line of every curve.
        curves: name to curve: `reward`, `components/NAME`, `metrics/NAME`, `entropy`, …
        weights: weight of each component in the reward.
    """

    cell: Cell
    seeds: tuple[int, ...]
    curves: Mapping[str, Curve]
    weights: Mapping[str, float]

    @property
    def components(self) -> list[str]:
        """Names of the reward components that were measured."""
        return [name.removeprefix("components/") for name in self.curves if name.startswith("components/")]

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "method": self.cell.method,
            "objective": self.cell.objective,
            "sweep": dict(self.cell.sweep),
            "seeds": list(self.seeds),
            "weights": dict(self.weights),
            "curves": {
                name: {"steps": list(curve.steps), "values": curve.values.tolist()}
                for name, curve in self.curves.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Back from JSON data."""
        curves = {
            name: Curve(tuple(curve["steps"]), np.array(curve["values"], dtype=np.float64))
            for name, curve in data["curves"].items()
        }
        cell = Cell(data["method"], data["objective"], data["sweep"])
        return cls(cell, tuple(data["seeds"]), curves, data["weights"])


def on_common_steps(cells: Sequence[Measured]) -> list[Measured]:
    """The cells with every curve on the steps that all of them have; a curve that ends earlier than others is left out.

    Values at different steps are no comparison: of a run that diverged, or whose last answers could not be scored, the
    last number would be one from an earlier, perhaps better, time.
    """
    names = dict.fromkeys(name for cell in cells for name in cell.curves)
    ends = {name: max(cell.curves[name].steps[-1] for cell in cells if name in cell.curves) for name in names}
    whole = [{name: c for name, c in cell.curves.items() if c.steps[-1] == ends[name]} for cell in cells]
    common = {
        name: set[float].intersection(*(set(curves[name].steps) for curves in whole if name in curves))
        for name in names
    }
    return [
        replace(cell, curves={name: _on_steps(curve, common[name]) for name, curve in curves.items()})
        for cell, curves in zip(cells, whole, strict=True)
    ]


def _on_steps(curve: Curve, steps: Collection[float]) -> Curve:
    kept = [place for place, step in enumerate(curve.steps) if step in steps]
    return Curve(tuple(curve.steps[place] for place in kept), curve.values[:, kept])


Points = Sequence[tuple[float, float]]


def stacked(runs: Sequence[Mapping[str, Points]]) -> dict[str, Curve]:
    """Curves of several runs on the steps that all of them measured; what a run lacks is left out.

    Args:
        runs: one per seed: name to points (step, value).
    """
    curves = {}
    for name in runs[0]:
        lines = [dict(run.get(name, ())) for run in runs]
        steps = [step for step in lines[0] if all(math.isfinite(line.get(step, math.nan)) for line in lines)]
        if steps:
            values = [[line[step] for step in sorted(steps)] for line in lines]
            curves[name] = Curve(tuple(sorted(steps)), np.array(values, dtype=np.float64))
    return curves
