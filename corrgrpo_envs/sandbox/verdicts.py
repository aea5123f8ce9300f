"""What came of running a program."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from corrgrpo_envs.sandbox.jobs import Limits


class Outcome(StrEnum):
    """How a run ended; all but the last two are the program's doing."""

    PASSED = "passed"
    FAILED = "failed"  # an assertion of the test, wrong output, a value that no test compares
    EXCEPTION = "exception"  # raised by the program, or its process ended or crashed
    TEST_ERROR = "test_error"  # the test raised something else than an assertion on the program's results
    SYNTAX_ERROR = "syntax_error"
    MISSING_PACKAGE = "missing_package"
    TIMEOUT = "timeout"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    INVALID_TEST = "invalid_test"  # the test can't be defined: a mistake in the data
    INFRASTRUCTURE_ERROR = "infrastructure_error"  # the sandbox failed, twice


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one run.

    Attributes:
        outcome: what happened.
        message: why, in one line of printable text; it may quote the program and is never to be parsed.
        cpu_seconds: CPU time of the program's process, start included (about 2 ms).
        wall_seconds: its wall time.
        memory_bytes: its largest resident memory.
        calls: calls that the test made, or inputs that gave the right output.
        missing: the package that the program wanted and the sandbox does not have.
    """

    outcome: Outcome
    message: str = ""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    memory_bytes: int = 0
    calls: int = 0
    missing: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the program did all that the test asked for."""
        return self.outcome is Outcome.PASSED

    @property
    def failed_by_program(self) -> bool:
        """Whether the failure is the program's: not that of the test's data or of the sandbox."""
        return self.outcome not in (Outcome.PASSED, Outcome.INVALID_TEST, Outcome.INFRASTRUCTURE_ERROR)


@dataclass(frozen=True, slots=True)
class Times:
    """CPU seconds of one side in one round, phase by phase, and the wall seconds of the calls.

    Attributes:
        load: running the program's top level.
        decode: reading the arguments.
        calls: the calls of the test.
        encode: writing the results.
        wall: wall seconds of the calls.
    """

    load: float
    decode: float
    calls: float
    encode: float
    wall: float

    @property
    def outside(self) -> float:
        """CPU seconds beside the calls."""
        return self.load + self.decode + self.encode


@dataclass(frozen=True, slots=True)
class Round:
    """One round: both sides, one right after the other."""

    program: Times
    reference: Times


@dataclass(frozen=True, slots=True)
class Measurement:
    """A program timed against a reference.

    Attributes:
        program, reference: the verdicts of both; nothing is timed unless both pass.
        rounds: the timed rounds, in the order in which they were made; empty where nothing could be timed.
        why: the reason for missing rounds, or an empty text.
        pinned: whether both ran on one core; noise is higher where not.
    """

    program: Verdict
    reference: Verdict
    rounds: Sequence[Round] = field(default=())
    why: str = ""
    pinned: bool = True

    @property
    def measured(self) -> bool:
        """Whether there is a ratio."""
        return bool(self.rounds)

    @property
    def ratio(self) -> float:
        """The program's CPU time over the reference's (below 1: faster), from the faster half of the rounds; or nan.

        What a program does beside the calls beyond 1.5 times what the reference does there, and 2 ms, counts as
        part of its calls: work can't be moved out of the window.
        """
        return _ratio(self.rounds)

    @property
    def noise(self) -> float:
        """How far odd and even rounds disagree, |log of the ratio of their ratios|; nan with fewer than 2 rounds."""
        odd, even = _ratio(self.rounds[0::2]), _ratio(self.rounds[1::2])
        return abs(math.log(odd / even)) if odd > 0 and even > 0 else math.nan


_OUTSIDE_FACTOR, _OUTSIDE_SLACK = 1.5, 0.002


def _charged(one: Round) -> float:
    excess = one.program.outside - _OUTSIDE_FACTOR * one.reference.outside - _OUTSIDE_SLACK
    return one.program.calls + max(0.0, excess)


def _ratio(rounds: Sequence[Round]) -> float:
    if not rounds:
        return math.nan
    half = (len(rounds) + 1) // 2
    program = sum(sorted(map(_charged, rounds))[:half])
    reference = sum(sorted(one.reference.calls for one in rounds)[:half])
    return program / reference if reference > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Returned:
    """The value of a function that was called in the sandbox; None unless the verdict is `PASSED`."""

    verdict: Verdict
    value: Any = None


def verdict(report: dict[str, Any]) -> Verdict:
    """Build a verdict from a worker's report."""
    return Verdict(
        outcome=Outcome(report["outcome"]),
        message=printable(report.get("message", "")),
        cpu_seconds=report.get("cpu", 0.0),
        wall_seconds=report.get("wall", 0.0),
        memory_bytes=report.get("memory", 0),
        calls=report.get("calls", 0),
        missing=report.get("missing"),
    )


def measurement(report: dict[str, Any], *, pinned: bool) -> Measurement:
    """Build a measurement from a worker's report."""
    sides = {side: verdict(found) for side, found in report["sides"].items()}
    nothing = Verdict(Outcome.FAILED, "not run: the reference does not pass")
    program, why = sides.get("program", nothing), report["why"]
    rounds: tuple[Round, ...] = ()
    if why.startswith("program: "):
        # Judged right, then slow, gone or different when it ran again.
        program = Verdict(Outcome.FAILED, printable(why), program.cpu_seconds, program.wall_seconds)
    elif not why:
        rounds = tuple(Round(**{side: Times(**times) for side, times in one.items()}) for one in report["rounds"])
    return Measurement(program, sides["reference"], rounds, why, pinned)


def printable(text: str, length: int = 1000) -> str:
    """One line without control characters, shortened: texts of programs go to logs and prompts."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text[:length]
    )
    return shown if len(text) <= length else shown + "…"


def too_long(source: str, limits: Limits) -> Verdict | None:
    """The verdict on a program that is longer than its limit, or None."""
    if len(source) <= limits.source_bytes:
        return None
    return Verdict(Outcome.SYNTAX_ERROR, f"the source has {len(source)} characters, {limits.source_bytes} are allowed")
