"""`MultiRewardEnv`: the base of every environment here.

An environment written on it gives its components, its tasks, the first messages of a task and the outcome of
an answer; seeding, options, spaces, the conversation, weights and the shape of `info` are done once, here.
"""

import json
import math
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict, cast

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict

from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.rewards import RewardComponent, RewardSpec, check_name
from corrgrpo_envs.spaces import Chat, Unicode
from corrgrpo_envs.tasks import SPLITS, Task, TaskSet

INFRASTRUCTURE_ERROR = "infrastructure_error"
LENGTH = "length"


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
        tools: OpenAI tool schemas, or the JSON text of their list; empty where the prompt itself lists the tools or
            there are none.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | str = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer led to.

    Attributes:
        components: raw value of every component; None where nothing is scored at this step. `nan` says that
            infrastructure failed, never that the answer was bad.
        done: the episode ends here.
        status: one word that says why, e.g. `"ok"`, `"invalid_format"`, `"infrastructure_error"`. Any `nan`
            makes it `"infrastructure_error"`, and that status without components makes all of them `nan`.
        messages: messages that follow the assistant's, before its next turn (tool outputs, user).
        metrics: numbers beyond the rewards, under names of `MultiRewardEnv.metric_names`; what was not
            measured (missing or `nan`) is left out of `info`.
    """

    components: Mapping[str, float] | None
    done: bool = True
    status: str = "ok"
    messages: Sequence[Message] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


Step = tuple[Observation, float, bool, bool, dict[str, Any]]


class MultiRewardEnv(gym.Env[Observation, str], ABC):
    """A text environment whose reward is a weighted sum of named components.

    Subclasses set `components` and `metric_names`, and define `load_tasks`, `open` and `answer`; multi-turn
    ones also `cut`. Constructors must be cheap and start nothing: tasks are loaded at first use, and what is
    heavy is shared by all environments of a process. State is kept in plain attributes, so that an
    environment can be pickled and copied in the middle of an episode.

    Attributes:
        reward_spec: names, weights, ranges and descriptions of the components.
        reward_space: `Box` of raw component vectors, shape (K,), float32 (MO-Gymnasium's convention).
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's type)
    components: ClassVar[tuple[RewardComponent, ...]] = ()
    metric_names: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str = "builtin",
        reward_weights: Mapping[str, float] | None = None,
        render_mode: str | None = None,
        components: Iterable[RewardComponent] | None = None,
    ) -> None:
        """Make an environment.

        Args:
            split: `"train"`, `"validation"`, `"test"` or `"all"`.
            dataset: `"builtin"`, a path to a file or folder, or a hub id.
            reward_weights: weights that differ from the defaults, by component name.
            render_mode: None or `"ansi"` (the conversation as text).
            components: the components of this instance, for a subclass in which they depend on other
                arguments; None takes the class's.

        Raises:
            ValueError: for a wrong split, dataset, weight or render mode.
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown("render_mode", render_mode, self.metadata["render_modes"])
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        if not isinstance(dataset, str | os.PathLike):
            raise ValueError(f"dataset must be 'builtin', a path or a hub id, not {shown(dataset)}")
        for name in self.metric_names:
            check_name("a metric's name", name)
        self.split, self.dataset, self.render_mode = split, os.fspath(dataset), render_mode
        self.reward_spec = RewardSpec(self.components if components is None else components).with_weights(
            reward_weights
        )
        self.reward_space: Box = self.reward_spec.space()
        # Spaces belong to one instance: a shared one would share its random state.
        self.observation_space = cast("gym.Space[Observation]", Dict(messages=Chat(), tools=Unicode()))
        self.action_space = Unicode()
        self._tasks: TaskSet[Any] | None = None
        self._task: Task[Any] | None = None
        self._messages: list[Message] = []
        self._tools = "[]"
        self._running = False

    # ---- what a subclass defines -------------------------------------------------------------------------

    @abstractmethod
    def load_tasks(self) -> TaskSet[Any]:
        """Return the tasks of `self.split` of `self.dataset`; heavy data are shared per process.

        Raises:
            ValueError: if they can't be read; the message names file, row and field.
        """

    @abstractmethod
    def open(self, task: Task[Any]) -> Opening:
        """Begin an episode on the task and return its first messages."""

    @abstractmethod
    def answer(self, text: str) -> Outcome:
        """Act on the assistant's text, of any length and code points; never raises on one.

        Randomness comes from `self.np_random` alone.
        """

    def cut(self, text: str) -> Outcome:
        """Score an episode that the caller breaks off after `text`; by default as an ordinary answer."""
        return self.answer(text)

    def reference(self) -> tuple[str, ...] | None:
        """The assistant texts of a right answer to the current task, one per turn, or None.

        Raises:
            ResetNeeded: before the first reset, where there are references.
        """
        return None

    # ---- Gymnasium's interface ---------------------------------------------------------------------------

    @property
    def tasks(self) -> TaskSet[Any]:
        """The tasks of this environment's split; loaded at first use."""
        if self._tasks is None:
            tasks = self.load_tasks()
            if not isinstance(tasks, TaskSet):
                raise RuntimeError(f"load_tasks() must return a TaskSet, not {shown(tasks)}")
            self._tasks = tasks
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

        Returns:
            The observation and an info with `task_id` and `status` (`"reset"`).

        Raises:
            ValueError: for an unknown option, task id or index.
        """
        super().reset(seed=seed)
        self._running, self._task = False, None
        self._task = self._choose(options)
        opening = self.open(self._task)
        if not isinstance(opening, Opening):
            raise RuntimeError(f"open() must return an Opening, not {shown(opening)}")
        self._messages = [_message(message) for message in opening.messages]
        tools = opening.tools
        self._tools = tools if isinstance(tools, str) else json.dumps(list(tools), ensure_ascii=False)
        self._running = True
        # No weights here: MO-Gymnasium's wrappers keep an array under the same key in step's info.
        return self._observation(), {"task_id": self._task.id, "status": "reset"}

    def step(self, action: str) -> Step:
        """Take the assistant's next text, of any length and code points.

        Returns:
            Observation, weighted sum of the components, terminated, truncated, and an info with `task_id`,
            `status`, `reward_components` (raw), `reward_weights` and `metrics`.

        Raises:
            ResetNeeded: if the episode has ended or not begun.
            TypeError: if the action is not a text.
        """
        return self._advance(action, self.answer, broken_off=False)

    def finish(self, text: str) -> Step:
        """Break the episode off after `text` (e.g. the context is full) and score it.

        Returns:
            What `step` returns, truncated, with status `"length"`.

        Raises:
            ResetNeeded: if the episode has ended or not begun.
            TypeError: if `text` is not a text.
        """
        return self._advance(text, self.cut, broken_off=True)

    def render(self) -> str | None:
        """The conversation as text, in render mode `"ansi"`."""
        if self.render_mode is None:
            return None
        return "\n".join(f"[{message['role']}] {message['content']}" for message in self._messages)

    def __getstate__(self) -> dict[str, Any]:
        # Data sets are found again by name: a pickled environment stays a few kilobytes.
        return {**self.__dict__, "_tasks": None}

    # ---- inside ------------------------------------------------------------------------------------------

    def _choose(self, options: Mapping[str, Any] | None) -> Task[Any]:
        allowed = ("task_id", "task_index")
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(f"reset options must be a dict with 'task_id' or 'task_index', not {shown(options)}")
        given = dict(options or {})
        for name in given:
            if name not in allowed:
                raise unknown("reset option", name, allowed)
        if len(given) == 2:
            raise ValueError("reset options 'task_id' and 'task_index' exclude each other")
        if "task_id" in given:
            if not isinstance(given["task_id"], str):
                raise ValueError(f"reset option 'task_id' must be a text, not {shown(given['task_id'])}")
            return self.tasks.get(given["task_id"])
        if "task_index" in given:
            return self.tasks[_index(given["task_index"], len(self.tasks))]
        return self.tasks[int(self.np_random.integers(len(self.tasks)))]

    def _advance(self, text: str, score: Callable[[str], Outcome], *, broken_off: bool) -> Step:
        if not self._running:
            raise ResetNeeded("the episode has ended or not begun: call reset() first")
        if not isinstance(text, str):
            raise TypeError(f"an action is a text (str), not {type(text).__name__}")
        text = str(text)  # numpy's str_ would not stay inside the observation's types
        self._running = False  # an episode whose scoring raises can't go on from half a step
        outcome = score(text)
        if not isinstance(outcome, Outcome):
            raise RuntimeError(f"answer() and cut() must return an Outcome, not {shown(outcome)}")
        components, status = self._scores(outcome)
        self._messages.append(Message(role="assistant", content=text))
        self._messages.extend(_message(message) for message in outcome.messages)
        self._running = not (outcome.done or broken_off)
        info = {
            "task_id": self.task.id,
            "status": LENGTH if broken_off and status != INFRASTRUCTURE_ERROR else status,
            "reward_components": components,
            "reward_weights": self.reward_spec.weights,
            "metrics": self._metrics(outcome.metrics),
        }
        reward = self.reward_spec.total(components)
        return self._observation(), reward, bool(outcome.done) and not broken_off, broken_off, info

    def _scores(self, outcome: Outcome) -> tuple[dict[str, float], str]:
        failed = outcome.status == INFRASTRUCTURE_ERROR
        if outcome.components is None:
            return (self.reward_spec.unscored() if failed else self.reward_spec.zeros()), outcome.status
        components = self.reward_spec.check(outcome.components)
        unscored = any(math.isnan(value) for value in components.values())
        if failed and not unscored:
            raise RuntimeError(
                f"status {INFRASTRUCTURE_ERROR!r} without a nan component: a failure must not be a score"
            )
        return components, INFRASTRUCTURE_ERROR if unscored else outcome.status

    def _metrics(self, measured: Mapping[str, float]) -> dict[str, float]:
        for name in measured:
            if name not in self.metric_names:
                raise RuntimeError(f"metric {name!r} is not in metric_names {self.metric_names}")
        # A fixed order, floats only (vector environments take the array's type from the first value), no nan.
        metrics = {name: float(measured[name]) for name in self.metric_names if name in measured}
        return {name: value for name, value in metrics.items() if not math.isnan(value)}

    def _observation(self) -> Observation:
        # Fresh dicts at every call: a caller may keep or change what it was given.
        return Observation(messages=tuple(message.copy() for message in self._messages), tools=self._tools)


def _message(message: Message) -> Message:
    role, content = message["role"], message["content"]
    if not (isinstance(role, str) and isinstance(content, str)):
        raise RuntimeError(f"a message's role and content must be texts, not {shown(role)} and {shown(content)}")
    return Message(role=str(role), content=str(content))


def _index(value: object, count: int) -> int:
    """Return a task's index, 0 ≤ index < count."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        index = operator.index(cast("int", value))
    except TypeError:
        raise ValueError(f"reset option 'task_index' must be an integer, not {shown(value)}") from None
    if not 0 <= index < count:
        raise ValueError(f"reset option 'task_index' must be in 0..{count - 1}, not {shown(index)}")
    return index
