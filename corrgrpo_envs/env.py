"""`MultiRewardEnv`: the base of every environment here.

An environment written on it gives its components, its tasks, the first messages of a task and the outcome of
an answer; seeding, options, spaces, the conversation, weights and the shape of `info` are done once, here.
"""

import json
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict

import gymnasium as gym
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict

from corrgrpo_envs.errors import unknown
from corrgrpo_envs.rewards import RewardComponent, RewardSpec
from corrgrpo_envs.spaces import Chat, Unicode
from corrgrpo_envs.tasks import SPLITS, Task, TaskSet


class Message(TypedDict):
    """One message of a conversation; `content` is always text."""

    role: str
    content: str


class Observation(TypedDict):
    """What the policy sees: the whole conversation so far, and the tools as JSON text."""

    messages: tuple[Message, ...]
    tools: str


@dataclass(frozen=True, slots=True)
class Opening:
    """How an episode begins.

    Attributes:
        messages: system and user messages.
        tools: OpenAI tool schemas; empty where the prompt itself lists the tools or there are none.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer led to.

    Attributes:
        components: raw value of every component; None where nothing is scored at this step.
        done: the episode ends here.
        status: one word that says why, e.g. `"ok"`, `"invalid_format"`, `"infrastructure_error"`.
        messages: messages that follow the assistant's, before its next turn (tool outputs, user).
        metrics: numbers beyond the rewards; the keys of `MultiRewardEnv.metric_names`, missing ones are `nan`.
    """

    components: Mapping[str, float] | None
    done: bool = True
    status: str = "ok"
    messages: Sequence[Message] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


