"""Reading dialogues in the layout of the built-in set: `tools.json` and `dialogues/*.jsonl`.

`tools.json` is a list of tools (`name`, `description`, `parameters`). A line of a dialogue file has `id`,
`split`, `kind`, `tools` (names), `turns` (objects with `role` and `content`), `thought`, `calls` (objects
with `name` and `parameters`) and `response` (a text or null).
"""

import json
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import Any

from corrgrpo_envs.errors import DatasetError, shown, unknown
from corrgrpo_envs.tasks import Task, drawn_split
from corrgrpo_envs.tools.dialogues import (
    KINDS,
    ROLES,
    Dialogue,
    Tool,
    answer_text,
    history_text,
    kind_of,
    tool_of,
)
from corrgrpo_envs.tools.truth import parse_truth

_ROW_SPLITS = ("train", "validation", "test")


def read_builtin(folder: Traversable) -> Iterator[Task[Dialogue]]:
    """Read the dialogues of a folder, file by file in alphabetical order.

    Raises:
        DatasetError: naming file and line, if a row cannot be used.
    """
    tools = _read_tools(folder / "tools.json")
    try:
        files = [file for file in (folder / "dialogues").iterdir() if file.name.endswith(".jsonl")]
    except OSError as error:
        raise DatasetError(f"{folder} has tools.json and needs a folder 'dialogues' beside it: {error}") from None
    for file in sorted(files, key=lambda file: file.name):
        for number, line in enumerate(_text(file).split("\n"), start=1):
            if not line.strip():
                continue
            try:
                yield _task(json.loads(line), tools)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                reason = f"has no field {error}" if isinstance(error, KeyError) else str(error)
                raise DatasetError(f"{file}, line {number}: {reason}") from None


def _read_tools(file: Traversable) -> dict[str, Tool]:
    try:
        tools = [tool_of(data) for data in json.loads(_text(file))]
    except DatasetError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"{file}: {error}") from None
    return {tool.name: tool for tool in tools}


def _text(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise DatasetError(f"{file} can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{file} is not UTF-8 text: {error}; save it as UTF-8") from None


def _task(row: Any, tools: Mapping[str, Tool]) -> Task[Dialogue]:
    if not isinstance(row, dict):
        raise ValueError(f"must be an object, not {shown(row)}")
    for field, value in (("id", row["id"]), ("thought", row["thought"]), ("response", row.get("response") or "")):
        if not isinstance(value, str):
            raise ValueError(f"field {field!r} must be text, not {shown(value)}")
    offered = []
    for name in row["tools"]:
        if name not in tools:
            raise unknown("tool", name, tools)
        offered.append(tools[name])
    for turn in row["turns"]:
        if not isinstance(turn, dict):
            raise ValueError(f"a turn must be an object with 'role' and 'content', not {shown(turn)}")
    turns = [(turn["role"], turn["content"]) for turn in row["turns"]]
    for role, text in turns:
        if role not in ROLES:
            raise unknown("the role of a turn", role, ROLES)
        if not isinstance(text, str):
            raise ValueError(f"the content of a turn must be text, not {shown(text)}")
    calls, response = row.get("calls") or [], row.get("response")
    truth = parse_truth(answer_text(row["thought"], calls, response))
    for call in truth.calls or ():
        if call.name not in row["tools"]:
            raise unknown("the called tool", call.name, row["tools"])
    if len(truth.calls or ()) != len(calls) or truth.response != (response is not None):
        raise ValueError("thought or response contain tags that change what the answer says")
    split = row.get("split") or drawn_split(row["id"])
    if split not in _ROW_SPLITS:
        raise unknown("split", split, _ROW_SPLITS)
    kind = row.get("kind") or kind_of(truth)
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    return Task(row["id"], split, Dialogue(tuple(offered), history_text(turns), truth), kind)
