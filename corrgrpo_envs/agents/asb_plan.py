"""The plan that ASB's agent writes before it acts: a JSON list of steps."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.tools.blocks import without_thought
from corrgrpo_envs.tools.calls import CallError, check_nesting

_DECODER = json.JSONDecoder(strict=False)
_STARTS = 20


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan.

    Attributes:
        message: what is to be done.
        tools: names of the tools that the plan wants for it; may name tools that do not exist.
    """

    message: str
    tools: tuple[str, ...]


def read_plan(text: str) -> tuple[PlannedStep, ...]:
    """Read the plan in a text; empty if there is none. Never raises, in time linear in the text.

    A plan is a JSON list of objects, or one such object, each with a text `message` and a list `tool_use`. It may stand
    in a code fence or among words; a thought before it is passed over. The first list or object that is a plan counts.
    """
    body = without_thought(text.strip())[1]
    at = 0
    for _ in range(_STARTS):
        starts = [place for mark in "[{" if (place := body.find(mark, at)) >= 0]
        if not starts:
            break
        at = min(starts)
        try:
            value, end = _DECODER.raw_decode(body, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        steps = _steps(value if isinstance(value, list) else [value])
        if steps:
            return steps
        at = end
    return ()


def written(steps: Sequence[PlannedStep]) -> str:
    """Write a plan as its JSON list, on one line."""
    return json.dumps([{"message": step.message, "tool_use": list(step.tools)} for step in steps], ensure_ascii=False)


def _steps(values: Sequence[Any]) -> tuple[PlannedStep, ...]:
    found = []
    for value in values:
        if not isinstance(value, dict) or not isinstance(value.get("message"), str):
            return ()
        tools = value.get("tool_use")
        if not isinstance(tools, list):
            return ()
        try:
            check_nesting(tools)
        except CallError:
            return ()
        found.append(PlannedStep(value["message"], tuple(tool for tool in tools if isinstance(tool, str))))
    return tuple(found)
