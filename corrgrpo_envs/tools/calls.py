"""Tool calls: parsing call lines, and when two calls or two values are equal.

Calls are compared as Python compares parsed JSON: `1 == 1.0 == True`, `"1" != 1`, lists in order, objects
in any order, text code point by code point. Each value gets a hashable *token*, and two values are equal just
when their tokens are; so thousands of calls are compared by hashing rather than pairwise.
"""

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_NESTING = 100
"""Values nested deeper than this are no calls. A fixed bound, since what the interpreter's own recursion
limit lets through depends on how deep its caller already is: the same answer would not always get the same
score."""

NAN: Hashable = ("nan",)


class CallError(ValueError):
    """A text is not a list of calls; the message says which line and why."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One tool call.

    Attributes:
        name: the tool's name; in an answer it may be any hashable JSON value.
        parameters: parameter values by name.
        token: equal for two calls just when their JSON objects are equal, further keys included.
        values: tokens of the parameter values, by parameter name. `NAN` stands for a bare NaN, which equals
            nothing, not even another one.
    """

    name: Any
    parameters: Mapping[str, Any]
    token: Hashable = field(repr=False)
    values: Mapping[str, Hashable] = field(repr=False)


def value_token(value: Any) -> Hashable:
    """Return the token of a parsed JSON value.

    A NaN inside a list or an object equals another one there, as it does where Python compares containers
    whose items are the same object (the JSON decoder has only one NaN).
    """
    if isinstance(value, dict):
        return ("{", frozenset((key, value_token(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("[", tuple([value_token(item) for item in value]))
    if isinstance(value, float) and value != value:
        return NAN
    return value  # type: ignore[no-any-return]


def check_nesting(value: Any, levels: int = MAX_NESTING) -> None:
    """Check that a JSON object or list is at most so many levels deep.

    Raises:
        CallError: if it is deeper.
    """
    level = [value]
    for _ in range(levels):
        items: list[Any] = []
        for container in level:
            items.extend(container.values() if isinstance(container, dict) else container)
        level = [item for item in items if isinstance(item, dict | list)]
        if not level:
            return
    raise CallError(f"is nested more than {levels} levels deep")


def parse_object(line: str) -> Any:
    """Parse one line of JSON, as Python's decoder does: NaN is a number, the last of equal keys wins.

    Raises:
        CallError: if the line is not JSON, holds a number of too many digits, or is nested too deep.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise CallError(f"is not JSON: {reason}") from None
    if isinstance(value, dict | list) and line.count("[") + line.count("{") > MAX_NESTING:
        check_nesting(value)
    return value


def call_name(value: Any) -> Any:
    """Return the name of the call that a parsed JSON value stands for.

    Raises:
        CallError: unless the value is an object with a hashable `name`.
    """
    if not isinstance(value, dict):
        raise CallError(f"is not an object but {type(value).__name__}")
    if "name" not in value:
        raise CallError("has no key 'name'")
    name = value["name"]
    if isinstance(name, dict | list):
        raise CallError(f"has a 'name' that is {type(name).__name__}, not text")
    return name


def as_call(value: Any) -> Call:
    """Make a call of a parsed JSON value.

    Raises:
        CallError: unless it is an object with a hashable `name` and an object `parameters`.
    """
    name = call_name(value)
    if "parameters" not in value:
        raise CallError("has no key 'parameters'")
    parameters = value["parameters"]
    if not isinstance(parameters, dict):
        raise CallError(f"has 'parameters' that are {type(parameters).__name__}, not an object")
    values = {key: value_token(item) for key, item in parameters.items()}
    rest = frozenset((key, value_token(item)) for key, item in value.items() if key != "parameters")
    return Call(name, parameters, ("{", rest, frozenset(values.items())), values)


def parse_lines(block: str) -> list[Any]:
    r"""Parse the inside of a tool_call block: one JSON value a line, separated by `"\n"`.

    White space around the block is stripped; an empty line inside it is an error.

    Raises:
        CallError: if a line is not JSON.
    """
    return [parse_object(line) for line in block.strip().split("\n")]


def parse_calls(block: str) -> tuple[Call, ...]:
    """Parse the inside of a tool_call block, where every line has to be a call.

    Raises:
        CallError: naming the first line (from 1) that is not a call, and why.
    """
    calls = []
    for number, line in enumerate(block.strip().split("\n"), start=1):
        try:
            calls.append(as_call(parse_object(line)))
        except CallError as error:
            raise CallError(f"line {number} of the tool_call block {error}") from None
    return tuple(calls)
