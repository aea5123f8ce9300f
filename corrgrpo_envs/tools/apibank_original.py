"""Rows in API-Bank's original layout: an instruction with tool descriptions, a dialogue, an API request as answer.

| field | holds |
| --- | --- |
| `instruction` | what to do, and tools, one JSON object a line: `name`, `description`, `input_parameters` |
| `input` | lines that begin with `User:`, `AI:` or `API-Request: [Name(key='value')]->result` |
| `expected_output` or `output` | `API-Request: [Name(key='value')]`, or `AI: …` where a reply is asked for |
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from corrgrpo_envs.datasets import Row, schema_error
from corrgrpo_envs.tools.apibank_parsing import ApiCall, read_calls
from corrgrpo_envs.tools.dialogues import Tool, history_text, tool_of

_REQUEST = "API-Request:"
_SPEAKERS = {"User:": "user", "AI:": "response", _REQUEST: "tool_call"}
_NAME = re.compile(r"\[\s*(\w+)\(")
_UNREADABLE = "(unreadable)"


def is_original(row: Mapping[str, Any]) -> bool:
    """Whether a row has this layout."""
    return "instruction" in row and "input" in row and ("expected_output" in row or "output" in row)


def stored_call(row: Row) -> ApiCall | None:
    """The call that a row asks for; None where it asks for a reply.

    A request whose arguments can't be read keeps its name, with one parameter that no answer has.

    Raises:
        DatasetError: if the answer is neither request nor reply.
    """
    field = "expected_output" if "expected_output" in row else "output"
    answer = row.require(field, str)
    _, found, request = answer.partition(_REQUEST)
    if not found:
        if answer.lstrip().startswith("AI:"):
            return None
        raise schema_error(row.source, row.number, field, f"a text with {_REQUEST!r} or 'AI:'", answer)
    calls = read_calls(request)
    if calls:
        return calls[0]
    name = _NAME.search(request)
    if name is None:
        raise schema_error(row.source, row.number, field, f"{_REQUEST} [Name(key='value')]", answer)
    return ApiCall(name[1], {_UNREADABLE: ""})


def posed(row: Row) -> tuple[tuple[Tool, ...], str]:
    """The tools that a row offers, each once, and its dialogue in tags."""
    instruction, dialogue = row.require("instruction", str), row.require("input", str)
    tools: dict[str, Tool] = {}
    for line in [*instruction.split("\n"), *dialogue.split("\n")]:
        for tool in _tools(line):
            tools.setdefault(tool.name, tool)
    return tuple(tools.values()), history_text(list(_turns(dialogue)))


def _tools(line: str) -> Iterator[Tool]:
    _, _, result = line.partition("->")
    for text in (line.strip(), result.strip()):
        if not text.startswith(("{", "[")):
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and "name" in one and ("input_parameters" in one or "parameters" in one):
                parameters = one.get("input_parameters", one.get("parameters"))
                try:
                    yield tool_of({**one, "parameters": parameters, "description": one.get("description", "")})
                except ValueError:
                    continue


def _turns(dialogue: str) -> Iterator[tuple[str, str]]:
    role, said = "", ""
    for line in dialogue.split("\n"):
        start = next((mark for mark in _SPEAKERS if line.startswith(mark)), None)
        if start is None and role and not line.startswith("Generate "):
            said += "\n" + line
        elif start is not None:
            yield from _written(role, said)
            role, said = _SPEAKERS[start], line.removeprefix(start)
    yield from _written(role, said)


def _written(role: str, said: str) -> Iterator[tuple[str, str]]:
    said = said.strip()
    if not role or not said:
        return
    if role != "tool_call":
        yield role, said
        return
    request, arrow, result = said.partition("->")
    lines = [
        json.dumps({"name": call.name, "parameters": dict(call.parameters)}, ensure_ascii=False)
        for call in read_calls(request)
    ]
    yield role, "\n".join(lines) or request.strip()
    if arrow:
        yield "obs", result.strip()
