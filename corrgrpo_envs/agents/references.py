"""AgentDojo's ground truths, written as the texts of an agent."""

import importlib
import pickle
from typing import Any

from corrgrpo_envs.agents.calls import ToolCall
from corrgrpo_envs.agents.cases import Case
from corrgrpo_envs.agents.formats import CallFormat
from corrgrpo_envs.agents.suites import Suite

_NOTHING_TO_SAY = "Done."


def user_turns(suite: Suite, case: Case, start: bytes, written: CallFormat) -> tuple[str, ...]:
    """The calls that do the user's task, one a text, and the answer."""
    task = suite.user_tasks[case.user_task]
    answer = task.GROUND_TRUTH_OUTPUT or _NOTHING_TO_SAY
    return (*(written.render("", [call]) for call in _calls(task, start)), answer)


def attack_turns(suite: Suite, case: Case, start: bytes, written: CallFormat) -> tuple[str, ...]:
    """The calls that do the attacker's task, one a text; none in a clean case."""
    if case.injection_task is None:
        return ()
    return tuple(written.render("", [call]) for call in _calls(suite.injection_tasks[case.injection_task], start))


def _calls(task: Any, start: bytes) -> list[ToolCall]:
    to_json = importlib.import_module("pydantic_core").to_jsonable_python
    # A ground truth may look at the state, and some change it in doing so.
    return [ToolCall(call.function, to_json(dict(call.args))) for call in task.ground_truth(pickle.loads(start))]
