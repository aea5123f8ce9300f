"""Programming problems with a test in code, and reading them from the published layouts of LeetCodeDataset.

| layout | statement | starter code | difficulty |
| --- | --- | --- | --- |
| v0.3.1 | `problem_description` | `starter_code` | `difficulty` |
| v0.2.0 | `meta.question_title` | `meta.lang_code` | `meta.difficulty` |

Both have `task_id`, `prompt` (what stands before program and test), `completion`, `entry_point`, `test`, `query`
(the user's message) and `response`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from corrgrpo_envs.code.extraction import FENCE, extract
from corrgrpo_envs.datasets import Row, schema_error, split_of
from corrgrpo_envs.sandbox import Check
from corrgrpo_envs.tasks import Task

DIFFICULTIES = ("easy", "medium", "hard")
_MISSPELT = {"meidum": "medium"}  # in the test files of v0.1.0 and v0.2.0


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """A programming problem.

    Attributes:
        statement: what is asked; may be empty if there is a query.
        starter_code: the head of what is to be completed; may be empty.
        query: the user's message that the row carries, or an empty text.
        header: source before every program and before the test: imports, `ListNode`, `TreeNode`.
        test: source of `check(candidate)`.
        entry_point: expression that gives the tested function, `Solution().method`.
        completion: a right program, or an empty text.
        response: the text of a right answer, or an empty text.
        reference_seconds: stored running time of the reference, or None.
    """

    statement: str
    starter_code: str
    query: str
    header: str
    test: str
    entry_point: str
    completion: str = ""
    response: str = ""
    reference_seconds: float | None = None

    @property
    def check(self) -> Check:
        """The test as the sandbox takes it."""
        return Check(test=self.test, entry_point=self.entry_point, setup=self.header)

    def program(self, code: str) -> str:
        """The whole program of an answer's code."""
        return f"{self.header.rstrip()}\n\n{code.rstrip()}\n"


def from_completion(problem: CodeProblem) -> str | None:
    """The reference program: the completion, else what the response holds; None without either."""
    if problem.completion.strip():
        return extract(problem.completion).code if FENCE in problem.completion else problem.completion
    return from_response(problem)


def from_response(problem: CodeProblem) -> str | None:
    """The program in the response, as published; None without one (109 of the 228 published test rows)."""
    return extract(problem.response).code or None


REFERENCES: Mapping[str, Callable[[CodeProblem], str | None]] = {
    "completion": from_completion,
    "response": from_response,
}


def read_problem(row: Row) -> Task[CodeProblem]:
    """Make a task of a row.

    Raises:
        DatasetError: naming file, row and field.
    """
    older = Row(row.require("meta", dict, {}), f"{row.source} (meta)", row.number)
    task_id = _text(row, "task_id")
    problem = CodeProblem(
        statement=row.require("problem_description", str, older.require("question_title", str, "")),
        starter_code=row.require("starter_code", str, older.require("lang_code", str, "")),
        query=row.require("query", str, ""),
        header=row.require("prompt", str),
        test=_text(row, "test"),
        entry_point=_text(row, "entry_point"),
        completion=row.require("completion", str, ""),
        response=row.require("response", str, ""),
        reference_seconds=usable_seconds(row.require("reference_runtime_seconds", float, math.nan)),
    )
    if not (problem.query.strip() or problem.statement.strip()):
        raise schema_error(row.source, row.number, "query", "a text that is not empty", problem.query)
    difficulty = row.require("difficulty", str, older.require("difficulty", str, ""))
    return Task(task_id, split_of(row, row.source, task_id), problem, _difficulty(difficulty))


def usable_seconds(seconds: float) -> float | None:
    """A running time that can be compared with, or None."""
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _difficulty(name: str) -> str:
    name = name.strip().casefold()
    return _MISSPELT.get(name, name)


def _text(row: Row, field: str) -> str:
    value = row.require(field, str)
    if not value.strip():
        raise schema_error(row.source, row.number, field, "a text that is not empty", value)
    return value
