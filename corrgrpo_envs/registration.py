"""Registering environments with Gymnasium, each with a twin that returns the vector of components."""

import re
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec, find_highest_version

NAMESPACE = "corrgrpo"

_VECTOR = WrapperSpec("VectorReward", "corrgrpo_envs.wrappers:VectorReward", {})


def register(
    name: str,
    entry_point: str,
    *,
    namespace: str = NAMESPACE,
    version: int = 0,
    additional_wrappers: tuple[WrapperSpec, ...] = (),
    **kwargs: Any,
) -> tuple[str, str]:
    """Register `namespace/Name-v0` and `namespace/NameVector-v0`, which applies `VectorReward`.

    Args:
        name: e.g. `"LeetCode"`.
        entry_point: `"module:Class"`; a text, so that specs go through JSON and into other processes, and the
            module is imported only when an environment is made.
        namespace: the part of the id before the slash.
        version: the part of the id after `-v`.
        additional_wrappers: wrappers that both ids apply, below `VectorReward`.
        **kwargs: further arguments of `gymnasium.register`, e.g. `nondeterministic=True` or `kwargs={...}`.
            Not `max_episode_steps`: it would cut an episode without anything being scored; turn limits are
            arguments of the environment.

    Returns:
        Both ids.

    Raises:
        ValueError: for an entry point that is not a text `"module:Class"`, or `max_episode_steps`.
    """
    if not isinstance(entry_point, str) or ":" not in entry_point:
        raise ValueError(f"entry_point must be a text 'module:Class', not {entry_point!r}")
    if kwargs.get("max_episode_steps") is not None:
        raise ValueError("max_episode_steps would end episodes without a score; give the environment max_turns")
    ids = f"{namespace}/{name}-v{version}", f"{namespace}/{name}Vector-v{version}"
    for env_id, wrappers in zip(ids, (additional_wrappers, (*additional_wrappers, _VECTOR)), strict=True):
        gym.register(env_id, entry_point, additional_wrappers=wrappers, **kwargs)
    return ids


def full_id(name: str) -> str:
    """The Gymnasium id that a name means: a bare `RLLA-v0` is one of this package's environments."""
    name = with_version(name)
    return name if "/" in name or ":" in name else f"{NAMESPACE}/{name}"


def with_version(name: str) -> str:
    """`RLLA` or `corrgrpo/RLLA` with the newest version that is registered; any other name as it is."""
    bare = name.removeprefix(f"{NAMESPACE}/")
    newest = None if re.search(r"[/:]|-v\d+$", bare) else find_highest_version(NAMESPACE, bare)
    return name if newest is None else f"{name}-v{newest}"
