"""From measured cells to a comparison: JSON data with everything that tables and charts show."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corrgrpo_train.benchmark.fronts import fronts
from corrgrpo_train.benchmark.measured import Measured, Values, on_common_steps
from corrgrpo_train.benchmark.statistics import CONFIDENCE, holm, mean_interval, sign_flip_p

SCHEMA = 1
NOT_COMPARED = ("kl", "step_size", "sampled_reward", "share_without_signal")
"""Curves that are shown and not tested."""


def compare(measured: Sequence[Measured], baseline: str, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Compare methods at every point of the sweep.

    For each quantity: its final value, and the area under its curve (the mean over the course of training), both as
    means over seeds with intervals; and the paired difference from the baseline method under the same objective, with
    the probability of a sign-flip test. Holm's correction is over all differences of one quantity, those of all sweep
    points and objectives included.

    Cells are compared on the steps that all of them measured. A cell that has no value at the last step (training
    diverged, or nothing could be scored) has no values of that quantity: it is not compared at an earlier one.

    Args:
        measured: cells with the same seeds.
        baseline: registered name of a method among them.
        about: further entries of the result.

    Returns:
        `conditions`: a list with `sweep`, `rows` (method, objective, label, `values`, `differences`, `on_front`,
        `front_share`) and `front_volume`; and `measures`, `components`, `weights`, `seeds`, `baseline`, `confidence`.
    """
    points: list[dict[str, Any]] = []
    for cell in measured:
        if dict(cell.cell.sweep) not in points:
            points.append(dict(cell.cell.sweep))
    conditions = [_condition([m for m in measured if m.cell.sweep == point], point, baseline) for point in points]
    measures = list(dict.fromkeys(name for one in conditions for row in one["rows"] for name in row["values"]))
    for measure in measures:
        tested = [
            row["differences"][measure]
            for condition in conditions
            for row in condition["rows"]
            if measure in row["differences"]
        ]
        for difference, adjusted in zip(tested, holm([one["p"] for one in tested]), strict=True):
            difference["p_holm"] = adjusted
    return {
        "schema": SCHEMA,
        **(about or {}),
        "baseline": baseline,
        "seeds": list(measured[0].seeds),
        "confidence": CONFIDENCE,
        "components": list(dict.fromkeys(name for one in measured for name in one.components)),
        "weights": dict(measured[0].weights),
        "measures": measures,
        "conditions": conditions,
    }


def values_of(cell: Measured) -> dict[str, Values]:
    """Every quantity of a cell, one value per seed: `NAME/final` and `NAME/area`."""
    found = {}
    for name, curve in cell.curves.items():
        found[f"{name}/final"], found[f"{name}/area"] = curve.final, curve.area
    return found


def _condition(cells: Sequence[Measured], point: Mapping[str, Any], baseline: str) -> dict[str, Any]:
    cells = on_common_steps(cells)
    tables = [values_of(cell) for cell in cells]
    # Only cells that have a place in the space of all components.
    components = max((cell.components for cell in cells), key=len)
    shown = [place for place, cell in enumerate(cells) if components and cell.components == components]
    shape = fronts([cells[place] for place in shown]) if shown else None
    if shape is not None:
        for volumes, place in zip(shape.volumes, shown, strict=True):
            tables[place]["hypervolume/final"] = volumes
    bases = {
        cell.cell.objective: table
        for cell, table in zip(cells, tables, strict=True)
        if cell.cell.method_name == baseline
    }
    rows = []
    for place, (cell, table) in enumerate(zip(cells, tables, strict=True)):
        base = {} if cell.cell.method_name == baseline else bases[cell.cell.objective]
        rows.append(
            {
                "method": cell.cell.method_name,
                "objective": cell.cell.objective,
                "values": {name: mean_interval(values).to_json() for name, values in table.items()},
                "differences": {
                    name: difference(values, base[name])
                    for name, values in table.items()
                    if name in base and not name.startswith(NOT_COMPARED)
                },
                "on_front": bool(shape.members[shown.index(place)]) if shape and place in shown else None,
                "front_share": float(shape.shares[shown.index(place)]) if shape and place in shown else None,
            }
        )
    return {"sweep": dict(point), "rows": rows, "front_volume": shape.volume if shape else None}


def difference(values: Values, base: Values) -> dict[str, Any]:
    """The mean paired difference with interval and p; `seeds_better` counts pairs, a tie as a half."""
    apart = values - base
    better = float(np.sum(apart > 0) + np.sum(apart == 0) / 2)
    return {**mean_interval(apart).to_json(), "p": sign_flip_p(apart), "seeds_better": better}


def label_of(row: Mapping[str, Any], objectives: Sequence[str]) -> str:
    """The method's name, with its objective where there are several."""
    return f"{row['method']}, {row['objective']}" if len(objectives) > 1 else str(row["method"])


def objectives_of(comparison: Mapping[str, Any]) -> list[str]:
    """The objectives in a comparison, in order."""
    return list(dict.fromkeys(row["objective"] for one in comparison["conditions"] for row in one["rows"]))


def title_of(condition: Mapping[str, Any]) -> str:
    """A condition's point of the sweep in words; empty where nothing was swept."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in condition["sweep"].items())


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)
