"""The weighting rules by name, and the decorator that adds one."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from corrgrpo_envs.errors import unknown
from corrgrpo_train.weighting.rule import Rule

R = TypeVar("R", bound=type[Rule])

WEIGHTINGS: dict[str, type[Rule]] = {}
"""Every rule's class by name."""


def register(name: str) -> Callable[[R], R]:
    """Return a decorator that makes a class derived from `Rule` available under a name.

    Its constructor's parameters are the rule's options: keyword-only, of JSON values.

    Raises:
        ValueError: if the name is taken or is not an identifier, or (on decorating) if the class has no `weights`.
    """
    if not name.isidentifier():
        raise ValueError(f"a weighting's name must be a Python identifier, not {name!r}")
    if name in WEIGHTINGS:
        raise ValueError(f"weighting {name!r} is already registered; choose another name")

    def add(rule: R) -> R:
        if inspect.isabstract(rule):
            raise ValueError(
                f"weighting {name!r} lacks {', '.join(sorted(rule.__abstractmethods__))}, which it must give"
            )
        WEIGHTINGS[name] = rule
        return rule

    return add


def make_rule(name: str, options: Mapping[str, Any]) -> Rule:
    """Make a rule.

    Raises:
        ValueError: for an unknown name or option, or a value that the rule refuses; one line each.
    """
    if name not in WEIGHTINGS:
        raise unknown("weighting", name, WEIGHTINGS)
    allowed = inspect.signature(WEIGHTINGS[name]).parameters
    for option in options:
        if option not in allowed:
            raise unknown(f"weighting {name!r}: option", option, allowed)
    for parameter in allowed.values():
        if parameter.default is parameter.empty and parameter.name not in options:
            raise ValueError(f"weighting {name!r} needs the option {parameter.name!r}")
    return WEIGHTINGS[name](**options)
