"""The fields of a dataclass of settings: their types and meanings, and values made of a type."""

import json
from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from corrgrpo_envs.errors import shown
from corrgrpo_train.errors import UsageError

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a mapping of names to values",
}


def types_of(settings: type) -> dict[str, Any]:
    """The type of every field, in order."""
    hints = get_type_hints(settings)
    return {item.name: hints[item.name] for item in fields(settings)}


def docs_of(settings: type) -> dict[str, str]:
    """The one-line meaning of every field, in order: the text below it in the source."""
    import docstring_parser

    documented = docstring_parser.parse_from_object(settings).params
    docs = {item.arg_name: (item.description or "").strip() for item in documented}
    return {item.name: docs.get(item.name, "") for item in fields(settings)}


def expected(hint: Any) -> str:
    """What a field of this type takes, in words."""
    allowed = get_args(hint) if NoneType in get_args(hint) else (hint,)
    words = _KINDS[get_origin(allowed[0]) or allowed[0]]
    if get_args(allowed[0])[1:] == (float,):
        words = "a mapping of names to numbers"
    return f"{words} or null" if NoneType in allowed else words


def typed(name: str, value: Any, hint: Any) -> Any:
    """Return the value as the type of its field: numbers written as text (YAML's 1e-6) become numbers.

    Raises:
        UsageError: if it is of another type.
    """
    allowed = get_args(hint) if NoneType in get_args(hint) else (hint,)
    if value is None and NoneType in allowed:
        return None
    kind = get_origin(allowed[0]) or allowed[0]
    wrong = UsageError(f"{name} must be {expected(hint)}, not {shown(value)}")
    if kind is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            raise wrong from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise wrong
    if kind is not dict:
        return value
    if get_args(allowed[0])[1] is float:
        return {str(key): typed(f"{name}.{key}", item, float) for key, item in value.items()}
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        raise UsageError(f"{name} must be made of JSON values, not {shown(value)}") from None
