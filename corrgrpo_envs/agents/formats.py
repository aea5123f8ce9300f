"""Call formats: how models write tool calls into text.

Each format is a pair of functions. `parse` reads an assistant's text, of any length and code points, in
linear time and never raises; `render` writes a text that `parse` reads back.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.agents.calls import ToolCall, Turn, call_of, only_value, values_in
from corrgrpo_envs.agents.toolbox import Toolbox
from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.tools.calls import CallError

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_PYTHON_TAG = "<|python_tag|>"
_FUNCTION, _END_FUNCTION = "<function=", "</function>"
_PARAMETER, _END_PARAMETER = "<parameter=", "</parameter>"
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A way of writing calls.

    Attributes:
        name: what users call it.
        parse: reads a text; the toolbox gives the types of parameters where the format itself has none.
        render: writes what is said (may be empty) and the calls after it.
    """

    name: str
    parse: Callable[[str, Toolbox], Turn]
    render: Callable[[str, Sequence[ToolCall]], str]


def _dumped(value: Any) -> str:
    """JSON on one line, in which no tag can occur, whatever the arguments hold."""
    text = json.dumps(value, ensure_ascii=False)
    for tag in (_OPEN, _CLOSE):
        text = text.replace(tag, "\\u003c" + tag[1:])
    return text


def _joined(said: str, *blocks: str) -> str:
    return "\n".join([said, *blocks] if said else blocks)


# ---- Hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call> ----


def _parse_hermes(text: str, tools: Toolbox) -> Turn:
    blocks, problem = _blocks(text)
    turn = _read(blocks, problem, lambda block: [call_of(value) for value in _flat(values_in(_unfenced(block)))])
    if not turn.problem and len(turn.calls) != len(blocks):
        return Turn(turn.calls, f"{len(blocks)} tool_call blocks hold {len(turn.calls)} calls: each must hold one")
    return turn


def _render_hermes(said: str, calls: Sequence[ToolCall]) -> str:
    return _joined(
        said, *(f"{_OPEN}\n{_dumped({'name': c.name, 'arguments': dict(c.arguments)})}\n{_CLOSE}" for c in calls)
    )


# ---- Qwen3-Coder: <tool_call><function=name><parameter=key>value</parameter></function></tool_call> ----


def _parse_qwen3_coder(text: str, tools: Toolbox) -> Turn:
    blocks, problem = _blocks(text)
    return _read(blocks, problem, lambda block: [_function_call(block, tools)])


def _function_call(block: str, tools: Toolbox) -> ToolCall:
    body = block.strip()
    name, closed, rest = body.removeprefix(_FUNCTION).partition(">")
    if not (body.startswith(_FUNCTION) and closed and rest.endswith(_END_FUNCTION)):
        raise CallError(f"a call must be written {_FUNCTION}name>...{_END_FUNCTION}")
    arguments: dict[str, Any] = {}
    rest = rest.removesuffix(_END_FUNCTION).strip()
    at = 0
    while at < len(rest):
        end = rest.find(_END_PARAMETER, at)
        mark = rest.find(">", at)
        if not rest.startswith(_PARAMETER, at) or end < 0 or not 0 <= mark < end:
            raise CallError(f"the arguments of {shown(name)} must be written {_PARAMETER}key>value{_END_PARAMETER}")
        key, value = rest[at + len(_PARAMETER) : mark], rest[mark + 1 : end]
        if key in arguments:
            raise CallError(f"the call of {shown(name)} gives {shown(key)} twice")
        value = value.removeprefix("\n").removesuffix("\n")
        arguments[key] = _typed(value, tools.types(name, key))
        at = end + len(_END_PARAMETER)
        while at < len(rest) and rest[at].isspace():
            at += 1
    return ToolCall(name, arguments)


def _typed(text: str, types: tuple[str, ...]) -> Any:
    """The value that a bare text stands for: a text where the parameter takes one, else JSON."""
    if text.strip() == "null":
        return None
    if not types or "string" in types:
        return text
    try:
        return only_value(text)
    except CallError:
        return {"true": True, "false": False}.get(text.strip().lower(), text)


def _render_qwen3_coder(said: str, calls: Sequence[ToolCall]) -> str:
    return _joined(said, *(_function_block(call) for call in calls))


def _function_block(call: ToolCall) -> str:
    for name in (call.name, *call.arguments):
        if ">" in name:
            raise ValueError(f"the qwen3_coder format can't write the name {shown(name)}")
    lines = [_OPEN, f"{_FUNCTION}{call.name}>"]
    for key, value in call.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        unclear = isinstance(value, str) and value.strip() == "null"
        if unclear or any(tag in text for tag in (_END_PARAMETER, _OPEN, _CLOSE)):
            raise ValueError(f"the qwen3_coder format can't write {shown(value)} as {key!r} of {call.name}")
        lines += [f"{_PARAMETER}{key}>", text, _END_PARAMETER]
    return "\n".join([*lines, _END_FUNCTION, _CLOSE])


# ---- Llama 3: {"name": ..., "parameters": {...}}, after a python tag or not, separated by semicolons ----


def _parse_llama3_json(text: str, tools: Toolbox) -> Turn:
    body = text.strip()
    tagged = body.startswith(_PYTHON_TAG)
    return _bare(body.removeprefix(_PYTHON_TAG), "parameters", certain=tagged)


