"""How fast a right program is, compared with its reference: as a reward, by two ways of timing.

The published metric over a set of programs is `measure`, from `speed`.

The reward is clip(1 - t / t_reference, 0, 1), and exactly 0 where the difference is within the noise: noise would count
as a component that varies.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from corrgrpo_envs.code.speed import Pair, Speed, measure
from corrgrpo_envs.sandbox import Check, Limits, Measurement, Outcome, Sandbox, Verdict

__all__ = ["TIMINGS", "Efficiency", "Pair", "Speed", "Timing", "Yardstick", "compared", "measure"]

_BUDGET = 5.0  # CPU seconds after which no further round begins; two are made in any case
_RESOLUTION = 1e-5  # seconds by which sums of calls may be wrong, averaged over rounds: equal programs measured
_UNPINNED = 2.0  # noise is about twice as high where both can't be held on one core


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The efficiency of one program.

    Attributes:
        value: the reward, 0 to 1; nan if the sandbox failed to measure.
        available: there is a reference time, or a reference that can be timed.
        applied: both were timed, so the value means something.
        ratio: the program's time over the reference's; nan where not applied.
        noise: how far odd and even rounds disagree, as a log ratio; nan where nothing was repeated.
        reference_seconds: the reference's time; nan where not applied.
    """

    value: float = 0.0
    available: bool = False
    applied: bool = False
    ratio: float = math.nan
    noise: float = math.nan
    reference_seconds: float = math.nan


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What programs for a problem are compared with.

    Attributes:
        check: the test.
        reference: source of the reference, run as programs are; None without one.
        seconds: stored time of the reference; None without one.
    """

    check: Check
    reference: str | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Timing:
    """A way to measure efficiency.

    Attributes:
        available: whether a problem has what programs are compared with.
        measure: the efficiency of a program that passed, from its source, the verdict, what it is compared with, the
            limits and the tie band.
    """

    available: Callable[[Yardstick], bool]
    measure: Callable[[Sandbox, str, Verdict, Yardstick, Limits, float], Efficiency]


def compared(seconds: float, reference_seconds: float, *, passed: bool = True, band: float = 0.0) -> Efficiency:
    """Compare two times.

    Args:
        seconds: the program's.
        reference_seconds: the reference's.
        passed: whether the program is right; else nothing is applied.
        band: a program that is faster by no more than this share scores 0. 0 is the published form.
    """
    available = math.isfinite(reference_seconds) and reference_seconds > 0
    if not (passed and available and math.isfinite(seconds) and seconds > 0):
        return Efficiency(available=available)
    gain = 1 - seconds / reference_seconds
    return Efficiency(
        value=min(gain, 1.0) if gain > band else 0.0,
        available=True,
        applied=True,
        ratio=seconds / reference_seconds,
        reference_seconds=reference_seconds,
    )


def paired(
    sandbox: Sandbox, program: str, verdict: Verdict, yardstick: Yardstick, limits: Limits, tie_band: float
) -> Efficiency:
    """Time program and reference now, in alternated rounds on one core.

    The band is `tie_band` (twice that where both can't be held on one core), or what odd and even rounds disagree by,
    or what the clock may be wrong by, whichever is the most; a `tie_band` of 0 switches all of that off.
    """
    if yardstick.reference is None:
        return Efficiency()
    if program == yardstick.reference:  # nothing to find out
        return Efficiency(available=True, applied=True, ratio=1.0)
    found = sandbox.measure(program, yardstick.reference, yardstick.check, limits, budget_seconds=_BUDGET)
    if Outcome.INFRASTRUCTURE_ERROR in (found.program.outcome, found.reference.outcome):
        return Efficiency(value=math.nan, available=True)
    if not found.measured:
        return Efficiency(available=found.reference.passed)
    half = (len(found.rounds) + 1) // 2
    seconds = sum(sorted(one.reference.calls for one in found.rounds)[:half]) / half
    result = compared(found.ratio * seconds, seconds, band=_band(found, seconds, tie_band))
    return replace(result, noise=found.noise) if result.applied else result


def stored(
    sandbox: Sandbox, program: str, verdict: Verdict, yardstick: Yardstick, limits: Limits, tie_band: float
) -> Efficiency:
    """Compare the CPU time of the judged run with the stored time of the reference, which has to be of that kind."""
    seconds = math.nan if yardstick.seconds is None else yardstick.seconds
    return compared(verdict.cpu_seconds, seconds, band=tie_band)


def off(
    sandbox: Sandbox, program: str, verdict: Verdict, yardstick: Yardstick, limits: Limits, tie_band: float
) -> Efficiency:
    """Measure nothing."""
    return Efficiency()


def _has_reference(yardstick: Yardstick) -> bool:
    return yardstick.reference is not None


def _has_seconds(yardstick: Yardstick) -> bool:
    return yardstick.seconds is not None


def _never(yardstick: Yardstick) -> bool:
    return False


TIMINGS: Mapping[str, Timing] = {
    "paired": Timing(_has_reference, paired),
    "stored": Timing(_has_seconds, stored),
    "off": Timing(_never, off),
}


def _band(found: Measurement, reference_seconds: float, tie_band: float) -> float:
    if tie_band == 0:
        return 0.0
    noise = 0.0 if math.isnan(found.noise) else found.noise
    resolution = _RESOLUTION / reference_seconds if reference_seconds > 0 else 1.0
    return max(tie_band * (1.0 if found.pinned else _UNPINNED), noise, resolution)
