"""`corrgrpo/HumanEval-v0`: write the body of a function from its head and description; for evaluation.

A row has `task_id`, `prompt` (the head, with what stands before it), `entry_point` (its name), `test` (which defines
`check(candidate)`) and, optionally, `canonical_solution` (the body).
"""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from corrgrpo_envs.code.evaluation import CodeEvaluationEnv, Exercises
from corrgrpo_envs.code.extraction import Extracted
from corrgrpo_envs.code.programs import joined
from corrgrpo_envs.datasets import Row, fingerprint, read_rows, schema_error
from corrgrpo_envs.env import Message
from corrgrpo_envs.sandbox import Check, Limits, Sandbox, Verdict
from corrgrpo_envs.tasks import Task

PLACEHOLDERS: Mapping[str, str] = {"prompt": "head and description of the function, with what stands before it"}

_SYSTEM = """\
You complete Python functions. The user gives you the beginning of a program, which ends with the head and the \
description of a function. Write the body of that function. Your text is put right after the user's as it is: write \
indented lines of Python and nothing else, no head again, no code fence, no explanation."""
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class HumanEvalExercise:
    """A function to complete.

    Attributes:
        prompt: the beginning of the program.
        entry_point: the function's name.
        test: source of `check(candidate)`.
        body: a right continuation, or an empty text.
    """

    prompt: str
    entry_point: str
    test: str
    body: str = ""

    @property
    def faulty(self) -> bool:
        """Every exercise can be done."""
        return False

    @property
    def values(self) -> Mapping[str, str]:
        """What placeholders stand for."""
        return {"prompt": self.prompt}

    @property
    def stub(self) -> str:
        """The beginning of the program with a function that does nothing."""
        return f"{self.prompt.rstrip()}\n{_INDENT}pass\n"

    def messages(self) -> tuple[Message, ...]:
        """What is wanted, and the beginning of the program."""
        return Message(role="system", content=_SYSTEM), Message(role="user", content=self.prompt)

    def prepare(self) -> None:
        """Nothing is read late."""

    def well_formed(self, found: Extracted) -> bool:
        """Whether the answer is a body: not between fences, without the head."""
        return not found.fenced and self._whole(found.code) is None

    def program(self, code: str) -> str:
        """The beginning and the answer's code, which is a body, indented or not, or the whole function.

        A whole function may come with helpers and imports of its own, and stands after those of the beginning.
        """
        whole = self._whole(code)
        if whole is not None:
            return joined(self.stub, whole)
        body = code if code[:1].isspace() else textwrap.indent(code, _INDENT)
        return f"{self.prompt.rstrip()}\n{body}\n"

    def judge(self, sandbox: Sandbox, program: str, limits: Limits) -> Verdict:
        """Run the test; it may call the function by its name, and helpers of the beginning."""
        check = Check(self.test, self.entry_point, setup=self.stub, names=(self.entry_point,))
        return sandbox.judge(program, check, limits)

    def reference(self) -> str | None:
        """The right continuation."""
        return self.body if self.body.strip() else None

    def _whole(self, code: str) -> str | None:
        """The code if it defines the function itself, without a common indentation; else None."""
        return next((text for text in (code, textwrap.dedent(code)) if _has_head(text, self.entry_point)), None)


def make_env(*, time_limit: float = 3.0, **options: Any) -> CodeEvaluationEnv:
    """Make HumanEval (arXiv 2107.03374), by its own rules: 3 s for a program and all its tests.

    Args:
        time_limit: CPU seconds of a program.
        **options: see `CodeEvaluationEnv`; a prompt template has `$prompt`. Every task is in `test`.

    Raises:
        ValueError: for a wrong option.
    """
    return CodeEvaluationEnv(load=exercises, placeholders=PLACEHOLDERS, time_limit=time_limit, **options)


def exercises(dataset: str) -> Exercises:
    """Read all exercises.

    Args:
        dataset: `"builtin"`; a file such as `HumanEval.jsonl.gz`, a folder, or a hub id such as
            `"openai/openai_humaneval"`.

    Raises:
        DatasetError: naming file, row and field.
    """
    path = str(files("envs_assets") / "humaneval" / "HumanEval.jsonl") if dataset == "builtin" else dataset
    return _exercises(path, fingerprint(path))


@lru_cache(maxsize=8)
def _exercises(path: str, state: object) -> Exercises:
    return tuple(map(_exercise, read_rows(path)))


def _exercise(row: Row) -> Task[HumanEvalExercise]:
    fields = {field: row.require(field, str) for field in ("task_id", "prompt", "entry_point", "test")}
    for field, value in fields.items():
        if not value.strip():
            raise schema_error(row.source, row.number, field, "a text that is not empty", value)
    if not fields["entry_point"].isidentifier():
        raise schema_error(row.source, row.number, "entry_point", "a function's name", fields["entry_point"])
    if not _has_head(fields["prompt"], fields["entry_point"]):
        expected = f"the beginning of a program that ends with the head of {fields['entry_point']!r}"
        raise schema_error(row.source, row.number, "prompt", expected, fields["prompt"])
    body = row.require("canonical_solution", str, "")
    return Task(
        fields["task_id"], "test", HumanEvalExercise(fields["prompt"], fields["entry_point"], fields["test"], body)
    )


def _has_head(source: str, name: str) -> bool:
    """Whether a source defines a function of this name."""
    return re.search(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b", source, re.MULTILINE) is not None
