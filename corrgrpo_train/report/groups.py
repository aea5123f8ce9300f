"""`groups_of`: the groups of a run one by one, with the correlations of their components."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corrgrpo_train.report.runs import Row, Run, is_number

TOLERANCE = 1e-9
"""A component whose values differ by no more than this share of the largest is constant, as for the estimators."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Group:
    """The scored episodes of one task in one step.

    Attributes:
        step: training step.
        task: the task's id.
        size: number of episodes.
        means: by component.
        correlations: Pearson correlation of each pair of components that both vary.
        correlation_sum: Q, the sum of all correlations, signed by the weights.
    """

    step: int
    task: str
    size: int
    means: Mapping[str, float]
    correlations: Mapping[Pair, float]
    correlation_sum: float


def groups_of(run: Run, limit: int) -> list[Group]:
    """The groups of evenly spaced steps, about `limit` of them; of steps whose row is damaged, none."""
    weights = {int(row["step"]): row for row in run.rows if row.get("phase", "train") == "train" and _weights(row)}
    groups: list[Group] = []
    counts = [len(set(_list(row, "groups"))) for row in run.episodes]
    stride = max(1, math.ceil(sum(counts) / limit))
    with np.errstate(all="ignore"):  # of numbers near the largest nothing is known
        for row in run.episodes[::stride]:
            groups += _of_step(row, _weights(weights.get(int(row["step"]), {})))
    return groups


def _list(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    return [item for item in value if isinstance(item, int | str)] if isinstance(value, list) else []


def _weights(row: Row) -> dict[str, float]:
    start = "weights/effective/"
    return {key[len(start) :]: value for key, value in row.items() if key.startswith(start) and is_number(value)}


def _of_step(row: Row, weights: Mapping[str, float]) -> list[Group]:
    names, labels, tasks = _list(row, "names"), _list(row, "groups"), _list(row, "tasks")
    try:
        values = np.array(row.get("values"), dtype=np.float64)  # null becomes nan
    except (TypeError, ValueError, OverflowError):
        return []
    if not names or values.shape != (len(labels), len(names)) or len(tasks) != len(labels):
        return []
    signs = np.sign(np.array([weights.get(name, 1.0) for name in names]))
    scored = ~np.any(np.isnan(values[:, signs != 0]), axis=1)
    groups = []
    for label in dict.fromkeys(labels):
        members = [place for place, other in enumerate(labels) if other == label and scored[place]]
        if members:
            groups.append(_group(int(row["step"]), str(tasks[members[0]]), names, values[members], signs))
    return groups


def _group(step: int, task: str, names: Sequence[str], values: NDArray[np.float64], signs: Any) -> Group:
    spread = values.max(axis=0) - values.min(axis=0)
    varies = spread > TOLERANCE * np.abs(values).max(axis=0)  # nan: False
    scores = np.zeros_like(values)
    if varies.any():
        part = values[:, varies] - values[:, varies].mean(axis=0)
        part /= np.abs(part).max(axis=0)  # the squares of large rewards would overflow
        scores[:, varies] = part / np.sqrt((part**2).sum(axis=0))
    correlations = {
        (names[i], names[j]): float(np.clip(scores[:, i] @ scores[:, j], -1, 1))
        for i, j in combinations(range(len(names)), 2)
        if varies[i] and varies[j]
    }
    total = float(((scores * signs).sum(axis=1) ** 2).sum())
    means = dict(zip(names, values.mean(axis=0).tolist(), strict=True))
    return Group(step, task, len(values), means, correlations, total)
