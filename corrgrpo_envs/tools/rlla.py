"""`corrgrpo/RLLA-v0`: answer the last turn of a dialogue with tool calls or a response."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from corrgrpo_envs.env import MultiRewardEnv, Opening, Outcome
from corrgrpo_envs.errors import DatasetError, shown, unknown
from corrgrpo_envs.tasks import Task, TaskSet
from corrgrpo_envs.tools.blocks import Layout, choose
from corrgrpo_envs.tools.dialogues import KINDS, Dialogue, Tool
from corrgrpo_envs.tools.metrics import METRICS, metrics
from corrgrpo_envs.tools.prompts import PROMPT_STYLES, read_template
from corrgrpo_envs.tools.scoring import CORRGRPO, SCORINGS, Scorer
from corrgrpo_envs.tools.sources import dialogues


class RLLAEnv(MultiRewardEnv):
    """Tool calling as in RLLA-4K (ToolRL, arXiv 2504.13958), with CorrGRPO's four rewards (arXiv 2609.36820).

    The policy reads the tools and the dialogue so far and writes a think block, then a tool_call block with
    one JSON object a line, a response block, or both. Components: `function_name` (-0.5 to 0.5),
    `parameter_names` (-1 to 1), `parameter_values` (-1.5 to 1.5) and `format` (0 to 1). The first three are 0
    where the ground truth makes no call.

    Status: `ok`, `invalid_format` (the calls are right, the blocks are not), `no_call` (no tool_call block),
    `unparsable_call`, `wrong_call`.
    """

    components = CORRGRPO.components
    metric_names = METRICS

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str = "builtin",
        reward_weights: Mapping[str, float] | None = None,
        render_mode: str | None = None,
        kinds: Iterable[str] | None = None,
        max_tools: int | None = None,
        distractors: int | None = None,
        held_out: str | os.PathLike[str] | None = None,
        prompt_style: str = "compact",
        prompt_template: str | os.PathLike[str] | None = None,
        scoring: str = "corrgrpo",
        matching: str = "greedy",
        separator: str = "any",
        think: str = "required",
        tag_in_thought: str = "fail",
        surplus_penalty: float = 0.0,
    ) -> None:
        """Make an environment; the defaults are the published rules.

        Args:
            split: `"train"`, `"validation"`, `"test"` or `"all"`.
            dataset: `"builtin"`, a path to a file or folder, or a hub id.
            reward_weights: weights that differ from the defaults, by component name.
            render_mode: None or `"ansi"`.
            kinds: keep only tasks of these kinds: `single`, `several`, `none`, `nested`, `history`.
            max_tools: keep only tasks that offer at most so many tools.
            distractors: offer at most so many tools that the reference does not call, the first of them; 0 makes the
                choice of the tool trivial. For prompts that are built here, not for rows that carry theirs.
            held_out: a data set whose prompts are dropped from this one.
            prompt_style: `"compact"` or `"published"`; rows that carry a prompt keep it.
            prompt_template: path of a prompt with placeholders, for all rows, see `prompts.read_template`.
            scoring: `"corrgrpo"`, or `"toolrl"` for the two components `correctness` (-3 to 3) and `format`.
            matching: `"greedy"` or `"optimal"`, see `Scorer`.
            separator: `"any"` or `"newline"` between blocks, see `Layout`.
            think: opening think tag `"required"` or `"optional"`.
            tag_in_thought: a thought that names a tag makes the answer `"fail"`, or `"ignore"` it.
            surplus_penalty: weight of a call too many in the parameter scores, see `Scorer`.

        Raises:
            ValueError: for a wrong option.
        """
        self._rewards = choose("scoring", scoring, SCORINGS)
        super().__init__(
            split=split,
            dataset=dataset,
            reward_weights=reward_weights,
            render_mode=render_mode,
            components=self._rewards.components,
        )
        self._kinds = None if kinds is None else _checked_kinds(kinds)
        self._max_tools = None if max_tools is None else _checked_count("max_tools", max_tools, 1)
        self._distractors = None if distractors is None else _checked_count("distractors", distractors, 0)
        self._held_out = None if held_out is None else _checked_path("held_out", held_out)
        style = choose("prompt_style", prompt_style, PROMPT_STYLES)
        self._template = (
            None if prompt_template is None else read_template(_checked_path("prompt_template", prompt_template))
        )
        self._prompt = self._template or style
        self._scorer = Scorer(Layout(separator, think, tag_in_thought), matching, surplus_penalty)

    def load_tasks(self) -> TaskSet[Dialogue]:
        """Read the data set, keep the tasks that the options ask for."""
        everything = dialogues(self.dataset, self._held_out)
        if not everything:
            raise DatasetError(f"data set {self.dataset!r} has no dialogues")
        kept = [task for task in everything if self._keeps(task)]
        if not kept:
            found = sorted({task.kind for task in everything})
            raise ValueError(
                f"kinds={self._kinds} and max_tools={self._max_tools} leave no task of data set "
                f"{self.dataset!r}, which has {len(everything)} tasks of kinds {found}"
            )
        return TaskSet(kept, split=self.split, name=self.dataset)

    def open(self, task: Task[Any]) -> Opening:
        """Pose the dialogue. The prompt lists the tools, so the observation's `tools` is empty."""
        dialogue: Dialogue = task.data
        if dialogue.messages and self._template is None:
            if self._distractors is not None:
                raise ValueError(f"distractors can't be used for task {task.id!r}: its row carries its prompt")
            return Opening(dialogue.messages)
        if not dialogue.tools:
            raise ValueError(
                f"prompt_template can't be used for task {task.id!r}: its prompt has no list of tools to read"
            )
        return Opening(self._prompt(_offered(dialogue, self._distractors), dialogue.history))

    def answer(self, text: str) -> Outcome:
        """Score the answer."""
        score = self._scorer.score(text, self.task.data.truth)
        return Outcome(self._rewards.values(score), status=score.status, metrics=metrics(score))

    def reference(self) -> tuple[str, ...]:
        """The ground truth's text, which scores the maximum."""
        return (self.task.data.truth.answer(),)

    def _keeps(self, task: Task[Dialogue]) -> bool:
        of_kind = self._kinds is None or task.kind in self._kinds
        return of_kind and (self._max_tools is None or len(task.data.tools) <= self._max_tools)


def _offered(dialogue: Dialogue, distractors: int | None) -> tuple[Tool, ...]:
    """The dialogue's tools, in their order, with at most `distractors` that the reference does not call."""
    if distractors is None:
        return dialogue.tools
    called = {call.name for call in dialogue.truth.calls or ()}
    others = [tool.name for tool in dialogue.tools if tool.name not in called]
    # A dialogue that needs no call still offers a tool not to be called.
    kept = called.union(others[: distractors if called else max(1, distractors)])
    return tuple(tool for tool in dialogue.tools if tool.name in kept)


def _checked_count(option: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{option} must be a whole number from {least} upwards, or None, not {shown(value)}")
    return value


def _checked_path(option: str, value: str | os.PathLike[str]) -> str:
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        raise ValueError(f"{option} must be a path or None, not {shown(value)}")
    return path


def _checked_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    if not isinstance(kinds, Iterable):
        raise ValueError(f"kinds must be names out of {KINDS}, or None for all, not {shown(kinds)}")
    names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if not names:
        raise ValueError(f"kinds must name at least one of {KINDS}, or be None for all")
    for name in names:
        if name not in KINDS:
            raise unknown("kinds", name, KINDS)
    return names
