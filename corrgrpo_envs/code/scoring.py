"""Judging an answer to a programming problem: what each stage says of it, and the published rewards."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

from corrgrpo_envs.code.efficiency import Efficiency, Timing, Yardstick
from corrgrpo_envs.code.extraction import SOLUTION, Extracted, extract
from corrgrpo_envs.code.problems import CodeProblem
from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.rewards import RewardComponent
from corrgrpo_envs.sandbox import HOSTS, LEVELS, Limits, Outcome, Sandbox, Verdict, shared

COMPONENTS = (
    RewardComponent("format", 0.05, description="1 if class Solution stands in a fenced block"),
    RewardComponent("syntax", 0.05, description="1 if the code parses"),
    RewardComponent("compile", 0.05, description="1 if the whole program compiles"),
    RewardComponent("runtime", 0.25, description="1 if it runs to the end or to a wrong result"),
    RewardComponent("correctness", 0.60, description="1 if it passes every test"),
    RewardComponent("ast_similarity", 0.30, description="share of syntax nodes that match the reference's"),
    RewardComponent("efficiency", 0.20, description="1 - time / reference's time, 0 to 1, of a right program"),
)
EMPTY, COMPILE_ERROR = "empty_code", "compile_error"
# A status may become the name of a series in a log: only these packages are named in it.
NAMED_PACKAGES = frozenset(
    {"numpy", "scipy", "pandas", "sympy", "networkx", "sklearn", "torch", "numba", "matplotlib", "gmpy2", "pyrival"}
    | {"cython", "requests", "primefac", "atcoder", "sortedcontainers", "bitarray", "mpmath", "regex", "tensorflow"}
)
# Parsing and comparing texts of any kind; ordinary ones take milliseconds.
_ANALYSIS = Limits(cpu_seconds=10.0, memory_mb=1024)


@dataclass(frozen=True, slots=True)
class Runner:
    """Where programs run.

    Attributes:
        host: `"auto"`, `"embedded"` or `"docker"`.
        isolation: the least level accepted.
        limits: of one run.
        image: image of the docker host; None is its default.

    Raises:
        ValueError: for an unknown host or level, or an image that is no name.
    """

    host: str = "auto"
    isolation: str = "basic"
    limits: Limits = field(default_factory=Limits)
    image: str | None = None

    def __post_init__(self) -> None:
        if self.host not in HOSTS:
            raise unknown("sandbox", self.host, HOSTS)
        if self.isolation not in LEVELS:
            raise unknown("isolation", self.isolation, LEVELS)
        if self.image is not None and not (isinstance(self.image, str) and self.image):
            raise ValueError(f"sandbox_image must be the name of an image or None, not {shown(self.image)}")

    def sandbox(self) -> Sandbox:
        """The workers of this process; asked for at each use, since a process may have been forked."""
        if self.image is None:
            return shared(self.host, minimum=self.isolation)
        return shared(self.host, minimum=self.isolation, image=self.image)


def checked_limits(seconds: float, megabytes: int) -> Limits:
    """The limits of the options `time_limit` and `memory_limit`.

    Raises:
        ValueError: naming the option that is wrong.
    """
    try:
        return Limits(cpu_seconds=seconds, memory_mb=megabytes)
    except ValueError as error:
        message = str(error).replace("cpu_seconds", "time_limit").replace("memory_mb", "memory_limit")
        raise ValueError(message) from None


@dataclass(frozen=True, slots=True)
class Score:
    """What came of an answer; the first five are 0 or 1, nan where the test or the sandbox failed.

    Attributes:
        extracted: the code found in the answer.
        status: one word: `passed` or why not.
        format, syntax, compile, runtime, correctness: the stages, each needing the one before; format stands alone.
        similarity: to the reference, 0 to 1; None without a reference.
        efficiency: of a right program.
        verdict: the test's verdict; None if nothing was run.
    """

    extracted: Extracted
    status: str
    format: float
    syntax: float = 0.0
    compile: float = 0.0
    runtime: float = 0.0
    correctness: float = 0.0
    similarity: float | None = None
    efficiency: Efficiency = field(default_factory=Efficiency)
    verdict: Verdict | None = None

    def components(self) -> dict[str, float]:
        """The raw value of every component."""
        return {
            "format": self.format,
            "syntax": self.syntax,
            "compile": self.compile,
            "runtime": self.runtime,
            "correctness": self.correctness,
            "ast_similarity": 0.0 if self.similarity is None else self.similarity,
            "efficiency": self.efficiency.value,
        }


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores answers by the published stages.

    Attributes:
        runner: where programs run.
        timing: how efficiency is measured.
        tie_band: share of time by which a program must be faster to count as faster.
    """

    runner: Runner
    timing: Timing
    tie_band: float

    def score(self, answer: str, problem: CodeProblem, reference: str | None, reference_seconds: float | None) -> Score:
        """Score an answer. Raises on no text; what the text holds is parsed and run in the sandbox alone.

        Args:
            answer: what the assistant wrote.
            problem: what it answers.
            reference: code of a right program, or None.
            reference_seconds: stored time of that program, or None.

        Raises:
            SandboxError: if no sandbox can be started at all.
        """
        extracted = extract(answer)
        code, form = extracted.code, float(extracted.fenced and SOLUTION in extracted.code)
        whole = None if reference is None else problem.program(reference)
        yardstick = Yardstick(problem.check, whole, reference_seconds)
        # What is there to compare with is the problem's matter, whatever the answer.
        efficiency = Efficiency(available=self.timing.available(yardstick))
        if not code:
            unlike = None if reference is None else 0.0
            return Score(extracted, EMPTY, form, similarity=unlike, efficiency=efficiency)
        sandbox = self.runner.sandbox()
        analysed = analysis(sandbox, code, reference)
        if analysed is None:
            return unscored(extracted, form, efficiency)
        parses, similarity = analysed
        if not parses:
            return Score(extracted, Outcome.SYNTAX_ERROR, form, similarity=similarity, efficiency=efficiency)
        program, limits = problem.program(code), self.runner.limits
        verdict = sandbox.judge(program, problem.check, limits)
        compiles, runs, passes = stages(verdict)
        if math.isnan(passes):
            efficiency = replace(efficiency, value=math.nan)
        elif verdict.passed:
            efficiency = self.timing.measure(sandbox, program, verdict, yardstick, limits, self.tie_band)
        return Score(extracted, status_of(verdict), form, 1.0, compiles, runs, passes, similarity, efficiency, verdict)


