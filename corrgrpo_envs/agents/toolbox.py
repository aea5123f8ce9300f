"""The tools of an agent: their OpenAI schemas, and whether a call fits them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.agents.calls import ToolCall
from corrgrpo_envs.errors import shown, suggestion
from corrgrpo_envs.tools.calls import CallError

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool.

    Attributes:
        types: names of the JSON types that it takes, `"null"` left out.
        choices: the only values allowed, where the schema lists them.
        required: whether a call must give it.
    """

    types: tuple[str, ...]
    choices: tuple[Any, ...] | None
    required: bool

    def accepts(self, value: Any) -> bool:
        """Whether a JSON value has one of the types, and is one of the choices. True is not a number."""
        if self.choices is not None and value not in self.choices:
            return False
        return not self.types or any(
            isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
            for name in self.types
        )


class Toolbox:
    """The tools that an agent may call.

    Attributes:
        schemas: OpenAI tool schemas, complete: references resolved, titles left out.
        flat_schemas: the same with type, description and enum of each parameter only: no element types, no
            defaults, no null.
        text, flat_text: both as JSON.
        signatures: one tool a line, `name(parameter, parameter: type, optional?)`: a tenth of the length, without the
            descriptions. The type is left out for text.
    """

    def __init__(self, tools: Iterable[tuple[str, str, Schema]]) -> None:
        """Keep the tools.

        Args:
            tools: name, description and JSON schema of the arguments of each.
        """
        self._parameters: dict[str, dict[str, Parameter]] = {}
        full, flat = [], []
        for name, description, schema in tools:
            parameters = _resolved(schema, schema.get("$defs", {}))
            properties, required = parameters.get("properties", {}), parameters.get("required", [])
            full.append(_openai(name, description, properties, required))
            flat.append(_openai(name, description, {key: _flat(one) for key, one in properties.items()}, required))
            self._parameters[name] = {
                key: Parameter(_types(one), _choices(one), key in required) for key, one in properties.items()
            }
        self.schemas: tuple[Schema, ...] = tuple(full)
        self.flat_schemas: tuple[Schema, ...] = tuple(flat)
        self.text, self.flat_text = (json.dumps(some, ensure_ascii=False) for some in (full, flat))
        self.signatures = "\n".join(_signature(name, given) for name, given in self._parameters.items())

    def types(self, tool: str, parameter: str) -> tuple[str, ...]:
        """JSON types that a parameter takes; none where tool or parameter are unknown."""
        known = self._parameters.get(tool, {}).get(parameter)
        return known.types if known else ()

    def checked(self, call: ToolCall) -> ToolCall:
        """Return the call without optional arguments that are null.

        Raises:
            CallError: if there is no such tool, a required argument is missing, or one is unknown, of a wrong
                type, or none of its choices.
        """
        if call.name not in self._parameters:
            raise CallError(f"there is no tool {shown(call.name)}.{suggestion(call.name, self._parameters)}")
        parameters = self._parameters[call.name]
        arguments: dict[str, Any] = {}
        for key, value in call.arguments.items():
            if key not in parameters:
                raise CallError(f"{call.name} has no parameter {shown(key)}.{suggestion(key, parameters)}")
            if value is None and not parameters[key].required:
                continue
            if not parameters[key].accepts(value):
                raise CallError(f"{call.name} does not take {shown(value)} as {key!r}")
            arguments[key] = value
        for key, parameter in parameters.items():
            if parameter.required and key not in arguments:
                raise CallError(f"the call of {call.name} lacks {key!r}")
        return ToolCall(call.name, arguments)


def _signature(name: str, parameters: Mapping[str, Parameter]) -> str:
    return f"{name}({', '.join(_written(*item) for item in parameters.items())})"


def _written(name: str, parameter: Parameter) -> str:
    kinds = "" if parameter.types in ((), ("string",)) else ": " + " or ".join(parameter.types)
    if parameter.choices is not None:
        kinds = ": " + " or ".join(map(repr, parameter.choices))
    return name + ("" if parameter.required else "?") + kinds


def _openai(name: str, description: str, properties: Schema, required: Iterable[str]) -> Schema:
    parameters = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _resolved(schema: Any, definitions: Schema) -> Any:
    """Put definitions in place of references, leave out titles (they repeat the names)."""
    if isinstance(schema, list):
        return [_resolved(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return {
        # A property may be called title: its value is then a schema, not a text.
        key: _resolved(value, definitions)
        for key, value in schema.items()
        if key != "$defs" and not (key == "title" and isinstance(value, str))
    }


def _options(schema: Schema) -> list[Schema]:
    return [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]


def _types(schema: Schema) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(option["type"]) for option in _options(schema) if "type" in option))


def _choices(schema: Schema) -> tuple[Any, ...] | None:
    options = _options(schema)
    return tuple(options[0]["enum"]) if len(options) == 1 and "enum" in options[0] else None


def _flat(schema: Schema) -> Schema:
    types, choices = _types(schema), _choices(schema)
    flat: dict[str, Any] = {"type": types[0] if types else "string", "description": schema.get("description", "")}
    if choices is not None:
        flat["enum"] = list(choices)
    return flat
