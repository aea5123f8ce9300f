"""Reading the calls in an answer to an API-Bank item, tolerantly.

The published evaluator is laxer than the training reward: it reads every tool_call block, JSON objects in any layout,
`arguments` for `parameters`, skips what it cannot read, and, where there is no such call, tries the bracketed form
`[Name(key='value')]` of the original benchmark. Everything here takes time linear in the answer, up to a bound on
how often a broken object is tried.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.tools.blocks import CLOSE_CALL, OPEN_CALL
from corrgrpo_envs.tools.calls import CallError, check_nesting

_DECODER = json.JSONDecoder(strict=False)  # models put raw line breaks into texts
_BROKEN_OBJECTS = 50
_BRACKETED_LENGTH = 10_000
_BRACKETED_STARTS = 20
_BRACKETED_ENDS = 5
_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call.

    Attributes:
        name: the tool's name.
        parameters: values by parameter name.
    """

    name: str
    parameters: Mapping[str, Any]


def read_calls(text: str) -> tuple[ApiCall, ...]:
    """Read the calls in an answer, in order; never raises."""
    found = tuple(call for block in call_blocks(text) for call in _objects(block))
    return found or _bracketed(text)


def call_blocks(text: str) -> Iterator[str]:
    """Yield the insides of the tool_call blocks; the last one may lack its closing tag."""
    at = text.find(OPEN_CALL)
    while at >= 0:
        start = at + len(OPEN_CALL)
        end = text.find(CLOSE_CALL, start)
        yield text[start:] if end < 0 else text[start:end]
        at = text.find(OPEN_CALL, end) if end >= 0 else -1


def call_of(value: Any) -> ApiCall | None:
    """Make a call of parsed JSON with `name` and an object `parameters` or `arguments`; None if it is none."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    parameters = value.get("parameters", value.get("arguments"))
    if not isinstance(parameters, dict):
        return None
    try:
        check_nesting(parameters)
    except CallError:
        return None
    return ApiCall(value["name"], parameters)


def _objects(block: str) -> Iterator[ApiCall]:
    at, broken = block.find("{"), 0
    while at >= 0 and broken < _BROKEN_OBJECTS:
        try:
            value, end = _DECODER.raw_decode(block, at)
        except (ValueError, RecursionError):
            broken += 1
            at = block.find("{", at + 1)
            continue
        call = call_of(value)
        if call is not None:
            yield call
        at = block.find("{", end)


def _bracketed(text: str) -> tuple[ApiCall, ...]:
    """Read the first bracketed list of calls; the interpreter's parser is given short texts only."""
    at = text.find("[")
    for _ in range(_BRACKETED_STARTS):
        if at < 0:
            break
        end = at
        for _ in range(_BRACKETED_ENDS):  # a text inside the list may hold the mark that ends it
            end = text.find(")]", end + 1, at + _BRACKETED_LENGTH)
            if end < 0:
                break
            calls = _parsed(text[at : end + 2])
            if calls:
                return calls
        at = text.find("[", at + 1)
    return ()


def _parsed(text: str) -> tuple[ApiCall, ...]:
    try:
        body = ast.parse(text, mode="eval").body
        if not isinstance(body, ast.List):
            return ()
        return tuple(_call(item) for item in body.elts)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return ()


def _call(node: ast.expr) -> ApiCall:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError("no call with named arguments")
    parameters = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("a call with unpacked arguments")
        value = ast.literal_eval(keyword.value)
        if value is Ellipsis:
            value = _ELLIPSIS
        # JSON's types alone: tuples become lists, keys texts; sets, bytes and complex numbers raise a TypeError.
        parameters[keyword.arg] = json.loads(json.dumps(value))
    check_nesting(parameters)
    return ApiCall(node.func.id, parameters)
