"""AgentDojo's cases: every user task alone, and with every injection task under every attack."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from corrgrpo_envs.agents.suites import attack_names, load_suite, suite_names
from corrgrpo_envs.errors import unknown
from corrgrpo_envs.tasks import Task

CLEAN = "clean"
TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Case:
    """What an episode is about.

    Attributes:
        suite: e.g. `"banking"`.
        user_task: e.g. `"user_task_0"`.
        injection_task: e.g. `"injection_task_1"`; None in a clean case.
        attack: e.g. `"important_instructions"`; None in a clean case.
    """

    suite: str
    user_task: str
    injection_task: str | None = None
    attack: str | None = None

    @property
    def id(self) -> str:
        """`suite:user_task:clean` or `suite:user_task:injection_task:attack`."""
        return ":".join((self.suite, self.user_task, *self._what_is_injected))

    @property
    def user_key(self) -> str:
        """`suite:user_task`: names the user task among all suites."""
        return f"{self.suite}:{self.user_task}"

    @property
    def _what_is_injected(self) -> tuple[str, ...]:
        if self.injection_task is None or self.attack is None:
            return (CLEAN,)
        return self.injection_task, self.attack


def case_of(task_id: str) -> Case:
    """Read a case from its id.

    Raises:
        ValueError: if it is not the id of a case.
    """
    parts = task_id.split(":")
    if len(parts) == 3 and parts[2] == CLEAN:
        return Case(parts[0], parts[1])
    if len(parts) == 4:
        return Case(*parts)
    raise ValueError(
        f"{task_id!r} is no AgentDojo task id: 'suite:user_task_N:clean' or "
        "'suite:user_task_N:injection_task_M:attack' is wanted"
    )


def published_fraction(key: str) -> float:
    """The number in [0, 1) by which the published split sorts user tasks: 32 bits of a hash of `suite:user_task`."""
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) / 2**32


def splits(user_keys: Sequence[str]) -> dict[str, str]:
    """Split of each user task of one suite; all its cases, clean and attacked, follow it.

    Those below 0.2 are the published evaluation set, here `"test"`. The published training set is divided once
    more: of each suite the first tenth (rounded up) in the order of the hash is `"validation"`.

    Args:
        user_keys: `suite:user_task` of all user tasks of the suite.
    """
    training = sorted((key for key in user_keys if published_fraction(key) >= TEST_SHARE), key=published_fraction)
    found = dict.fromkeys(user_keys, "test")
    found |= dict.fromkeys(training, "train")
    return found | dict.fromkeys(training[: math.ceil(len(training) / 10)], "validation")


@lru_cache(maxsize=32)
def case_tasks(
    version: str,
    suites: tuple[str, ...] | None,
    attacks: tuple[str, ...],
    include_clean: bool,
    max_reference_turns: int | None = None,
) -> tuple[Task[Case], ...]:
    """All cases of the chosen suites and attacks, over all splits, in the published order: clean ones first.

    Args:
        version: of the benchmark.
        suites: names; None for all.
        attacks: names.
        include_clean: whether clean cases are among them.
        max_reference_turns: only user tasks whose ground truth, its answer counted in, takes at most so many turns.

    Raises:
        ValueError: for an unknown version, suite or attack, or if nothing is chosen.
    """
    names = suite_names(version)
    for name in suites or ():
        if name not in names:
            raise unknown("suites", name, names)
    for name in attacks:
        if name not in attack_names():
            raise unknown("attacks", name, attack_names())
    chosen = [name for name in names if suites is None or name in suites]
    clean = [case for name in chosen for case in _clean(version, name)] if include_clean else []
    cases = [*clean, *(case for name in chosen for case in _attacked(version, name, attacks))]
    if not cases:
        raise ValueError("no case is left: name suites, and name an attack or set include_clean=True")
    if max_reference_turns is not None:
        cases = [
            case
            for case in cases
            if load_suite(version, case.suite).reference_turns(case.user_task) <= max_reference_turns
        ]
        if not cases:
            raise ValueError(f"no case is left: no user task is done in max_reference_turns={max_reference_turns}")
    split_of: dict[str, str] = {}
    for name in chosen:
        split_of |= splits([case.user_key for case in _clean(version, name)])
    return tuple(Task(case.id, split_of[case.user_key], case, kind=case.attack or CLEAN) for case in cases)


def _clean(version: str, suite: str) -> Iterator[Case]:
    return (Case(suite, user_task) for user_task in load_suite(version, suite).user_tasks)


def _attacked(version: str, suite: str, attacks: Sequence[str]) -> Iterator[Case]:
    loaded = load_suite(version, suite)
    return (
        Case(suite, user_task, injection_task, attack)
        for user_task in loaded.user_tasks
        for injection_task in loaded.injection_tasks
        for attack in attacks
    )
