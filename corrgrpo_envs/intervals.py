"""Means over episodes with confidence intervals that know that related episodes resemble each other."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over episodes with a confidence interval.

    Attributes:
        value: the mean, 0 to 1; `nan` over no episodes.
        low, high: ends of the interval.
        count: number of episodes.
    """

    value: float
    low: float
    high: float
    count: int


def estimate(values: Sequence[float], clusters: Sequence[str], confidence: float = 0.95) -> Estimate:
    """A mean with Wilson's interval, for values that come in clusters.

    Cases of one user task resemble each other. Wilson's formula is therefore given the number of independent
    episodes that would have the variance which the clusters show, p(1 - p) / var with
    var = G/(G - 1) · Σ_g (Σ_i in g (y_i - p))² / N², at most N; where the values do not vary, the number of clusters G.

    Args:
        values: one a case, 0 to 1.
        clusters: what the case belongs to, e.g. its user task.
        confidence: e.g. 0.95.
    """
    if not values:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = fmean(values)
    residuals: dict[str, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster] = residuals.get(cluster, 0.0) + value - mean
    groups = len(residuals)
    size = float(groups)
    if groups > 1:
        variance = groups / (groups - 1) * math.fsum(one * one for one in residuals.values()) / len(values) ** 2
        if variance > 1e-12 and 0 < mean < 1:
            size = min(mean * (1 - mean) / variance, float(len(values)))
    return wilson(mean, size, len(values), confidence)


def macro(parts: Sequence[Estimate], confidence: float = 0.95) -> Estimate:
    """The mean of several means over different episodes, each of the same weight.

    Wilson's formula is given the number of episodes that would have the variance which the mean of L parts of n_l
    episodes has if all parts succeed equally often, L² / Σ 1/n_l.

    Args:
        parts: the means of the parts; those over no episodes are left out.
        confidence: e.g. 0.95.
    """
    known = [part for part in parts if part.count]
    if not known:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = fmean(part.value for part in known)
    size = len(known) ** 2 / math.fsum(1 / part.count for part in known)
    return wilson(mean, size, sum(part.count for part in known), confidence)


def wilson(mean: float, size: float, count: int, confidence: float = 0.95) -> Estimate:
    """Wilson's score interval of a mean over `size` independent episodes.

    Args:
        mean: 0 to 1.
        size: number of independent episodes, above 0; need not be whole.
        count: the number of episodes to report.
        confidence: e.g. 0.95.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    middle = (mean + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(mean * (1 - mean) / size + z * z / (4 * size * size))
    return Estimate(mean, max(0.0, middle - half), min(1.0, middle + half), count)


def flat(estimates: Mapping[str, Estimate]) -> dict[str, float | None]:
    """Write estimates as numbers under `name`, `name_low`, `name_high` and `name_count`.

    A mean over no episodes is None, and so are the ends of its interval.
    """
    found: dict[str, float | None] = {}
    for name, one in estimates.items():
        known = one.count > 0
        found[name] = one.value if known else None
        found[f"{name}_low"] = one.low if known else None
        found[f"{name}_high"] = one.high if known else None
        found[f"{name}_count"] = float(one.count)
    return found
