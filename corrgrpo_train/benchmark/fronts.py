"""Which methods no other one beats in every component, and how much they dominate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corrgrpo_train.benchmark.measured import Measured
from corrgrpo_train.benchmark.statistics import resampled
from corrgrpo_train.weighting.hypervolume import hypervolume

MARGIN = 0.1
"""By this share of a component's range the reference point lies below its worst value."""
RESAMPLES = 1000
MOST_POINTS = 12
"""Of a front in more than `FEW_COMPONENTS`, whose volume is computed: the time doubles with each."""
FEW_COMPONENTS = 4


@dataclass(frozen=True, eq=False)
class Fronts:
    """Final components of several cells as points.

    Attributes:
        components: that count: weight not zero, and not equal throughout.
        members: for each cell, whether its mean point is on the front.
        shares: share of resamples of the seeds in which it is.
        volumes: for each cell and seed, the share of the unit box that its point dominates, shape (C, S).
        volume: what the mean points dominate together; None where it would take too long to
            compute (many points in many components).
    """

    components: list[str]
    members: list[bool]
    shares: list[float]
    volumes: NDArray[np.float64]
    volume: float | None


def fronts(cells: Sequence[Measured]) -> Fronts:
    """Find the front of the cells' mean final components.

    Components are turned round where their weight is negative. Each is put on a scale on which the best of all cells
    and seeds is 1 and 0 lies a tenth of the range below the worst, the policies before training among them. A volume is
    therefore free of units, and depends on what it is compared with.

    Args:
        cells: with the same components and seeds.
    """
    weights = cells[0].weights
    names = [name for name in cells[0].components if weights.get(name, 1.0) != 0]
    signs = np.array([np.sign(weights.get(name, 1.0)) for name in names])
    final = signs * _points(cells, names, "final")  # (C, S, K)
    first = signs * _points(cells, names, "first")
    every = np.concatenate([final, first]).reshape(-1, len(names))
    low, high = every.min(axis=0), every.max(axis=0)
    varying = high - low > 1e-12 * np.maximum(abs(high), abs(low))
    points = final[..., varying]
    span = (high - low)[varying]
    scaled = (points - (low[varying] - MARGIN * span)) / (span * (1 + MARGIN))
    means = scaled.mean(axis=1)  # (C, K)
    drawn = np.einsum("rs,csk->rck", resampled(final.shape[1], RESAMPLES), scaled) / final.shape[1]
    zero = [0.0] * int(varying.sum())
    return Fronts(
        components=[name for name, kept in zip(names, varying, strict=True) if kept],
        members=on_front(means).tolist(),
        shares=on_front(drawn).mean(axis=0).tolist(),
        volumes=scaled.prod(axis=-1) if zero else np.zeros(final.shape[:2]),
        volume=_volume(means, zero),
    )


def on_front(points: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether no other point is at least as good in every component and better in one, shape (…, C).

    Args:
        points: shape (…, C, K), all components maximised.
    """
    mine, other = points[..., :, None, :], points[..., None, :, :]
    dominated = (other >= mine).all(axis=-1) & (other > mine).any(axis=-1)
    return np.asarray(~dominated.any(axis=-1))


def _volume(means: NDArray[np.float64], zero: list[float]) -> float | None:
    front = means[on_front(means)]
    if not zero:
        return 0.0
    return None if len(zero) > FEW_COMPONENTS and len(front) > MOST_POINTS else hypervolume(front.tolist(), zero)


def _points(cells: Sequence[Measured], names: Sequence[str], which: str) -> NDArray[np.float64]:
    return np.array(
        [np.stack([getattr(cell.curves[f"components/{name}"], which) for name in names], axis=-1) for cell in cells]
    )
