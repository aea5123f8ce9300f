"""Means over clusters of episodes: bootstrap intervals, and tests of paired differences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
EXACT_CLUSTERS = 14
"""With so many clusters or fewer all ways to flip their signs are gone through."""

_CHUNK = 1_000  # resamples at a time: a thousand clusters take 8 MB


@dataclass(frozen=True, slots=True)
class Clustered:
    """Values that come in clusters.

    Attributes:
        sums: (G,) sum of the values of each cluster.
        counts: (G,) their number.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """The mean over all values; nan over none."""
        return float(self.sums.sum() / self.counts.sum()) if len(self.sums) else math.nan


def clustered(values: Sequence[float], clusters: Sequence[str]) -> Clustered:
    """Put values together by the name of their cluster."""
    places: dict[str, int] = {}
    numbers = np.array([places.setdefault(cluster, len(places)) for cluster in clusters], dtype=np.int64)
    return Clustered(
        np.bincount(numbers, np.asarray(values, dtype=np.float64), len(places)).astype(np.float64),
        np.bincount(numbers, None, len(places)).astype(np.float64),
    )


def interval(values: Clustered, confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean, clusters drawn with replacement.

    Args:
        values: the values.
        confidence: e.g. 0.95.
        seed: of the draws.

    Returns:
        its ends; nan over fewer than two clusters, over sums beyond all floats, and where all clusters have the same
        mean, of which a bootstrap can only say that it is certain.
    """
    groups = len(values.sums)
    if groups < 2 or not math.isfinite(values.mean) or np.ptp(values.sums / values.counts) == 0:
        return math.nan, math.nan
    random = np.random.default_rng(seed)
    means = []
    for _ in range(RESAMPLES // _CHUNK):
        drawn = random.integers(groups, size=(_CHUNK, groups))
        means.append(values.sums[drawn].sum(1) / values.counts[drawn].sum(1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def sign_flip(values: Clustered, seed: int = 0) -> float:
    """The two-sided p value of a mean of 0 by flipping the signs of whole clusters.

    Exact with few clusters; else over 10,000 random flips, the observed one counted in.
    """
    sums = values.sums[values.sums != 0]
    groups, observed = len(sums), abs(float(values.sums.sum()))
    close = observed * (1 - 1e-12)  # sums in another order differ in their last bits
    if groups == 0:
        return 1.0
    if groups <= EXACT_CLUSTERS:
        ways = np.arange(2**groups)[:, None] >> np.arange(groups) & 1
        return float(np.mean(np.abs((1 - 2 * ways) @ sums) >= close))
    random, as_far = np.random.default_rng(seed), 1
    for _ in range(RESAMPLES // _CHUNK):
        signs = 1 - 2 * random.integers(2, size=(_CHUNK, groups))
        as_far += int(np.sum(np.abs(signs @ sums) >= close))
    return as_far / (RESAMPLES + 1)


def means_by_task(values: Sequence[tuple[str, float]]) -> Mapping[str, float]:
    """The mean of each task's values."""
    found: dict[str, list[float]] = {}
    for task, value in values:
        found.setdefault(task, []).append(value)
    return {task: math.fsum(some) / len(some) for task, some in found.items()}
