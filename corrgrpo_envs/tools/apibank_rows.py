"""API-Bank items: reading published rows and the built-in ones, and finding rows that cannot be answered.

A published row has `system`, `user` and `answer` (one object with `name` and `parameters`, or a list of one), or the
original layout, see `apibank_original`. A built-in row has `id`, `level`, `tools`, `turns` and `answer`, with the tools
in `tools.json`.
"""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from corrgrpo_envs.datasets import Row, fingerprint, read_rows, schema_error
from corrgrpo_envs.env import Message
from corrgrpo_envs.errors import DatasetError
from corrgrpo_envs.tasks import Task
from corrgrpo_envs.tools.apibank_original import is_original, posed, stored_call
from corrgrpo_envs.tools.apibank_parsing import ApiCall, call_of
from corrgrpo_envs.tools.dialogues import Tool, history_text, tool_of

LEVELS = (1, 2, 3)
NOT_OFFERED = "tool_not_offered"
CORRUPT = "corrupt_parameters"

_LEVEL = re.compile(r"(?:level|lv|v)[-_ ]?([123])(?![0-9])", re.IGNORECASE)
_FILE = re.compile(r"level-[123]-(?:api_processed|api|batch-inf)\.jsonl?(?:\.gz)?")
_TOOL = re.compile(r"[0-9]{1,4}\. (?:Name: )?(?P<name>[^\s:]+)(?:: (?P<description>.*))?")
_SWALLOWED = re.compile(r"""["'], ?[A-Za-z_]\w*=""")


@dataclass(frozen=True, slots=True)
class Item:
    """What a task poses and how its answers are judged.

    Attributes:
        level: 1 to 3.
        truth: the stored call.
        tools: the tools offered.
        history: what was said so far, in tags.
        messages: the prompt that the row carries; empty if the environment writes it.
        fault: why no right answer can be expected (`NOT_OFFERED`, `CORRUPT`); empty for a sound row.
    """

    level: int
    truth: ApiCall
    tools: tuple[Tool, ...]
    history: str
    messages: tuple[Message, ...] = ()
    fault: str = ""


def items(dataset: str) -> tuple[Task[Item], ...]:
    """Read all items of a data set, level by level as the files come; all are in split `test`.

    Args:
        dataset: `"builtin"`; a file of published rows; a folder with files `level-N-api_processed.json` or
            `level-N-api.json` and `level-3-batch-inf.json` (others beside them are not read), or of any readable files;
            or a hub id. Rows that ask for a reply instead of a call are passed over.

    Raises:
        DatasetError: naming file, row and field.
    """
    return _read(dataset, fingerprint(dataset))


def faulty_rows(dataset: str) -> dict[str, str]:
    """The faults of a data set's rows, by task id: what no answer can be blamed for.

    `tool_not_offered`: the stored call names a tool that the prompt does not list. `corrupt_parameters`: a stored value
    is empty or has swallowed the next parameter.
    """
    return {task.id: task.data.fault for task in items(dataset) if task.data.fault}


@lru_cache(maxsize=8)
def _read(dataset: str, state: object) -> tuple[Task[Item], ...]:
    if dataset == "builtin":
        return _builtin()
    folder = Path(dataset).expanduser()
    named = sorted(path for path in folder.glob("level-*") if _FILE.fullmatch(path.name)) if folder.is_dir() else []
    rows = [row for path in named for row in read_rows(path)] if named else list(read_rows(dataset))
    counts: dict[int, int] = {}
    tasks = []
    for row in rows:
        level = _level(row)
        item = _original(row, level) if is_original(row) else _published(row, level)
        if item is None:
            continue
        place = counts.get(level, 0)
        counts[level] = place + 1
        tasks.append(Task(f"level-{level}-{place}", "test", item, f"level-{level}"))
    return tuple(tasks)


def _level(row: Row) -> int:
    given = row.get("level")
    if given is None:
        told = _LEVEL.search(row.source)
        if told is None:
            raise DatasetError(
                f"{row.source}, row {row.number}: no level: neither a field 'level' (1, 2 or 3) nor a file name with "
                "'level-1', 'level-2' or 'level-3'"
            )
        return int(told[1])
    if given not in LEVELS or isinstance(given, bool):
        raise schema_error(row.source, row.number, "level", "1, 2 or 3", given)
    return int(given)


def _published(row: Row, level: int) -> Item:
    system, user = row.require("system", str), row.require("user", str)
    answer = row.get("answer")
    if isinstance(answer, str):  # the hub's files hold it as JSON text
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError):
            raise schema_error(row.source, row.number, "answer", "a call as JSON", answer) from None
    calls = answer if isinstance(answer, list) else [answer]
    truth = call_of(calls[0]) if len(calls) == 1 else None
    if truth is None:
        raise schema_error(row.source, row.number, "answer", "one call with 'name' and 'parameters'", row.get("answer"))
    tools = catalogue(system)
    heading, _, rest = user.partition("\n")
    history = rest if heading.startswith("**") and heading.endswith("**") else user
    messages = Message(role="system", content=system), Message(role="user", content=user)
    return Item(level, truth, tools, history, messages, fault_of(truth, tools))


def _original(row: Row, level: int) -> Item | None:
    truth = stored_call(row)
    if truth is None:
        return None
    tools, history = posed(row)
    return Item(level, truth, tools, history, (), fault_of(truth, tools))


def fault_of(truth: ApiCall, tools: tuple[Tool, ...]) -> str:
    """Why a stored call cannot be the right answer to its prompt; empty if it can."""
    if tools and truth.name not in {tool.name for tool in tools}:
        return NOT_OFFERED
    texts = [value for value in truth.parameters.values() if isinstance(value, str)]
    return CORRUPT if any(not text or _SWALLOWED.search(text) for text in texts) else ""


def catalogue(system: str) -> tuple[Tool, ...]:
    """Read the numbered list of tools in a published system message.

    A tool is `1. Name: …`, `Description: …`, `Parameters: …` on three or more lines, or `1. name: description` and
    `Parameters: …`; the parameters are a Python literal or JSON. A tool whose parameters can't be read has none.
    """
    found: list[dict[str, Any]] = []
    for line in system.split("\n"):
        if line.startswith("Parameters: "):
            if found:
                found[-1]["parameters"] = _parameters(line.removeprefix("Parameters: "))
        elif line.startswith("Description: "):
            if found:
                found[-1]["description"] = line.removeprefix("Description: ")
        elif (tool := _TOOL.fullmatch(line)) is not None:
            found.append({"name": tool["name"], "description": tool["description"] or "", "parameters": None})
    # The prompt has other numbered lists; only tools have parameters.
    return tuple(tool_of(fields) for fields in found if fields["parameters"] is not None)


def _parameters(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return {}
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        return {}
    return value


def _builtin() -> tuple[Task[Item], ...]:
    folder = files("envs_assets") / "apibank"
    tools = {tool.name: tool for tool in map(tool_of, json.loads((folder / "tools.json").read_text("utf-8")))}
    tasks = []
    for line in (folder / "items.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        offered = tuple(tools[name] for name in row["tools"])
        history = history_text([(turn["role"], turn["content"]) for turn in row["turns"]])
        truth = ApiCall(row["answer"]["name"], row["answer"]["parameters"])
        item = Item(row["level"], truth, offered, history, (), fault_of(truth, offered))
        tasks.append(Task(row["id"], "test", item, f"level-{row['level']}"))
    return tuple(tasks)
