"""Tool calls in an assistant's text: what a call is, and reading JSON that a model wrote.

Model text is hostile. Everything here takes time linear in the text, nests at most `MAX_NESTING` levels, and
says what is wrong in one line instead of raising.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.errors import shown
from corrgrpo_envs.tools.calls import MAX_NESTING, CallError, check_nesting

_DECODER = json.JSONDecoder(strict=False)  # models put raw line breaks and tabs into strings
_LITERAL_LENGTH = 4096
_BETWEEN_VALUES = " \t\r\n,;"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool.

    Attributes:
        name: the tool's name.
        arguments: values by parameter name; JSON values only.
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """What an assistant's text was read as.

    Attributes:
        calls: the calls that could be read, in order.
        problem: why the text breaks its format, in one line; empty if it keeps it. A text without any call
            keeps it.
    """

    calls: tuple[ToolCall, ...] = ()
    problem: str = ""


def call_of(value: Any, arguments_key: str = "arguments") -> ToolCall:
    """Make a call of a JSON object with `name` and an object of arguments (or that object as JSON text).

    Raises:
        CallError: if it is no such object; the message says what is missing.
    """
    if not isinstance(value, dict):
        raise CallError(f"a call must be an object, not {type(value).__name__}")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise CallError(f"a call needs a 'name' that is a text, not {shown(name)}")
    if arguments_key not in value:
        raise CallError(f"the call of {shown(name)} has no {arguments_key!r}")
    arguments = value[arguments_key]
    if isinstance(arguments, str):
        arguments = only_value(arguments)
    if not isinstance(arguments, dict):
        raise CallError(f"the {arguments_key!r} of {shown(name)} must be an object, not {type(arguments).__name__}")
    return ToolCall(name, arguments)


def values_in(text: str) -> list[Any]:
    """Read JSON values that follow each other, with white space, commas or semicolons between them.

    A text that is not JSON but a short Python literal of JSON's types (single quotes, `True`, `None`) is read
    as that.

    Raises:
        CallError: if it is neither, is empty, or nests too deep.
    """
    body = text.strip()
    if not body:
        raise CallError("a call is empty")
    try:
        values = _json_values(body)
    except (ValueError, RecursionError) as error:
        values = [_literal(body, error)]
    for value in values:
        check_depth(value)
    return values


def only_value(text: str) -> Any:
    """Read a text that holds one JSON value (or Python literal).

    Raises:
        CallError: if it holds none or several.
    """
    values = values_in(text)
    if len(values) != 1:
        raise CallError(f"one JSON value is wanted, not {len(values)}")
    return values[0]


def check_depth(value: Any) -> None:
    """Check that a value nests at most `MAX_NESTING` levels.

    Raises:
        CallError: if it is deeper.
    """
    if isinstance(value, dict | list):
        check_nesting(value)


def literal_list(text: str) -> list[Any] | None:
    """The list that a text spells as a short Python literal, or None."""
    if not text.lstrip().startswith("["):
        return None
    try:
        value = _literal(text.strip(), ValueError("no list"))
        check_depth(value)
    except CallError:
        return None
    return value if isinstance(value, list) else None


def _json_values(body: str) -> list[Any]:
    values: list[Any] = []
    at = 0
    while at < len(body):
        value, end = _DECODER.raw_decode(body, at)
        values.append(value)
        at = end
        while at < len(body) and body[at] in _BETWEEN_VALUES:
            at += 1
    return values


def _literal(body: str, error: Exception) -> Any:
    """Read a Python literal; the interpreter's parser is given short texts only."""
    reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
    if len(body) > _LITERAL_LENGTH:
        raise CallError(f"a call is not JSON: {reason}")
    try:
        value = ast.literal_eval(body)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise CallError(f"a call is not JSON: {reason}") from None
    if not _is_json(value, MAX_NESTING):
        raise CallError(f"a call is not JSON: {reason}")
    return value


def _is_json(value: Any, depth: int) -> bool:
    if depth < 0:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item, depth - 1) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_json(item, depth - 1) for item in value)
    return value is None or isinstance(value, str | int | float | bool)
