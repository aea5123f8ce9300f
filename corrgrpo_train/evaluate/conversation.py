"""Environments' conversations as requests to a server, and its replies as assistants' texts."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.agents.formats import FORMATS, action_text
from corrgrpo_train.evaluate.chat_client import Reply
from corrgrpo_train.rollout.chat import Message, with_schemas

ApiMessage = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolMode:
    """How a server is told of tools.

    Attributes:
        fields: what a request says beside the messages, given the schemas.
        messages: the conversation, given its messages, how many of them opened it, the assistant's replies and the
            schemas.
    """

    fields: Callable[[list[Any]], dict[str, Any]]
    messages: Callable[[Sequence[Message], int, Sequence[Reply], list[Any]], list[ApiMessage]]


# ---- calls: the server parses the model's calls -----------------------------------------------------------


def _with_calls(
    messages: Sequence[Message], opening: int, replies: Sequence[Reply], schemas: list[Any]
) -> list[ApiMessage]:
    """Calls as the server sent them, each with its output; a call that was not run is left out."""
    out: list[ApiMessage] = [_plain(message) for message in messages[:opening]]
    turns = iter(replies)
    waiting: list[ApiMessage] = []
    for message in messages[opening:]:
        if message["role"] == "assistant":
            _drop_unanswered(out, waiting)
            reply = next(turns)
            # Ids of our own: servers may send none, or the same one twice.
            place = len(out)
            calls = [
                {"id": f"call_{place}_{number}", "type": "function", "function": _function(call)}
                for number, call in enumerate(reply.tool_calls)
            ]
            out.append({"role": "assistant", "content": _clean(reply.content), "tool_calls": calls})
            waiting = list(calls)
        elif message["role"] == "tool" and waiting:
            call = waiting.pop(0)
            out.append({"role": "tool", "tool_call_id": call["id"], "content": _clean(message["content"])})
        else:
            out.append({"role": _user(message["role"]), "content": _clean(message["content"])})
    _drop_unanswered(out, waiting)
    return out


def _function(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"name": _clean(call["function"]["name"]), "arguments": _clean(text)}


def _drop_unanswered(out: list[ApiMessage], waiting: list[ApiMessage]) -> None:
    """Take calls without an output out of the last assistant's message: servers want an output of every call."""
    for message in reversed(out):
        if message["role"] == "assistant" and "tool_calls" in message:
            message["tool_calls"] = [call for call in message["tool_calls"] if call not in waiting]
            if not message["tool_calls"]:
                del message["tool_calls"]
            break
    waiting.clear()


# ---- template: the model's chat template shows the tools, its text is taken as it is ----------------------


def _templated(
    messages: Sequence[Message], opening: int, replies: Sequence[Reply], schemas: list[Any]
) -> list[ApiMessage]:
    return [
        {**_plain(message), **({"tool_call_id": f"call_{number}"} if message["role"] == "tool" else {})}
        for number, message in enumerate(messages)
    ]


# ---- text: schemas in the system message, outputs as user messages -----------------------------------------


def _as_text(
    messages: Sequence[Message], opening: int, replies: Sequence[Reply], schemas: list[Any]
) -> list[ApiMessage]:
    shown = with_schemas(messages, schemas) if schemas else messages
    return [{"role": _user(message["role"]), "content": _clean(message["content"])} for message in shown]


TOOL_MODES: Mapping[str, ToolMode] = {
    "calls": ToolMode(lambda schemas: {"tools": schemas} if schemas else {}, _with_calls),
    "template": ToolMode(lambda schemas: {"tools": schemas, "tool_choice": "none"} if schemas else {}, _templated),
    "text": ToolMode(lambda schemas: {}, _as_text),
}
"""By the name that settings give them."""


# ---- replies -----------------------------------------------------------------------------------------------


def _restored(reply: Reply) -> str:
    """Thoughts in front of the answer, as the model wrote them before the server took them out."""
    return f"<think>\n{reply.reasoning}\n</think>\n\n" if reply.reasoning else ""


REASONING: Mapping[str, Callable[[Reply], str]] = {"restore": _restored, "drop": lambda reply: ""}
"""What becomes of thoughts that a server returns apart from the text, by the name that settings give it."""


def text_of(reply: Reply, call_format: str, reasoning: str = "restore") -> str:
    """The assistant's text: thoughts, words, and calls in the environment's format.

    Args:
        reply: the server's.
        call_format: a name of the environments' call formats. What it can't write is written in `hermes`, which the
            environment then takes as it takes any other text.
        reasoning: a name of `REASONING`.
    """
    thoughts = REASONING[reasoning](reply)
    if not reply.tool_calls:
        return thoughts + reply.content
    message = {"content": reply.content, "tool_calls": reply.tool_calls}
    try:
        return thoughts + action_text(message, call_format)
    except ValueError:
        return thoughts + action_text(message)


def call_format_of(environment: Any) -> str:
    """Name of the format in which an environment reads calls."""
    name = getattr(environment, "call_format", None)
    return name if isinstance(name, str) and name in FORMATS else "hermes"


def _plain(message: Message) -> ApiMessage:
    return {"role": message["role"], "content": _clean(message["content"])}


def _user(role: str) -> str:
    return "user" if role == "tool" else role


def _clean(text: str) -> str:
    # Lone surrogates can't be encoded; servers refuse them.
    return text.encode("utf-8", "replace").decode("utf-8")
