"""`corrgrpo/MBPP-v0`: write a short program that satisfies the tests shown; for evaluation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from corrgrpo_envs.code.evaluation import CodeEvaluationEnv, Exercises, chosen
from corrgrpo_envs.code.extraction import Extracted
from corrgrpo_envs.code.mbpp_rows import VARIANTS, MBPPRow, rows
from corrgrpo_envs.code.programs import joined
from corrgrpo_envs.env import Message
from corrgrpo_envs.sandbox import Check, Limits, Sandbox, Verdict
from corrgrpo_envs.tasks import Task

PLACEHOLDERS: Mapping[str, str] = {"statement": "what is asked", "tests": "the tests, one a line"}


def _every_row(row: MBPPRow) -> bool:
    return True


def _as_published(row: MBPPRow) -> bool:
    return row.judged_as_published


# Which rows an evaluation can judge.
HARNESSES: Mapping[str, Callable[[MBPPRow], bool]] = {"corrected": _every_row, "published": _as_published}

_SYSTEM = """\
You write Python programs. Write one whole program for the user's task and nothing else: no code fence, no \
explanation."""


@dataclass(frozen=True, slots=True)
class MBPPExercise:
    """A program to write.

    Attributes:
        row: what the data set says.
        faulty: no program can pass by the rules that were chosen.
    """

    row: MBPPRow
    faulty: bool = False

    @property
    def values(self) -> Mapping[str, str]:
        """What placeholders stand for."""
        return {"statement": self.row.statement.strip(), "tests": "\n".join(self.row.tests)}

    def messages(self) -> tuple[Message, ...]:
        """What is wanted, the task and its tests."""
        values = self.values
        task = f"Task: {values['statement']}\n\nYour program has to satisfy these tests:\n{values['tests']}"
        return Message(role="system", content=_SYSTEM), Message(role="user", content=task)

    def prepare(self) -> None:
        """Nothing is read late."""

    def well_formed(self, found: Extracted) -> bool:
        """Whether the answer is the program alone, not between fences."""
        return not found.fenced

    def program(self, code: str) -> str:
        """The answer's code, after the imports that come with the tests and the classes that they take for granted."""
        return joined(f"{self.row.test_imports}\n{self.row.classes}", code)

    def judge(self, sandbox: Sandbox, program: str, limits: Limits) -> Verdict:
        """Run the tests."""
        row = self.row
        # Whatever the tested function is called, `check` too, the tests call the program's.
        body = "\n".join([f"{row.entry_point} = candidate", *row.tests])
        lines = "\n".join(f"    {line}" for line in body.split("\n"))
        setup = "\n".join((row.test_imports, row.imports, row.classes, row.setup))
        check = Check(f"def check(candidate):\n{lines}\n", row.entry_point, setup=setup, names=row.names)
        return sandbox.judge(program, check, limits)

    def reference(self) -> str | None:
        """The data set's program."""
        return self.row.code


def make_env(
    *, variant: str = "full", harness: str = "corrected", time_limit: float = 10.0, **options: Any
) -> CodeEvaluationEnv:
    """Make MBPP (arXiv 2108.07732), full or sanitized.

    Args:
        variant: `"full"` (974 tasks; `test` are the 500 of ids 11 to 510, published splits) or `"sanitized"` (427, all
            in `test`): the file of a folder, the configuration of a hub id, and what the rows must be.
        harness: `"corrected"`, or `"published"`, in which no program passes that the published evaluation can't judge:
            tasks whose function is called `check` (56 and 349), and those whose setup takes a class from the program
            (367): status `faulty_row`.
        time_limit: CPU seconds of a program over all its tests.
        **options: see `CodeEvaluationEnv`; a prompt template has `$statement` and `$tests`.

    Raises:
        ValueError: for a wrong option.
    """
    load = partial(
        exercises,
        variant=chosen("variant", variant, VARIANTS),
        judged=HARNESSES[chosen("harness", harness, HARNESSES)],
    )
    return CodeEvaluationEnv(load=load, placeholders=PLACEHOLDERS, time_limit=time_limit, **options)


def exercises(
    dataset: str, variant: str = "full", judged: Callable[[MBPPRow], bool] = HARNESSES["corrected"]
) -> Exercises:
    """Read all exercises.

    Args:
        dataset: `"builtin"`, a file, a folder with the published files, or a hub id such as
            `"google-research-datasets/mbpp"`.
        variant: of `VARIANTS`.
        judged: whether a row can be judged; others are faulty.

    Raises:
        DatasetError: naming file, row and field.
    """
    return tuple(
        Task(task.id, task.split, MBPPExercise(task.data, faulty=not judged(task.data)))
        for task in rows(dataset, variant)
    )
