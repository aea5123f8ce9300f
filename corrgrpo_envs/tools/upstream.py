"""Reading published RLLA-4K rows, which carry their prompt and the text of a right answer, in three layouts.

| layout | fields |
| --- | --- |
| RL | `prompt` (messages), `reward_model.ground_truth`, `extra_info` with `index` and `split` |
| SFT | `messages` (the last one is the assistant's), `source_split`, `source_position` |
| raw | `instruction` (system), `input` (user), `output` (assistant) |
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from corrgrpo_envs.datasets import Row, split_of
from corrgrpo_envs.env import Message
from corrgrpo_envs.errors import DatasetError, shown
from corrgrpo_envs.tasks import Task
from corrgrpo_envs.tools.dialogues import Dialogue, Tool, kind_of, tool_of
from corrgrpo_envs.tools.truth import parse_truth

_FIELD = re.compile(r"(?:[0-9]{1,4}\. (Name)|(Description)|(Parameters)): ")


@dataclass(frozen=True, slots=True)
class _Fields:
    """What every layout has in common; position and split are None where the row has none."""

    messages: tuple[Message, ...]
    answer: str
    position: Any = None
    split: str | None = None


def read_upstream(row: Row) -> Task[Dialogue]:
    """Make a task of a published row.

    Raises:
        DatasetError: naming file and row, if the row has none of the layouts or a ground truth that cannot be
            scored.
    """
    try:
        for key, layout in _LAYOUTS.items():
            if key in row:
                return _task(layout(row), row)
        raise ValueError(
            f"has fields {sorted(row)}; expected 'prompt' and 'reward_model', 'messages', or 'instruction', "
            "'input' and 'output'"
        )
    except DatasetError:
        raise
    except (ValueError, KeyError) as error:
        reason = f"has no field {error}" if isinstance(error, KeyError) else str(error)
        raise DatasetError(f"{row.source}, row {row.number}: {reason}") from None


def offered_tools(system: str) -> tuple[Tool, ...]:
    """Read the numbered list of tools in a published system message; empty if there is none.

    Each tool has a line `1. Name: …`, a `Description: …` that may go on over several lines, and a line
    `Parameters: …` with a JSON object.
    """
    found: list[dict[str, str]] = []
    field = ""
    for line in system.split("\n"):
        match = _FIELD.match(line)
        if match is None:
            if field == "description":
                found[-1][field] += "\n" + line
            continue
        if match[1]:
            found.append({"description": ""})
        field = str(match[1] or match[2] or match[3]).lower() if found else ""
        if found:
            found[-1][field] = line[match.end() :]
    try:
        return tuple(tool_of({**fields, "parameters": json.loads(fields.get("parameters", "{}"))}) for fields in found)
    except (ValueError, RecursionError):
        return ()


def _task(fields: _Fields, row: Row) -> Task[Dialogue]:
    truth = parse_truth(fields.answer)
    if not fields.messages:
        raise ValueError("has an empty prompt")
    history = fields.messages[-1]["content"]
    heading, _, rest = history.partition("\n")
    if heading.startswith("**") and heading.endswith("**"):
        history = rest
    # Positions count from 0, as in the published files.
    place = row.number - 1 if fields.position is None else fields.position
    if not isinstance(place, int | str):
        raise ValueError(f"its position must be a whole number, not {shown(place)}")
    task_id = f"{fields.split or PurePath(row.source).name.split('.')[0]}-{place}"
    split = split_of(Row({"split": fields.split}, row.source, row.number), row.source, task_id)
    tools = offered_tools(fields.messages[0]["content"])
    return Task(task_id, split, Dialogue(tools, history, truth, fields.messages), kind_of(truth))


def _rl(data: Mapping[str, Any]) -> _Fields:
    model, extra = data["reward_model"], data.get("extra_info") or {}
    for field, value in (("reward_model", model), ("extra_info", extra)):
        if not isinstance(value, Mapping):
            raise ValueError(f"field {field!r} must be an object, not {shown(value)}")
    answer = _text(model["ground_truth"], "ground_truth")
    return _Fields(_messages(data["prompt"]), answer, extra.get("index"), extra.get("split"))


def _sft(data: Mapping[str, Any]) -> _Fields:
    messages = _messages(data["messages"])
    if not messages or messages[-1]["role"] != "assistant":
        raise ValueError("its last message must be the assistant's: the right answer")
    return _Fields(messages[:-1], messages[-1]["content"], data.get("source_position"), data.get("source_split"))


def _raw(data: Mapping[str, Any]) -> _Fields:
    system, user = _text(data["instruction"], "instruction"), _text(data["input"], "input")
    messages = Message(role="system", content=system), Message(role="user", content=user)
    return _Fields(messages, _text(data["output"], "output"), split=data.get("split"))


_LAYOUTS: Mapping[str, Callable[[Mapping[str, Any]], _Fields]] = {
    "reward_model": _rl,
    "messages": _sft,
    "instruction": _raw,
}


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"field {field!r} must be text, not {shown(value)}")
    return value


def _messages(value: object) -> tuple[Message, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(f"a prompt must be a list of messages, not {shown(value)}")
    for item in value:
        if not isinstance(item, Mapping):
            raise ValueError(f"a message must be an object, not {shown(item)}")
    return tuple(Message(role=_text(item["role"], "role"), content=_text(item["content"], "content")) for item in value)
