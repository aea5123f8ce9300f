"""What HumanEval, MBPP and LiveCodeBench have in common: an environment that poses an exercise and runs the answer."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from corrgrpo_envs.code.extraction import Extracted, last_block
from corrgrpo_envs.code.scoring import EMPTY, Runner, checked_limits, stages, status_of
from corrgrpo_envs.env import Message, MultiRewardEnv, Opening, Outcome
from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.rewards import RewardComponent
from corrgrpo_envs.sandbox import Limits, Sandbox, Verdict
from corrgrpo_envs.sandbox import Outcome as Ending
from corrgrpo_envs.tasks import Task, TaskSet
from corrgrpo_envs.templates import MessageTemplate, read_message_template

FAULTY = "faulty_row"


class Exercise(Protocol):
    """One exercise of a benchmark."""

    @property
    def faulty(self) -> bool:
        """Whether no program can pass, by the rules that were chosen."""

    @property
    def values(self) -> Mapping[str, str]:
        """What the placeholders of a prompt stand for."""

    def messages(self) -> tuple[Message, ...]:
        """The exercise in our own words."""

    def prepare(self) -> None:
        """Read what is read late; raises DatasetError."""

    def well_formed(self, found: Extracted) -> bool:
        """Whether an answer that is not empty has the form that `messages` asks for."""

    def program(self, code: str) -> str:
        """The whole program of an answer's code."""

    def judge(self, sandbox: Sandbox, program: str, limits: Limits) -> Verdict:
        """Run the exercise's tests against a program."""

    def reference(self) -> str | None:
        """The text of a right answer, or None."""


Exercises = tuple[Task[Any], ...]


class CodeEvaluationEnv(MultiRewardEnv):
    """Programs for the exercises of a benchmark, run in the sandbox; for evaluation.

    Components: `correctness`, weight 1; measured with weight 0 `format`, `syntax` and `runtime`.

    Status: `passed`, or `empty_code`, `syntax_error`, `failed` (a wrong result or output), `exception`, `test_error`
    (the test can't use what the program returned), `missing_package` (`missing_package:numpy` and the like),
    `timeout`, `memory_limit`, `output_limit`, `faulty_row`, `infrastructure_error`.
    """

    components = (
        RewardComponent("format", 0.0, description="1 if the answer has the form that the prompt asks for"),
        RewardComponent("syntax", 0.0, description="1 if the program compiles"),
        RewardComponent("runtime", 0.0, description="1 if it runs to the end or to a wrong result"),
        RewardComponent("correctness", 1.0, description="1 if it passes every test"),
    )
    metric_names = ("fenced", "calls", "faulty")

    def __init__(
        self,
        *,
        load: Callable[[str], Exercises],
        placeholders: Mapping[str, str],
        split: str = "test",
        dataset: str = "builtin",
        reward_weights: Mapping[str, float] | None = None,
        render_mode: str | None = None,
        time_limit: float = 10.0,
        memory_limit: int = 1024,
        sandbox: str = "auto",
        isolation: str = "basic",
        sandbox_image: str | None = None,
        prompt_template: str | os.PathLike[str] | None = None,
    ) -> None:
        """Make an environment; a benchmark gives the first two.

        Args:
            load: reads the exercises of a data set.
            placeholders: meanings of the names in `Exercise.values`; a prompt must have the first one.
            split: `"test"` or `"all"`; see the benchmark for others.
            dataset: `"builtin"`, a path or a hub id.
            reward_weights: weights that differ from the defaults, by component name.
            render_mode: None or `"ansi"`.
            time_limit: CPU seconds of a program over all its tests, or for each input that it reads.
            memory_limit: address space of a program, MiB.
            sandbox: where programs run: `"auto"`, `"embedded"` or `"docker"`.
            isolation: the least isolation accepted: `"reduced"`, `"basic"`, `"strong"`, `"full"`.
            sandbox_image: image of the docker sandbox; None is its default.
            prompt_template: path of a prompt with placeholders, see `templates.read_message_template`.

        Raises:
            ValueError: for a wrong option.
        """
        super().__init__(split=split, dataset=dataset, reward_weights=reward_weights, render_mode=render_mode)
        self._load = load
        self._runner = Runner(sandbox, isolation, checked_limits(time_limit, memory_limit), sandbox_image)
        self._template = None if prompt_template is None else _template(prompt_template, placeholders)
        self._verdict: Verdict | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the last answer, None where nothing was run; its message is for people, not to be parsed."""
        return self._verdict

    def load_tasks(self) -> TaskSet[Any]:
        """Read the data set."""
        return TaskSet(self._load(self.dataset), self.split, self.dataset)

    def open(self, task: Task[Any]) -> Opening:
        """Pose the exercise."""
        exercise: Exercise = task.data
        self._verdict = None
        exercise.prepare()
        return Opening(exercise.messages() if self._template is None else self._template.messages(exercise.values))

    def answer(self, text: str) -> Outcome:
        """Run the program of an answer."""
        exercise: Exercise = self.task.data
        found = last_block(text)
        metrics = {"fenced": float(found.fenced), "calls": 0.0, "faulty": float(exercise.faulty)}
        if not found.code:
            return Outcome(self.reward_spec.zeros(), status=EMPTY, metrics=metrics)
        verdict = exercise.judge(self._runner.sandbox(), exercise.program(found.code), self._runner.limits)
        self._verdict = verdict
        compiles, runs, passes = stages(verdict)
        status = str(verdict.outcome) if verdict.outcome is Ending.SYNTAX_ERROR else status_of(verdict)
        if exercise.faulty and compiles == 1.0:
            runs, passes, status = 0.0, 0.0, FAULTY
        values = {
            "format": float(exercise.well_formed(found)),
            "syntax": compiles,
            "runtime": runs,
            "correctness": passes,
        }
        return Outcome(values, status=status, metrics={**metrics, "calls": float(verdict.calls)})

    def reference(self) -> tuple[str, ...] | None:
        """The text of a right answer; None for a task without one."""
        exercise: Exercise = self.task.data
        text = None if exercise.faulty else exercise.reference()
        return None if text is None else (text,)


def chosen(option: str, value: object, choices: Iterable[str]) -> str:
    """A name that is among the allowed ones.

    Raises:
        ValueError: if it is not.
    """
    names = tuple(choices)
    if not isinstance(value, str) or value not in names:
        raise unknown(option, value, names)
    return value


def _template(path: object, placeholders: Mapping[str, str]) -> MessageTemplate:
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"prompt_template must be a path or None, not {shown(path)}")
    template = read_message_template(os.fspath(path), placeholders)
    needed = next(iter(placeholders))
    if needed not in template.names:
        raise ValueError(f"prompt_template {os.fspath(path)!r} must contain ${needed}")
    return template
