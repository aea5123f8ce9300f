"""How fast a right program is, compared with its reference: as a reward, by two ways of timing.

The reward is clip(1 - t / t_reference, 0, 1), and exactly 0 where the difference is within the noise: noise would count
as a component that varies.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from corrgrpo_envs.sandbox import Check, Limits, Measurement, Outcome, Sandbox, Verdict

_BUDGET = 5.0  # CPU seconds after which no further round begins; two are made in any case
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
class RightAnswer:
    """A program that has passed its test, and what it is compared with.

    Attributes:
        program: its source.
        verdict: the verdict of the test.
        check: the test.
        reference: the reference's source, run as the program is; None without one.
        reference_seconds: stored time of the reference; None without one.
    """

    program: str
    verdict: Verdict
    check: Check
    reference: str | None
    reference_seconds: float | None


Timing = Callable[[Sandbox, Limits, RightAnswer, float], Efficiency]


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


def paired(sandbox: Sandbox, limits: Limits, answer: RightAnswer, tie_band: float) -> Efficiency:
    """Time program and reference now, in alternated rounds on one core.

    The band is `tie_band` (twice that where they can't be held on one core), or what odd and even rounds disagree by, if
    that is more; a `tie_band` of 0 switches all of that off.
    """
    if answer.reference is None:
        return Efficiency()
    found = sandbox.measure(answer.program, answer.reference, answer.check, limits, budget_seconds=_BUDGET)
    if Outcome.INFRASTRUCTURE_ERROR in (found.program.outcome, found.reference.outcome):
        return Efficiency(value=math.nan, available=True)
    if not found.measured:
        return Efficiency(available=found.reference.passed)
    half = (len(found.rounds) + 1) // 2
    reference_seconds = sum(sorted(one.reference.calls for one in found.rounds)[:half]) / half
    result = compared(found.ratio * reference_seconds, reference_seconds, band=_band(found, tie_band))
    return replace(result, noise=found.noise) if result.applied else result


def stored(sandbox: Sandbox, limits: Limits, answer: RightAnswer, tie_band: float) -> Efficiency:
    """Compare the CPU time of the judged run with the stored time of the reference, which has to be of that kind."""
    if answer.reference_seconds is None:
        return Efficiency()
    return compared(answer.verdict.cpu_seconds, answer.reference_seconds, band=tie_band)


def off(sandbox: Sandbox, limits: Limits, answer: RightAnswer, tie_band: float) -> Efficiency:
    """Measure nothing."""
    return Efficiency()


TIMINGS: Mapping[str, Timing] = {"paired": paired, "stored": stored, "off": off}


def _band(found: Measurement, tie_band: float) -> float:
    if tie_band == 0:
        return 0.0
    noise = 0.0 if math.isnan(found.noise) else found.noise
    return max(tie_band * (1.0 if found.pinned else _UNPINNED), noise)
