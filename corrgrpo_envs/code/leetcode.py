"""`corrgrpo/LeetCode-v0`: write a program that solves a problem."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from corrgrpo_envs.code.efficiency import TIMINGS
from corrgrpo_envs.code.extraction import fenced
from corrgrpo_envs.code.problems import DIFFICULTIES, REFERENCES, CodeProblem
from corrgrpo_envs.code.prompts import filled, posed, read_template
from corrgrpo_envs.code.scoring import COMPONENTS, METRICS, Runner, Score, Scorer, checked_limits, metrics
from corrgrpo_envs.code.sources import problems, runtimes
from corrgrpo_envs.env import MultiRewardEnv, Opening, Outcome
from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.tasks import Task, TaskSet


class LeetCodeEnv(MultiRewardEnv):
    """Programming as in LeetCodeDataset (arXiv 2504.14655), with CorrGRPO's seven rewards (arXiv 2609.36820).

    The policy reads a problem and answers with a `class Solution` in a fenced block. Components, all 0 to 1: `format`,
    `syntax`, `compile`, `runtime`, `correctness`, `ast_similarity`, `efficiency`. Programs run in the sandbox.

    Status: `passed`, or `empty_code`, `syntax_error`, `compile_error`, `failed` (an assertion of the test),
    `exception`, `test_error` (the test can't use what the program returned), `missing_package`
    (`missing_package:numpy` and the like), `timeout`, `memory_limit`, `output_limit`, `infrastructure_error`.
    """

    components = COMPONENTS
    metric_names = METRICS

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str = "builtin",
        reward_weights: Mapping[str, float] | None = None,
        render_mode: str | None = None,
        difficulty: str | Iterable[str] | None = None,
        time_limit: float = 5.0,
        memory_limit: int = 1024,
        sandbox: str = "auto",
        isolation: str = "basic",
        sandbox_image: str | None = None,
        reference: str = "completion",
        efficiency: str | bool = "paired",
        tie_band: float = 0.05,
        reference_runtimes: str | os.PathLike[str] | None = None,
        prompt_template: str | os.PathLike[str] | None = None,
    ) -> None:
        """Make an environment.

        Args:
            split: `"train"`, `"validation"`, `"test"` or `"all"`.
            dataset: `"builtin"`, a path to a file or folder of LeetCodeDataset, or a hub id.
            reward_weights: weights that differ from the defaults, by component name.
            render_mode: None or `"ansi"`.
            difficulty: keep only these: `"easy"`, `"medium"`, `"hard"`.
            time_limit: CPU seconds of a program over all its tests.
            memory_limit: address space of a program, MiB.
            sandbox: where programs run: `"auto"`, `"embedded"` or `"docker"`.
            isolation: the least isolation accepted: `"reduced"`, `"basic"`, `"strong"`, `"full"`.
            sandbox_image: image of the docker sandbox; None is its default.
            reference: `"completion"`, falling back to the response, or `"response"`, as published.
            efficiency: `"paired"` times the reference with the program; `"stored"` compares with stored times, as
                published; `"off"`, or False, leaves the component 0.
            tie_band: a program that is faster by no more than this share scores 0; 0 is the published form.
            reference_runtimes: a file of stored times for `"stored"`, see `sources.runtimes`; rows may carry theirs.
            prompt_template: path of a prompt with placeholders, for all rows, see `prompts.read_template`.

        Raises:
            ValueError: for a wrong option.
        """
        super().__init__(split=split, dataset=dataset, reward_weights=reward_weights, render_mode=render_mode)
        self._difficulties = None if difficulty is None else _checked_difficulties(difficulty)
        self._reference = _chosen("reference", reference, REFERENCES)
        runner = Runner(sandbox, isolation, checked_limits(time_limit, memory_limit), sandbox_image)
        # YAML and command lines read a bare off as false.
        timing = _chosen("efficiency", "off" if efficiency is False else efficiency, TIMINGS)
        self._scorer = Scorer(runner, timing, _checked_share(tie_band))
        self._runtimes = None if reference_runtimes is None else os.fspath(reference_runtimes)
        self._template = None if prompt_template is None else read_template(os.fspath(prompt_template))
        self._score: Score | None = None

    @property
    def score(self) -> Score | None:
        """All that is known of the last answer: its code, and the verdict with a message; None before one.

        The message may quote the program: it is for people, not to be parsed.
        """
        return self._score

    def load_tasks(self) -> TaskSet[CodeProblem]:
        """Read the data set, keep the tasks that the options ask for."""
        everything = problems(self.dataset)
        kept = [task for task in everything if self._difficulties is None or task.kind in self._difficulties]
        if not kept:
            found = sorted({task.kind for task in everything})
            raise ValueError(
                f"difficulty={self._difficulties} leaves no task of data set {self.dataset!r}, which has "
                f"{len(everything)} tasks of difficulties {found}"
            )
        return TaskSet(kept, split=self.split, name=self.dataset)

    def open(self, task: Task[Any]) -> Opening:
        """Pose the problem."""
        problem: CodeProblem = task.data
        self._score = None
        if self._template is None:
            return Opening(posed(problem))
        if not problem.statement.strip():
            raise ValueError(f"prompt_template can't be used for task {task.id!r}: its row has no statement of its own")
        return Opening(filled(self._template, problem))

    def answer(self, text: str) -> Outcome:
        """Score the answer."""
        problem: CodeProblem = self.task.data
        score = self._scorer.score(text, problem, self._reference(problem), self._reference_seconds())
        self._score = score
        return Outcome(score.components(), status=score.status, metrics=metrics(score))

    def reference(self) -> tuple[str, ...] | None:
        """The reference program in a fenced block; None for a task without one."""
        code = self._reference(self.task.data)
        return None if code is None else (fenced(code),)

    def _reference_seconds(self) -> float | None:
        problem: CodeProblem = self.task.data
        if self._runtimes is None:
            return problem.reference_seconds
        return runtimes(self._runtimes).get(self.task.id, problem.reference_seconds)


def _chosen(option: str, value: object, choices: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise unknown(option, value, choices)
    return choices[value]


def _checked_share(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"tie_band must be a number from 0 up to 1, not {shown(value)}")
    return float(value)


def _checked_difficulties(value: str | Iterable[str]) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else ()
    if not names:
        raise ValueError(f"difficulty must name at least one of {DIFFICULTIES}, or be None for all, not {shown(value)}")
    for name in names:
        if not isinstance(name, str) or name.casefold() not in DIFFICULTIES:
            raise unknown("difficulty", name, DIFFICULTIES)
    return tuple(name.casefold() for name in names)