def unscored(extracted: Extracted, form: float, efficiency: Efficiency) -> Score:
    """The score of an answer whose code the sandbox failed to look at: nan but for the format."""
    nan = math.nan
    return Score(
        extracted,
        Outcome.INFRASTRUCTURE_ERROR,
        form,
        syntax=nan,
        compile=nan,
        runtime=nan,
        correctness=nan,
        similarity=nan,
        efficiency=replace(efficiency, value=nan),
    )


def analysis(sandbox: Sandbox, code: str, reference: str | None) -> tuple[bool, float | None] | None:
    """Whether code parses and how alike it is to a reference, found out in the sandbox.

    A text that is too much for the parser or the sandbox's limits does not parse. None if the sandbox failed.
    """
    found = sandbox.call(_analyser(), "analyse", code, reference, limits=_ANALYSIS)
    if found.verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return None
    if not found.verdict.passed:
        return False, None if reference is None else 0.0
    parses, similarity = found.value
    return bool(parses), None if similarity is None else float(similarity)


def stages(verdict: Verdict) -> tuple[float, float, float]:
    """Compile, runtime and correctness of a program that parses; nan where the test or the sandbox failed.

    A program runs if it passes or a comparison of the test fails. An `AssertionError` of its own is an exception.
    """
    if verdict.outcome in (Outcome.INVALID_TEST, Outcome.INFRASTRUCTURE_ERROR):
        return math.nan, math.nan, math.nan
    compiles = verdict.outcome is not Outcome.SYNTAX_ERROR
    runs = verdict.outcome in (Outcome.PASSED, Outcome.FAILED)
    return float(compiles), float(runs), float(verdict.passed)


def status_of(verdict: Verdict) -> str:
    """One word for a verdict of a program that parses; it names a missing package if that is a well-known one."""
    if verdict.outcome is Outcome.SYNTAX_ERROR:
        return COMPILE_ERROR
    if verdict.outcome is Outcome.MISSING_PACKAGE and verdict.missing in NAMED_PACKAGES:
        return f"{verdict.outcome}:{verdict.missing}"
    return str(verdict.outcome)


METRICS = (
    "fenced",
    "calls",
    "similarity_available",
    "efficiency_available",
    "efficiency_applied",
    "efficiency_ratio",
    "efficiency_noise",
    "efficiency_reference_seconds",
)


def metrics(score: Score) -> Mapping[str, float]:
    """Numbers beyond the rewards; nothing that was timed but under names that begin with `efficiency`."""
    efficiency = score.efficiency
    return {
        "fenced": float(score.extracted.fenced),
        "calls": float(score.verdict.calls if score.verdict else 0),
        "similarity_available": float(score.similarity is not None),
        "efficiency_available": float(efficiency.available),
        "efficiency_applied": float(efficiency.applied),
        "efficiency_ratio": efficiency.ratio,
        "efficiency_noise": efficiency.noise,
        "efficiency_reference_seconds": efficiency.reference_seconds,
    }


@cache
def _analyser() -> str:
    return (files("corrgrpo_envs.code") / "similarity.py").read_text(encoding="utf-8")
