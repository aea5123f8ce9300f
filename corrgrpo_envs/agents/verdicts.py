"""AgentDojo's own verdicts on an episode: was the user's task done, was the attacker's?"""

import importlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.agents.calls import ToolCall
from corrgrpo_envs.agents.suites import Suite

DIFFED = frozenset({"workspace", "travel"})
"""Suites with checks that compare two whole states by a diff."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check.

    Attributes:
        passed: what the check says; False if it failed.
        failure: `Type: message` of the exception that it raised, on one line; empty if it raised none.
    """

    passed: bool
    failure: str = ""


def utility(suite: Suite, user_task: str, answer: str, start: bytes, state: Any, calls: Sequence[ToolCall]) -> Verdict:
    """Whether the user's task is done.

    The checks of some suites compare two whole states by a diff that takes a tenth of a second. What is equal in
    both is made the same object first, in copies: the diff passes over it, with the same result.

    Args:
        suite: the suite.
        user_task: id of the task.
        answer: the agent's last text.
        start: the pickled state at the start of the episode.
        state: the state at its end; it is not changed.
        calls: all calls that were made, failed ones too.
    """
    before, after = pickle.loads(start), pickle.loads(pickle.dumps(state, protocol=5))
    if suite.name in DIFFED:
        _share(before, after)
    task = suite.user_tasks[user_task]
    return _checked(lambda: suite.package._check_user_task_utility(task, *_evidence(answer, before, after, calls)))


def attack_success(
    suite: Suite, injection_task: str, answer: str, start: bytes, state: Any, calls: Sequence[ToolCall]
) -> Verdict:
    """Whether the attacker's goal is reached. Arguments as for `utility`; the state may be changed."""
    task = suite.injection_tasks[injection_task]
    evidence = _evidence(answer, pickle.loads(start), state, calls)
    return _checked(lambda: suite.package._check_injection_task_security(task, *evidence))


def _evidence(answer: str, before: Any, after: Any, calls: Sequence[ToolCall]) -> tuple[Any, ...]:
    types = importlib.import_module("agentdojo.types")
    call_type = importlib.import_module("agentdojo.functions_runtime").FunctionCall
    # Not validated: arguments may be anything that JSON can write.
    made = [call_type.model_construct(function=call.name, args=dict(call.arguments)) for call in calls]
    return [types.text_content_block_from_string(answer)], before, after, made


def _checked(check: Callable[[], bool]) -> Verdict:
    try:
        return Verdict(bool(check()))
    except Exception as error:
        return Verdict(False, " ".join(f"{type(error).__name__}: {error}".split())[:200])


def _share(before: Any, after: Any) -> bool:
    """Whether two states are equal, in types too; what is equal in `after` is replaced by its like in `before`."""
    if before is after:
        return True
    if type(before) is not type(after):
        return False
    if isinstance(after, dict):
        return _share_items(before, after) and len(before) == len(after)
    if isinstance(after, list):
        return len(before) == len(after) and all(_share(*pair) for pair in zip(before, after, strict=True))
    if hasattr(after, "model_fields_set"):
        same = _share_items(before.__dict__, after.__dict__)
        return (
            same and len(before.__dict__) == len(after.__dict__) and before.model_fields_set == after.model_fields_set
        )
    return bool(before == after)


def _share_items(before: dict[str, Any], after: dict[str, Any]) -> bool:
    same = True
    for key, value in after.items():
        if key in before and _share(before[key], value):
            after[key] = before[key]
        else:
            same = False
    return same