class MultiRewardEnv(gym.Env[Observation, str]):
    """A text environment whose reward is a weighted sum of named components.

    Subclasses set `components` and `metric_names`, and define `load_tasks`, `open` and `answer`; multi-turn
    ones also `cut`. Constructors must be cheap: tasks are loaded at first use.

    Attributes:
        reward_spec: names, weights, ranges and descriptions of the components.
        reward_space: `Box` of raw component vectors, shape (K,), float32 (MO-Gymnasium's convention).
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}
    components: ClassVar[tuple[RewardComponent, ...]]
    metric_names: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str = "builtin",
        reward_weights: Mapping[str, float] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Make an environment.

        Args:
            split: `"train"`, `"validation"`, `"test"` or `"all"`.
            dataset: `"builtin"`, a path to a file or folder, or a hub id.
            reward_weights: weights that differ from the defaults, by component name.
            render_mode: None or `"ansi"` (the conversation as text).
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown("render_mode", render_mode, self.metadata["render_modes"])
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        self.split, self.dataset, self.render_mode = split, dataset, render_mode
        self.reward_spec = RewardSpec(self.components).with_weights(reward_weights)
        self.reward_space: Box = self.reward_spec.space()
        self.observation_space = Dict(messages=Chat(), tools=Unicode())
        self.action_space = Unicode()
        self._tasks: TaskSet[Any] | None = None
        self._task: Task[Any] | None = None
        self._messages: list[Message] = []
        self._tools = "[]"
        self._running = False

    # ---- what a subclass defines -------------------------------------------------------------------------

    @abstractmethod
    def load_tasks(self) -> TaskSet[Any]:
        """Return the tasks of `self.split` of `self.dataset`; heavy data are shared per process."""

    @abstractmethod
    def open(self, task: Task[Any]) -> Opening:
        """Begin an episode on the task and return its first messages."""

    @abstractmethod
    def answer(self, text: str) -> Outcome:
        """Act on the assistant's text. Never raises on any text."""

    def cut(self, text: str) -> Outcome:
        """Score an episode that the caller breaks off after `text`; by default as an ordinary answer."""
        return self.answer(text)

    def reference(self) -> tuple[str, ...] | None:
        """The assistant texts of a right answer to the current task, one per turn, or None."""
        return None

    # ---- Gymnasium's interface ---------------------------------------------------------------------------

    @property
    def tasks(self) -> TaskSet[Any]:
        """The tasks of this environment's split; loaded at first use."""
        if self._tasks is None:
            self._tasks = self.load_tasks()
        return self._tasks

    @property
    def task(self) -> Task[Any]:
        """The current task.

        Raises:
            ResetNeeded: before the first reset.
        """
        if self._task is None:
            raise ResetNeeded("reset() the environment first: there is no current task")
        return self._task

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: seeds the draw of tasks.
            options: `{"task_id": str}` or `{"task_index": int}` chooses the task; else one is drawn.

        Raises:
            ValueError: for an unknown option, task id or index.
        """
        super().reset(seed=seed)
        self._task = self._choose(dict(options or {}))
        opening = self.open(self._task)
        self._messages = [Message(role=m["role"], content=m["content"]) for m in opening.messages]
        self._tools = json.dumps(list(opening.tools), ensure_ascii=False)
        self._running = True
        return self._observation(), {"task_id": self._task.id, "status": "reset"}

    def step(self, action: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take the assistant's next text, of any length and code points.

        Raises:
            ResetNeeded: if the episode has ended or not begun.
        """
        return self._advance(str(action), cut=False)

    def finish(self, text: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Break the episode off after `text` (e.g. the context is full): score it, `truncated`, status `length`.

        Raises:
            ResetNeeded: if the episode has ended or not begun.
        """
        return self._advance(str(text), cut=True)

    def render(self) -> str | None:  # type: ignore[override]
        """The conversation as text, in render mode `"ansi"`."""
        if self.render_mode is None:
            return None
        return "\n".join(f"[{message['role']}] {message['content']}" for message in self._messages)

    def __getstate__(self) -> dict[str, Any]:
        # Data sets are found again by name: a pickled environment stays a few kilobytes.
        return {**self.__dict__, "_tasks": None}

    # ---- inside ------------------------------------------------------------------------------------------

    def _choose(self, options: dict[str, Any]) -> Task[Any]:
        allowed = ("task_id", "task_index")
        for name in options:
            if name not in allowed:
                raise unknown("reset option", name, allowed)
        if len(options) == 2:
            raise ValueError("reset options 'task_id' and 'task_index' exclude each other")
        if "task_id" in options:
            return self.tasks.get(str(options["task_id"]))
        index = options.get("task_index")
        if index is None:
            index = int(self.np_random.integers(len(self.tasks)))
        elif isinstance(index, bool) or not hasattr(index, "__index__"):
            raise ValueError(f"reset option 'task_index' must be an integer, not {index!r}")
        elif not 0 <= index < len(self.tasks):
            raise ValueError(f"reset option 'task_index' must be in 0..{len(self.tasks) - 1}, not {index}")
        return self.tasks[int(index)]

    def _advance(self, text: str, *, cut: bool) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if not self._running:
            raise ResetNeeded("the episode has ended or not begun: call reset() first")
        outcome = self.cut(text) if cut else self.answer(text)
        self._messages.append(Message(role="assistant", content=text))
        self._messages.extend(Message(role=m["role"], content=m["content"]) for m in outcome.messages)
        self._running = not (outcome.done or cut)
        components = self.reward_spec.check(
            self.reward_spec.zeros() if outcome.components is None else outcome.components
        )
        metrics = dict.fromkeys(self.metric_names, math.nan)
        for name, value in outcome.metrics.items():
            if name not in metrics:
                raise RuntimeError(f"metric {name!r} is not in metric_names {self.metric_names}")
            metrics[name] = math.nan if math.isnan(value) else float(value)
        info = {
            "task_id": self.task.id,
            "status": "length" if cut and outcome.status == "ok" else outcome.status,
            "reward_components": components,
            "reward_weights": self.reward_spec.weights,
            "metrics": metrics,
        }
        reward = self.reward_spec.total(components)
        return self._observation(), reward, outcome.done and not cut, cut, info

    def _observation(self) -> Observation:
        # Fresh dicts at every call: a caller may keep or change what it was given.
        messages = tuple(Message(role=m["role"], content=m["content"]) for m in self._messages)
        return Observation(messages=messages, tools=self._tools)
