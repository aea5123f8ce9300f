"""`corrgrpo/LiveCodeBench-v0`: write a program for a contest problem; for evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

from corrgrpo_envs.code.evaluation import CodeEvaluationEnv, Exercises
from corrgrpo_envs.code.extraction import FENCE, Extracted, fenced
from corrgrpo_envs.code.livecodebench_rows import LiveCodeBenchRow, checked_release, rows
from corrgrpo_envs.code.livecodebench_tests import LONGEST_NUMBER, FunctionTests, OutputTests, read_tests
from corrgrpo_envs.code.programs import joined
from corrgrpo_envs.env import Message
from corrgrpo_envs.errors import shown
from corrgrpo_envs.sandbox import Limits, Sandbox, Verdict
from corrgrpo_envs.tasks import Task

PLACEHOLDERS: Mapping[str, str] = {
    "statement": "the problem",
    "starter_code": "the head of the class to complete; empty for programs that read standard input",
}
_SYSTEM = "You solve programming problems in Python."
_PROMPT = """\
Solve this problem. Write the whole program in one fenced block and nothing else; it is tested on many inputs.

Problem:
{statement}

{form}
{fence}python
{starter_code}
{fence}"""
_METHOD = "Complete this starter code:"
_INPUT = "The program reads from standard input and prints the answer to standard output:"
_PLACE = "# the program"

# Published programs count on these names.
_STARS = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
_MODULES = tuple(name for name in _STARS if name not in ("builtins", "typing"))
HEADER = "\n".join(
    [
        *(f"from {name} import *" for name in _STARS),
        *(f"import {name}" for name in _MODULES),
        "sys.setrecursionlimit(50_000)",
        f"sys.set_int_max_str_digits({LONGEST_NUMBER})",
    ]
)


@dataclass(frozen=True, slots=True)
class LiveCodeBenchExercise:
    """A contest problem.

    Attributes:
        row: what the data set says; its private tests are read when the exercise is posed.
    """

    row: LiveCodeBenchRow

    @property
    def faulty(self) -> bool:
        """Every exercise can be done."""
        return False

    @property
    def values(self) -> Mapping[str, str]:
        """What placeholders stand for."""
        return {"statement": self.row.statement.strip(), "starter_code": self.row.starter_code.rstrip()}

    @property
    def tests(self) -> OutputTests | FunctionTests:
        """The tests, public ones first."""
        return read_tests(self.row)

    def messages(self) -> tuple[Message, ...]:
        """The problem and the form of the program."""
        starter = self.values["starter_code"]
        text = _PROMPT.format(
            statement=self.values["statement"],
            form=_METHOD if starter else _INPUT,
            fence=FENCE,
            starter_code=starter or _PLACE,
        )
        return Message(role="system", content=_SYSTEM), Message(role="user", content=text)

    def prepare(self) -> None:
        """Read the tests."""
        read_tests(self.row)

    def well_formed(self, found: Extracted) -> bool:
        """Whether the program stood between fences."""
        return found.fenced

    def program(self, code: str) -> str:
        """The answer's code behind the imports that such programs count on."""
        return joined(HEADER, code)

    def judge(self, sandbox: Sandbox, program: str, limits: Limits) -> Verdict:
        """Run the tests until the first one that fails."""
        return self.tests.judge(sandbox, program, limits)

    def reference(self) -> str | None:
        """A right program where the row has one; published rows have none."""
        return fenced(self.row.reference) if self.row.reference.strip() else None


def make_env(
    *,
    release: str | None = None,
    start_date: str | date | None = None,
    end_date: str | date | None = None,
    time_limit: float = 10.0,
    memory_limit: int = 4096,
    **options: Any,
) -> CodeEvaluationEnv:
    """Make LiveCodeBench's code generation (arXiv 2403.07974).

    Args:
        release: which of the published files: `"v6"` is the sixth alone (175 problems), `"release_v6"` the first six
            (1,055), `"v4_v6"` the fourth to the sixth. None is `"v6"` for a folder or hub id, and the whole of a file.
        start_date: keep problems of contests from this day on, `"2025-01-31"` or a `date`.
        end_date: keep problems of contests up to this day, included.
        time_limit: CPU seconds of a program for one test.
        memory_limit: address space of a program, MiB.
        **options: see `CodeEvaluationEnv`; a prompt template has `$statement` and `$starter_code`. Every task is in
            `test`.

    Raises:
        ValueError: for a wrong option.
    """
    first, last = _day("start_date", start_date), _day("end_date", end_date)
    if first is not None and last is not None and first > last:
        raise ValueError(f"start_date {first} is after end_date {last}: no problem lies between")
    load = partial(exercises, release=checked_release(release), start=first, end=last)
    return CodeEvaluationEnv(
        load=load, placeholders=PLACEHOLDERS, time_limit=time_limit, memory_limit=memory_limit, **options
    )


def exercises(
    dataset: str, release: str | None = None, start: date | None = None, end: date | None = None
) -> Exercises:
    """Read the exercises of a release and a window of days, by their ids.

    Args:
        dataset: `"builtin"`; a published file, a folder of them, or the hub id `"livecodebench/code_generation_lite"`.
        release: see `make_env`.
        start: first day of the window, or None.
        end: last day of it, or None.

    Raises:
        DatasetError: naming file, row and field.
        ValueError: if no problem is left.
    """
    everything = rows(dataset, release)
    kept = [
        Task(row.question_id, "test", LiveCodeBenchExercise(row), row.difficulty)
        for row in everything
        if (start is None or row.day >= start) and (end is None or row.day <= end)
    ]
    if not kept:
        days = sorted(row.day for row in everything)
        raise ValueError(
            f"start_date={start}, end_date={end} leave no problem of data set {dataset!r}, whose {len(days)} problems "
            f"are from {days[0]} to {days[-1]}"
        )
    return tuple(kept)


def _day(option: str, value: object) -> date | None:
    if value is None:
        return None
    try:
        return date.fromisoformat(value if isinstance(value, str) else date.isoformat(value)[:10])  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"{option} must be a day such as '2025-01-31', not {shown(value)}") from None