def _render_llama3_json(said: str, calls: Sequence[ToolCall]) -> str:
    return _alone(said, "; ".join(_dumped({"name": c.name, "parameters": dict(c.arguments)}) for c in calls))


# ---- Bare JSON: {"name": ..., "arguments": {...}}, or a list of such objects; a code fence may be around ----


def _parse_json(text: str, tools: Toolbox) -> Turn:
    return _bare(_unfenced(text), "arguments", certain=False)


def _render_json(said: str, calls: Sequence[ToolCall]) -> str:
    objects = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
    return _alone(said, _dumped(objects[0] if len(objects) == 1 else objects) if objects else "")


def _bare(body: str, arguments_key: str, *, certain: bool) -> Turn:
    """Read a text that is all calls. A text that does not look like calls is an answer, and keeps the format.

    Args:
        body: the text without marks.
        arguments_key: key of the arguments.
        certain: a mark said that these are calls.
    """
    body = body.strip()
    if not certain and not (body.startswith(("{", "[")) and '"name"' in body):
        return Turn()
    return _read([body], "", lambda block: [call_of(value, arguments_key) for value in _flat(values_in(block))])


def _alone(said: str, calls: str) -> str:
    if said and calls:
        raise ValueError("this format has no place for words beside calls")
    return said or calls


# ---- shared ----


def _blocks(text: str) -> tuple[list[str], str]:
    """The insides of tool_call blocks, and what is wrong with the tags (nothing: an empty text)."""
    blocks = []
    at = text.find(_OPEN)
    while at >= 0:
        end = text.find(_CLOSE, at)
        if end < 0:
            break
        # An opening tag written twice opens one block.
        start = text.rfind(_OPEN, at, end) + len(_OPEN)
        blocks.append(text[start:end])
        at = text.find(_OPEN, end)
    opened, closed = text.count(_OPEN), text.count(_CLOSE)
    if opened == closed == len(blocks):
        return blocks, ""
    return blocks, f"{opened} opening and {closed} closing tool_call tags make {len(blocks)} blocks"


def _unfenced(block: str) -> str:
    body = block.strip()
    if not body.startswith(_FENCE):
        return body
    first, _, rest = body.partition("\n")
    label = first.removeprefix(_FENCE).strip()
    if label.isalnum() or not label:
        body = rest
    return body.strip().removesuffix(_FENCE).strip()


def _flat(values: list[Any]) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _read(blocks: Sequence[str], problem: str, read: Callable[[str], list[ToolCall]]) -> Turn:
    calls: list[ToolCall] = []
    for block in blocks:
        try:
            calls += read(block)
        except CallError as error:
            problem = problem or str(error)
    return Turn(tuple(calls), problem)


FORMATS: Mapping[str, CallFormat] = {
    one.name: one
    for one in (
        CallFormat("hermes", _parse_hermes, _render_hermes),
        CallFormat("qwen3_coder", _parse_qwen3_coder, _render_qwen3_coder),
        CallFormat("llama3_json", _parse_llama3_json, _render_llama3_json),
        CallFormat("json", _parse_json, _render_json),
    )
}


def call_format(name: str) -> CallFormat:
    """Return a format by its name.

    Raises:
        ValueError: if there is none of this name; the message lists them.
    """
    if not isinstance(name, str) or name not in FORMATS:
        raise unknown("call_format", name, FORMATS)
    return FORMATS[name]


def action_text(message: Mapping[str, Any], format_name: str = "hermes") -> str:
    """Turn an assistant message of an OpenAI-compatible API into an action.

    Args:
        message: has `content` (text, null, or a list of text parts) and `tool_calls`, each with a `function` of
            `name` and `arguments` (JSON text). Arguments that are no JSON object become an argument `arguments`,
            so that the environment refuses the call.
        format_name: a name of `FORMATS`. `llama3_json` and `json` have no place for content beside calls.

    Raises:
        ValueError: if the message is not of this form, or the format can't write it (`hermes` can write all).
    """
    written = call_format(format_name)
    if not isinstance(message, Mapping):
        raise ValueError(f"a message must be an object, not {shown(message)}")
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    if not isinstance(content, str):
        raise ValueError(f"a message's content must be a text, a list of parts or null, not {shown(content)}")
    calls = []
    entries = message.get("tool_calls") or ()
    if not isinstance(entries, list | tuple):
        raise ValueError(f"a message's tool_calls must be a list or null, not {shown(entries)}")
    for entry in entries:
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(f"a tool call needs a 'function' with a 'name', not {shown(entry)}")
        calls.append(_api_call(function))
    if calls and written.name in ("llama3_json", "json"):
        content = ""  # these formats have no place for words beside calls
    try:
        return written.render(content, calls)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the arguments of a tool call can't be written as JSON: {error}") from None


def _api_call(function: Mapping[str, Any]) -> ToolCall:
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        arguments = {}
    elif isinstance(arguments, str):
        try:
            arguments = only_value(arguments)
        except CallError:
            return ToolCall(function["name"], {"arguments": arguments})
    return ToolCall(function["name"], arguments if isinstance(arguments, Mapping) else {"arguments": arguments})
