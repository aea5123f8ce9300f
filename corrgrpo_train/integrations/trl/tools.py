"""Environments with tools as TRL takes them: an object with a `reset` and a method for each tool.

TRL reads the calls in a model's text itself and makes them one at a time; what a method returns becomes the tool's
message. Here each call becomes the text of a turn, written as the environment wants calls, and is a step of it. What
TRL does not hand on (a tool that does not exist) and the answer are made up for when the episode is scored.
"""

import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from corrgrpo_envs.agents.calls import ToolCall
from corrgrpo_envs.agents.formats import action_text, call_format
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout.environment import EnvironmentFailedError, EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.turns import fail, reset, step, take

ENDED = "The episode has ended."
"""What a tool says after the environment's last turn."""

_RESERVED = ("reset", "get_reward")
_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict[str, Any],
    "array": list[Any],
    "null": type(None),
}


class ToolEpisode:
    """One rollout of an environment; a subclass made by `tool_environment` has the tools as methods.

    Every public method but `reset` is a tool to TRL, so there are no others.
    """

    def __init__(self, make: Callable[[str], EpisodeRunner], tools: Sequence[str]) -> None:
        """Make none of the environments yet: `make` does so for a split."""
        self._make, self._tools = make, tuple(tools)
        self._runners: dict[str, EpisodeRunner] = {}
        self._runner: EpisodeRunner | None = None
        self._episode = Episode(0, 0, "")
        self._seen: tuple[dict[str, str], ...] = ()
        self._calls, self._over, self._settled = 0, True, True

    def reset(
        self, *, prompt: Sequence[Mapping[str, Any]], task_id: str | None, seed: int, split: str, **_: Any
    ) -> None:
        """Begin an episode on a row of the data set."""
        runner = self._runners.get(split)
        if runner is None:
            runner = self._runners[split] = self._make(split)
        start = Start(task_id, seed)
        self._runner, self._episode = runner, Episode(0, 0, start.label)
        self._calls, self._over, self._settled = 0, False, False
        first = reset(runner, start)
        if isinstance(first, EnvironmentFailedError):
            fail(self._episode, first)
            self._over = True
            return
        self._seen = tuple(dict(message) for message in first["messages"])
        if [message["content"] for message in self._seen] != [message["content"] for message in prompt]:
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
        self._step(self._written([ToolCall(name, arguments)]))
        # The first new message is the call itself.
        answers = [message["content"] for message in self._seen[before + 1 :]]
        return ENDED if self._over else "\n".join(answers)

    def _settle(self, completion: Sequence[Mapping[str, Any]]) -> Episode:
        """The episode, scored after the completion's messages, the answer among them."""
        if self._settled:
            return self._episode
        self._settled = True
        for message, following in itertools.pairwise([*completion, {}]):
            # TRL answers itself for tools that don't exist and arguments that are none.
            answered = following.get("role") == "tool"
            for function in _functions(message) if answered else ():
                if function["name"] not in self._tools or not isinstance(function["arguments"], Mapping):
                    self._step(action_text({"tool_calls": [{"function": function}]}, self._format))
        last = completion[-1] if completion else {}
        made = sum(len(_functions(message)) for message in completion if message.get("role") == "assistant")
        if last.get("role") != "assistant" or (_functions(last) and self._calls >= made):
            self._step("", last=True)  # the budget ended with a tool's output
        elif _functions(last):
            self._step(action_text(last, self._format), last=True)  # a call that was not made any more
        else:
            self._step(str(last.get("content") or ""))
            self._step("", last=True)  # where an answer does not end the episode
        return self._episode

    @property
    def _format(self) -> str:
        assert self._runner is not None
        return str(getattr(self._runner.env.unwrapped, "call_format", "hermes"))

    def _written(self, calls: Sequence[ToolCall]) -> str:
        return call_format(self._format).render("", calls)

    def _step(self, text: str, *, last: bool = False) -> None:
        if self._over:
            return
        assert self._runner is not None
        messages = take(self._episode, self._seen, text, step(self._runner, text, last))
        self._over = messages is None
        self._seen = self._seen if messages is None else messages


def tool_environment(
    schemas: Sequence[Mapping[str, Any]], make: Callable[[str], EpisodeRunner]
) -> Callable[[], ToolEpisode]:
    """Return a factory of rollouts whose class has the tools of the schemas as methods.

    Args:
        schemas: OpenAI tool schemas. They are kept on the factory as `schemas`, so that a trainer can show the model
            these and not those that TRL reads off the methods, which lack what annotations can't say.
        make: makes the environment of a split.

    Raises:
        UsageError: for a tool whose name can't be a method of TRL's environments.
    """
    functions = [schema["function"] for schema in schemas]
    for function in functions:
        name = function["name"]
        if not name.isidentifier() or name.startswith("_") or name in _RESERVED:
            raise UsageError(f"the tool {name!r} can't be a method of an environment of TRL; train with corrgrpo_train")
    names = [function["name"] for function in functions]
    kind = type("ToolEnvironment", (ToolEpisode,), {function["name"]: _method(function) for function in functions})

    def factory() -> ToolEpisode:
        episode: ToolEpisode = kind(make, names)
        return episode

    factory.schemas = [dict(schema) for schema in schemas]  # type: ignore[attr-defined]
    return factory


def _functions(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Name and arguments of the calls of a message."""
    return [dict(call["function"]) for call in message.get("tool_calls") or ()]


def _method(function: Mapping[str, Any]) -> Callable[..., str]:
    """A method of `ToolEpisode` that makes the call; takes any arguments, for the environment judges them.

    Signature, annotations and docstring say what the schema says, in the form from which TRL makes a schema.
    """
    name, described = function["name"], function.get("parameters", {})
    properties: Mapping[str, Any] = described.get("properties", {})

    def method(self: ToolEpisode, /, **arguments: Any) -> str:
        return self._call(name, arguments)

    required = set(described.get("required", ()))
    annotations = {key: _annotation(schema) for key, schema in properties.items()}
    parameters = [
        inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if key in required else properties[key].get("default"),
            annotation=annotations[key],
        )
        for key in properties
    ]
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__ = method.__qualname__ = name
    method.__signature__ = inspect.Signature([receiver, *parameters])  # type: ignore[attr-defined]
    method.__annotations__ = annotations
    lines = [f"    {key}: {_line(schema.get('description')) or key}" for key, schema in properties.items()]
    method.__doc__ = "\n".join([_line(function.get("description")) or name, "", *(["Args:", *lines] if lines else [])])
    return method


def _line(text: Any) -> str:
    return " ".join(str(text or "").split())


def _annotation(schema: Mapping[str, Any]) -> Any:
    """The Python type of a JSON schema."""
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    options = schema.get("anyOf") or [{**schema, "type": kind} for kind in _listed(schema.get("type", "string"))]
    kinds = [_plain(option) for option in options]
    union = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return union


def _plain(schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
        return list[_annotation(schema["items"])]  # type: ignore[misc]
    return dict if schema.get("type") == "object" else _TYPES.get(str(schema.get("type", "string")), str)


def _listed(kind: Any) -> list[Any]:
    return list(kind) if isinstance(kind, list) else [kind]


def tools_key(text: str) -> str:
    """The tools of an observation in a form in which equal ones are equal texts."""
    return json.dumps(json.loads(text), sort_keys=True)
