"""A dialogue in which the assistant's next answer is asked for: tools, history, ground truth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.env import Message
from corrgrpo_envs.errors import shown
from corrgrpo_envs.tasks import Task
from corrgrpo_envs.tools.blocks import CLOSE_CALL, CLOSE_RESPONSE, OPEN_CALL, OPEN_RESPONSE
from corrgrpo_envs.tools.truth import GroundTruth

KINDS = ("single", "several", "none", "nested", "history")
ROLES = ("user", "tool_call", "obs", "response")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the assistant may call.

    Attributes:
        name: what calls name it by.
        description: what it does.
        parameters: by name, a mapping with `type`, `description` and, where it may be left out, `default`.
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What a task poses and how its answers are judged.

    Attributes:
        tools: the tools offered.
        history: what was said so far, in tags, see `history_text`.
        truth: the right answer.
        messages: the prompt that the row carries, as it stands; empty if the environment writes it.
    """

    tools: tuple[Tool, ...]
    history: str
    truth: GroundTruth
    messages: tuple[Message, ...] = ()

    @property
    def prompt_key(self) -> tuple[str, ...]:
        """Equal for two dialogues just when they pose the same."""
        if self.messages:
            return tuple(message["content"] for message in self.messages)
        return (*(tool.name for tool in self.tools), self.history)


def tool_of(data: object) -> Tool:
    """Make a tool of parsed JSON with `name`, `description` and `parameters`.

    Raises:
        ValueError: one line that says what is missing or of a wrong type.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise ValueError(f"a tool must be an object with a text 'name', not {shown(data)}")
    name, parameters = data["name"], data.get("parameters")
    if not isinstance(data.get("description"), str):
        raise ValueError(f"tool {name!r} needs a text 'description'")
    if not isinstance(parameters, Mapping) or not all(isinstance(p, Mapping) for p in parameters.values()):
        raise ValueError(f"tool {name!r} needs 'parameters': an object of objects, one for each parameter")
    return Tool(name, data["description"], parameters)


def history_text(turns: Sequence[tuple[str, str]]) -> str:
    """Write the turns so far in tags, one turn below the other.

    Args:
        turns: pairs of a role (`user`, `tool_call`, `obs` or `response`) and a text; a tool_call's text has
            one JSON object a line.
    """
    return "\n".join(
        f"<{role}>\n{text}\n</{role}>" if role == "tool_call" else f"<{role}> {text} </{role}>" for role, text in turns
    )


def answer_text(thought: str, calls: Sequence[Mapping[str, Any]], response: str | None) -> str:
    """Write an answer: the think block, then the blocks of calls and response that are there."""
    lines = [f"<think> {thought} </think>"]
    if calls:
        lines += [OPEN_CALL, *(json.dumps(call, ensure_ascii=False) for call in calls), CLOSE_CALL]
    if response is not None:
        lines.append(f"{OPEN_RESPONSE} {response} {CLOSE_RESPONSE}")
    return "\n".join(lines)


def kind_of(truth: GroundTruth) -> str:
    """Kind of a dialogue whose data set names none: by the number of calls in its ground truth."""
    if truth.calls is None:
        return "none"
    return "single" if len(truth.calls) == 1 else "several"


def without_overlap(
    tasks: Sequence[Task[Dialogue]], held_out: Sequence[Task[Dialogue]] = ()
) -> tuple[Task[Dialogue], ...]:
    """Drop dialogues that would leak what is held out.

    A prompt that occurs in several splits stays in the strictest of them only (test, then validation, then
    train); one that occurs in `held_out` is dropped everywhere.
    """
    strictness = {"train": 0, "validation": 1, "test": 2}
    strictest: dict[tuple[str, ...], int] = {}
    for task in tasks:
        key = task.data.prompt_key
        strictest[key] = max(strictest.get(key, 0), strictness[task.split])
    for task in held_out:
        strictest[task.data.prompt_key] = len(strictness)
    return tuple(task for task in tasks if strictness[task.split] == strictest[task.data.prompt_key])
