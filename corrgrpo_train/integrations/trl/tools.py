"""`ToolEpisode`: an environment with tools as TRL takes it, an object with a `reset` and a method for each tool.

TRL reads the calls in a model's text itself and makes them one at a time; what a method returns becomes the tool's
message. Here each call becomes the text of a turn, written as the environment wants calls, and is a step of it. What
TRL does not hand on (a tool that does not exist) and the answer are made up for when the episode is scored.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from corrgrpo_envs.agents.formats import FORMATS, action_text
from corrgrpo_envs.errors import unknown
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl.environments import Environments, beginning
from corrgrpo_train.integrations.trl.plain_text import PlainText
from corrgrpo_train.rollout.environment import EnvironmentFailedError, EpisodeRunner
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.turns import fail, reset, step, take

ENDED = "The episode has ended."
"""What a tool says after the environment's last turn."""

UNWRITABLE = '{"name": <tool_call>'
"""Stands for a call that the environment's format can't write: in every format it is a broken one."""


class ToolEpisode:
    """One rollout of an environment; a subclass made by `tool_environment` has the tools as methods.

    Every public method but `reset` is a tool to TRL, so there are no others.
    """

    def __init__(
        self, environments: Environments, tools: Sequence[str], plain: PlainText, end_tokens: Collection[int]
    ) -> None:
        """Make no environment yet.

        Args:
            environments: of which one for each split is this rollout's.
            tools: names of the methods.
            plain: makes plain what the model is shown.
            end_tokens: with which a completion ends that was not cut.
        """
        self._environments, self._owner = environments, environments.owner(self)
        self._tools, self._plain, self._end_tokens = tuple(tools), plain, frozenset(end_tokens)
        self._runner: EpisodeRunner | None = None
        self._format = "hermes"
        self._episode = Episode(0, 0, "")
        self._seen: tuple[dict[str, str], ...] = ()
        self._calls, self._over, self._settled = 0, True, True
        self._fault: Exception | None = None

    def reset(self, *, prompt: Sequence[Mapping[str, Any]] = (), **row: Any) -> None:
        """Begin an episode on a row of the data set.

        Raises:
            UsageError: if the row is not one of the task's, or the environment is of no kind that can be run.
        """
        start, split = beginning(row)
        runner = self._environments.runner(split, self._owner)
        self._runner, self._episode, self._fault = runner, Episode(0, 0, start.label), None
        self._format = _format_of(runner)
        self._calls, self._over, self._settled = 0, False, False
        first = reset(runner, start)
        if isinstance(first, EnvironmentFailedError):
            fail(self._episode, first)
            self._over = True
            return
        self._seen = tuple(dict(message) for message in first["messages"])
        if [self._plain(message["content"]) for message in self._seen] != [message["content"] for message in prompt]:
            raise UsageError(
                f"task {start.label} begins with other messages than the data set's row: make the data set and the "
                "reward functions with one trl_task"
            )

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Make a call and return what the environment answers."""
        self._calls += 1
        if self._over:
            return ENDED
        before = len(self._seen)
        try:
            self._step(self._written({"tool_calls": [{"function": {"name": name, "arguments": arguments}}]}))
        except Exception as error:
            # TRL makes a tool's message of any exception and goes on; it is raised again when the episode is scored.
            self._fault, self._over = error, True
            raise
        # The first new message is the call itself.
        answers = [message["content"] for message in self._seen[before + 1 :]]
        return ENDED if self._over else self._plain("\n".join(answers))

    def _settle(self, completion: Sequence[Mapping[str, Any]], token_ids: Sequence[int]) -> Episode:
        """The episode, scored after the completion's messages, the answer among them.

        Args:
            completion: the messages that TRL made of the completion.
            token_ids: the completion's tokens; one that does not end with an end token was cut.

        Raises:
            UsageError: if the environment is of no kind that can be run, and whatever else a call raised.
        """
        if self._fault is not None:
            raise self._fault
        if self._settled:
            return self._episode
        self._settled = True
        for message, following in itertools.pairwise([*completion, {}]):
            # TRL answers itself for tools that don't exist and arguments that are none.
            answered = following.get("role") == "tool"
            for function in _functions(message) if answered else ():
                if not self._known(function):
                    self._step(self._written({"tool_calls": [{"function": function}]}))
        last = completion[-1] if completion else {}
        if last.get("role") != "assistant":
            self._step("", last=True)  # the budget ended with a tool's output
        elif _functions(last):
            # Its calls were made, and their output had no room; or they were not made any more.
            self._step("" if self._made(completion) else self._written(last), last=True)
        else:
            cut = not token_ids or token_ids[-1] not in self._end_tokens
            self._step(str(last.get("content") or ""), last=cut)
            self._step("", last=True)  # where an answer does not end the episode
        return self._episode

    def _known(self, function: Mapping[str, Any]) -> bool:
        """Whether TRL calls a method for it."""
        return function.get("name") in self._tools and isinstance(function.get("arguments"), Mapping)

    def _made(self, completion: Sequence[Mapping[str, Any]]) -> bool:
        """Whether calls of the completion's last message were made."""
        known = [sum(map(self._known, _functions(message))) for message in completion]
        return known[-1] > 0 and self._calls >= sum(known)

    def _written(self, message: Mapping[str, Any]) -> str:
        """The text of a turn; a model may ask for a call that the environment's format can't write."""
        try:
            return action_text(message, self._format)
        except (ValueError, RecursionError):
            return UNWRITABLE

    def _step(self, text: str, *, last: bool = False) -> None:
        if self._over:
            return
        assert self._runner is not None
        messages = take(self._episode, self._seen, text, step(self._runner, text, last))
        self._over = messages is None
        self._seen = self._seen if messages is None else messages


def _format_of(runner: EpisodeRunner) -> str:
    name = getattr(runner.env.unwrapped, "call_format", "hermes")
    if not isinstance(name, str) or name not in FORMATS:
        raise UsageError(str(unknown("the environment's call_format", name, FORMATS)))
    return name


def _functions(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Name and arguments of the calls of a message."""
    return [dict(call.get("function") or call) for call in message.get("tool_calls") or ()]
