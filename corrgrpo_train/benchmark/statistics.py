"""Means with intervals, tests of paired differences, and Holm's correction."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST_TO_RESAMPLE = 6
"""Below, a bootstrap interval could not reach beyond the few values it resamples."""
MOST_TO_ENUMERATE = 14
"""Up to so many pairs all sign patterns are gone through."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its interval.

    Attributes:
        mean: the mean.
        low, high: ends of the interval; `nan` for a single value.
        count: number of values.
    """

    mean: float
    low: float
    high: float
    count: int

    def to_json(self) -> dict[str, float | int | None]:
        """As JSON data; None for `nan`."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE, resamples: int = RESAMPLES) -> Interval:
    """A mean over seeds with its confidence interval.

    From six values on the percentiles of the bootstrap, taken further out so that for normal values the interval is as
    wide as Student's (plain percentiles are too narrow: 10 % at ten values; Hesterberg 2015, "What Teachers Should Know
    about the Bootstrap", section 3.3). Below six values Student's interval.

    Args:
        values: one per seed, finite.
        confidence: e.g. 0.95.
        resamples: of the bootstrap; the same ones at every call.
    """
    from scipy import stats

    data = np.asarray(values, dtype=np.float64)
    count, mean = len(data), float(data.mean())
    if count == 1:
        return Interval(mean, math.nan, math.nan, 1)
    quantile = float(stats.t.ppf(0.5 + confidence / 2, count - 1))
    if count < FEWEST_TO_RESAMPLE:
        half = quantile * float(data.std(ddof=1)) / math.sqrt(count)
        return Interval(mean, mean - half, mean + half, count)
    outside = float(stats.norm.cdf(-quantile * math.sqrt(count / (count - 1))))
    means = resampled(count, resamples) @ data / count
    low, high = np.quantile(means, [outside, 1 - outside])
    return Interval(mean, float(low), float(high), count)


@lru_cache(maxsize=4)
def resampled(count: int, resamples: int, seed: int = 0) -> NDArray[np.float64]:
    """How often each of `count` values is drawn in each resample with replacement, shape (resamples, count)."""
    drawn = np.random.default_rng(seed).multinomial(count, [1 / count] * count, size=resamples).astype(np.float64)
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=2)
def _signs(count: int, resamples: int) -> NDArray[np.float64]:
    """Random signs, shape (resamples, count)."""
    signs = np.random.default_rng(0).integers(0, 2, (resamples, count)).astype(np.float64) * 2 - 1
    signs.flags.writeable = False
    return signs


def sign_flip_p(differences: ArrayLike, resamples: int = 99_999) -> float:
    """Two-sided probability of a mean difference at least as large, if each pair's sign were a coin's toss.

    Exact up to 14 pairs; then from random sign patterns, the observed one counted in. With n pairs it is never below
    2 / 2ⁿ: fewer than six seeds cannot show a difference at 5 %.

    Args:
        differences: one per seed.
        resamples: random sign patterns.
    """
    data = np.asarray(differences, dtype=np.float64)
    count = len(data)
    observed = abs(data.sum())
    tolerance = 1e-12 * np.abs(data).sum()  # equal sums in another order differ in their last bits
    if count <= MOST_TO_ENUMERATE:
        patterns = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ data) >= observed - tolerance))
    reached = int(np.sum(np.abs(_signs(count, resamples) @ data) >= observed - tolerance))
    return (1 + reached) / (1 + resamples)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: below α they keep the chance of any false finding among all tests below α.

    The i-th smallest of m is multiplied by m − i + 1, and none is below a smaller one's.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
