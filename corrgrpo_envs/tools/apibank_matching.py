"""Static matching of the calls in an API-Bank answer with the stored one.

A value that is a text which spells a list or an object is taken for that list or object, on both sides, and True and
False for the texts "True" and "False", since all stored values are texts. Otherwise equality is Python's: the number 2
does not equal the text "2". `VALUES["text"]` compares numbers as texts too.
"""

import ast
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.tools.apibank_parsing import ApiCall, call_blocks, call_of, read_calls
from corrgrpo_envs.tools.blocks import CLOSE_CALL, OPEN_CALL
from corrgrpo_envs.tools.calls import MAX_NESTING, CallError, check_nesting, value_token

_LITERAL_LENGTH = 4096

Normal = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Match:
    """How an answer compares with the stored call.

    Attributes:
        calls: number of calls read in the answer.
        correct: it is right by the chosen rule.
        name: 1 if the first call names the right tool.
        parameter_names: similarity of the names of its parameters, 0 to 1; 0 for a wrong tool.
        parameter_values: share of the stored parameters that it has with an equal value; 0 for a wrong tool.
    """

    calls: int
    correct: bool
    name: float = 0.0
    parameter_names: float = 0.0
    parameter_values: float = 0.0


def unnested(value: Any) -> Any:
    """The value with texts that spell lists or objects as these, and booleans as texts.

    All in all it nests at most `MAX_NESTING` levels; a text that would go deeper stays a text.
    """
    return _unnested(value, MAX_NESTING)


def as_text(value: Any) -> Any:
    """As `unnested`, and numbers and null as texts."""
    return _written(unnested(value))


def _unnested(value: Any, levels: int) -> Any:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        spelled = _spelled(value, levels)
        return value if spelled is None else _unnested(spelled, levels)
    if isinstance(value, list):
        return [_unnested(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {key: _unnested(item, levels - 1) for key, item in value.items()}
    return value


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(item) for item in value]
    if isinstance(value, dict):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, int) and value.bit_length() > 10_000:  # such numbers can't be written
        return value
    return value if isinstance(value, str) else str(value)


def _single(text: str, calls: Sequence[ApiCall], truth: ApiCall, normal: Normal) -> bool:
    return len(calls) == 1 and equal(calls[0], truth, normal)


def _first(text: str, calls: Sequence[ApiCall], truth: ApiCall, normal: Normal) -> bool:
    return bool(calls) and equal(calls[0], truth, normal)


def _toolrl(text: str, calls: Sequence[ApiCall], truth: ApiCall, normal: Normal) -> bool:
    """Any call in the last complete block, one JSON object a line, without any normal form."""
    start = text.rfind(OPEN_CALL)
    if start < 0 or text.find(CLOSE_CALL, start) < 0:
        return False
    *_, block = call_blocks(text[start:])
    return any(equal(call, truth, _as_is) for line in block.split("\n") for call in _line_calls(line, truth))


def _as_is(value: Any) -> Any:
    return value


def _line_calls(line: str, truth: ApiCall) -> list[ApiCall]:
    try:
        value = json.loads(line)
        check_nesting([value])
    except (ValueError, RecursionError):
        return []
    if not isinstance(value, dict):
        return []
    if "name" not in value or "parameters" not in value:
        return [ApiCall(truth.name, value)]  # bare parameters are taken for a call of the right tool
    call = call_of(value)
    return [] if call is None else [call]


Rule = Callable[[str, Sequence[ApiCall], ApiCall, Normal], bool]

RULES: Mapping[str, Rule] = {"single": _single, "first": _first, "toolrl": _toolrl}
VALUES: Mapping[str, Normal] = {"unnested": unnested, "text": as_text}


def equal(call: ApiCall, truth: ApiCall, normal: Normal) -> bool:
    """Whether two calls have the same name and the same parameters with equal values in normal form."""
    return call.name == truth.name and _tokens(call, normal) == _tokens(truth, normal)


def match(text: str, truth: ApiCall, rule: Rule, normal: Normal) -> Match:
    """Compare an answer with the stored call; never raises.

    Args:
        text: the answer.
        truth: the stored call.
        rule: of `RULES`: says when an answer is correct.
        normal: of `VALUES`: the form in which values are compared.
    """
    calls = read_calls(text)
    correct = rule(text, calls, truth, normal)
    if not calls or calls[0].name != truth.name:
        return Match(len(calls), correct)
    made, wanted = _tokens(calls[0], normal), _tokens(truth, normal)
    union = len(made.keys() | wanted.keys())
    alike = sum(made.get(key, _MISSING) == token for key, token in wanted.items())
    return Match(
        len(calls),
        correct,
        1.0,
        len(made.keys() & wanted.keys()) / union if union else 1.0,
        alike / len(wanted) if wanted else 1.0,
    )


_MISSING: Hashable = ("missing",)


def _tokens(call: ApiCall, normal: Normal) -> dict[str, Hashable]:
    return {key: value_token(normal(value)) for key, value in call.parameters.items()}


def _spelled(text: str, levels: int) -> Any:
    """The list or object of at most so many levels that a text spells as JSON or as a short Python literal, or None."""
    body = text.strip()
    if not ((body.startswith("[") and body.endswith("]")) or (body.startswith("{") and body.endswith("}"))):
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        if len(body) > _LITERAL_LENGTH:
            return None
        try:
            value = ast.literal_eval(body)
            value = json.loads(json.dumps(value))  # tuples become lists; what JSON has not raises
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None
    try:
        check_nesting(value, levels)
    except CallError:
        return None
    return value
