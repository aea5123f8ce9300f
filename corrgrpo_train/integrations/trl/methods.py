"""`tool_environment`: a class of episodes with an environment's tools as methods, which is how TRL takes tools."""

import inspect
import keyword
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from corrgrpo_envs.errors import shown
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl.environments import Environments
from corrgrpo_train.integrations.trl.plain_text import PlainText
from corrgrpo_train.integrations.trl.tools import ToolEpisode

_RESERVED = ("reset", "get_reward")
_INSTEAD = "train with python -m corrgrpo_train"
_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict[str, Any],
    "array": list[Any],
    "null": type(None),
}


def tool_environment(
    schemas: Sequence[Mapping[str, Any]], environments: Environments, plain: PlainText, end_tokens: Collection[int]
) -> Callable[[], ToolEpisode]:
    """Return a factory of rollouts whose class has the tools of the schemas as methods.

    Args:
        schemas: OpenAI tool schemas. They are kept on the factory as `schemas`, in plain text, so that a trainer can
            show the model these and not those that TRL reads off the methods, which lack what annotations can't say.
        environments: behind the rollouts.
        plain: makes plain what the model is shown.
        end_tokens: with which a completion ends that was not cut.

    Raises:
        UsageError: for what is no tool schema, and for a tool or parameter whose name no method of TRL's
            environments can have.
    """
    shown_schemas = [plain.value(dict(schema)) for schema in schemas]
    functions = [_checked(schema) for schema in shown_schemas]
    names = [function["name"] for function in functions]
    kind = type("ToolEnvironment", (ToolEpisode,), {function["name"]: _method(function) for function in functions})

    def factory() -> ToolEpisode:
        episode: ToolEpisode = kind(environments, names, plain, end_tokens)
        return episode

    factory.schemas = shown_schemas  # type: ignore[attr-defined]
    return factory


def _checked(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The function that a schema describes."""
    function = schema.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UsageError(
            f"an environment's tool must be an object with a 'function' that has a 'name': {shown(schema)}"
        )
    name = function["name"]
    if not name.isidentifier() or name.startswith("_") or name in _RESERVED:
        raise UsageError(f"the tool {name!r} can't be a method of an environment of TRL; {_INSTEAD}")
    for key in function.get("parameters", {}).get("properties", {}):
        if not key.isidentifier() or keyword.iskeyword(key) or key == "self":
            raise UsageError(f"the parameter {key!r} of tool {name!r} can't be one of a Python method; {_INSTEAD}")
    return function


def _method(function: Mapping[str, Any]) -> Callable[..., str]:
    """A method of `ToolEpisode` that makes the call; takes any arguments, for the environment judges them.

    Signature, annotations and docstring say what the schema says, in the form from which TRL makes a schema.
    """
    name, described = function["name"], function.get("parameters", {})
    properties: Mapping[str, Any] = described.get("properties", {})

    def method(self: ToolEpisode, /, **arguments: Any) -> str:
        return self._call(name, arguments)

    required = set(described.get("required", ()))
    annotations = {key: _annotation(schema) for key, schema in properties.items()}
    parameters = [
        inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if key in required else properties[key].get("default"),
            annotation=annotations[key],
        )
        for key in properties
    ]
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__ = method.__qualname__ = name
    method.__signature__ = inspect.Signature([receiver, *parameters])  # type: ignore[attr-defined]
    method.__annotations__ = annotations
    lines = [f"    {key}: {_line(schema.get('description')) or key}" for key, schema in properties.items()]
    method.__doc__ = "\n".join([_line(function.get("description")) or name, "", *(["Args:", *lines] if lines else [])])
    return method


def _line(text: Any) -> str:
    return " ".join(str(text or "").split())


def _annotation(schema: Mapping[str, Any]) -> Any:
    """The Python type of a JSON schema."""
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    options = schema.get("anyOf") or [{**schema, "type": kind} for kind in _listed(schema.get("type", "string"))]
    kinds = [_plain(option) for option in options]
    union = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return union


def _plain(schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
        return list[_annotation(schema["items"])]  # type: ignore[misc]
    return dict if schema.get("type") == "object" else _TYPES.get(str(schema.get("type", "string")), str)


def _listed(kind: Any) -> list[Any]:
    return list(kind) if isinstance(kind, list) else [kind]
