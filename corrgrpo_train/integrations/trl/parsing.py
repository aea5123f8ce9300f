"""`guarded_parsing`: what a model wrote is read without an exception, and its tools' names forge no turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corrgrpo_envs.agents.calls import check_depth
from corrgrpo_train.integrations.trl.plain_text import PlainText

# TRL takes ValueError and TypeError for a broken call; these would end the run.
_BROKEN = (RecursionError, LookupError, AttributeError)


@contextmanager
def guarded_parsing(tokenizer: Any) -> Iterator[None]:
    """Within it, `tokenizer.parse_response` tells every broken call by a `ValueError`.

    TRL then takes the text as it is, and the environment judges it. A call that is nested deeper than this project's
    own readers allow counts as broken: where the parser gives up depends on how deep its caller already is.

    Names of tools are made plain: TRL puts the name of a tool that does not exist into a message, which it tokenises.
    """
    parse, plain = tokenizer.parse_response, PlainText(tokenizer)

    def parse_response(*args: Any, **kwargs: Any) -> Any:
        try:
            message = parse(*args, **kwargs)
        except _BROKEN as error:
            raise ValueError(f"no call can be read: {type(error).__name__}") from error
        for call in _calls(message):
            check_depth(call)
            if isinstance(call.get("name"), str):
                call["name"] = plain(call["name"])
        return message

    tokenizer.parse_response = parse_response
    try:
        yield
    finally:
        del tokenizer.parse_response


def _calls(message: Any) -> list[dict[str, Any]]:
    """The calls of a message that have the form of one; TRL refuses the others itself."""
    found = message.get("tool_calls") if isinstance(message, dict) else None
    entries = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    functions = [entry.get("function", entry) for entry in entries]
    return [function for function in functions if isinstance(function, dict)]
