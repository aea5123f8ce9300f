"""A step's rollout; with dynamic sampling, groups whose episodes do not differ are replaced by other tasks' groups."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from corrgrpo_envs.errors import unknown
from corrgrpo_train.engines import Engine
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout import Limits
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.groups import GroupSampler
from corrgrpo_train.rollout.overlong import OverlongPenalty

REWARD = "reward"
"""What stands for the weighted total among the names of components."""

_EQUAL = 1e-9  # as in the estimators: equal scores reached by other additions differ in their last bits


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """Which groups a step trains on.

    Attributes:
        by: a group is kept if its episodes differ in this: `"reward"` or a component; None keeps every group.
        attempts: rollouts per step at most.
    """

    by: str | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class StepRollout:
    """What a step trains on.

    Attributes:
        episodes: group by group; as many groups as the sampler has.
        counts: empty without dynamic sampling, else `groups/drawn`, `groups/kept` (with differences),
            `groups/uniform` (without), `groups/filled` (without, trained on for want of others), `groups/rollouts`.
    """

    episodes: list[Episode]
    counts: dict[str, float]


def rollout_groups(
    sampler: GroupSampler,
    engine: Engine,
    limits: Limits,
    *,
    temperature: float,
    key: tuple[int, ...],
    choice: GroupChoice,
    penalty: OverlongPenalty | None = None,
) -> StepRollout:
    """Roll out the next groups, and further ones in place of those without differences.

    Each attempt draws as many tasks as groups are missing, in the sampler's order, so the sampler's position is the
    whole state. Groups are numbered through all attempts. After the last one the newest groups without differences
    fill the empty places: a step always has the same number of groups.

    Args:
        sampler: draws tasks and runs their groups.
        engine: samples the turns.
        limits: token limits.
        temperature: of sampling.
        key: begins every sequence's random key.
        choice: which groups are kept.
        penalty: added to every episode's components before groups are compared.

    Raises:
        UsageError: if no component has the chosen name.

    Source: DAPO, arXiv 2503.14476, section 3.2.
    """
    kept: list[list[Episode]] = []
    uniform: list[list[Episode]] = []
    drawn = rollouts = 0
    for _ in range(1 if choice.by is None else choice.attempts):
        starts = [sampler.next_start() for _ in range(sampler.groups - len(kept))]
        episodes = sampler.rollout_on(starts, engine, limits, temperature=temperature, key=key, first_group=drawn)
        drawn, rollouts = drawn + len(starts), rollouts + 1
        if penalty is not None:
            penalty.add_to(episodes)
        size = sampler.group_size
        for group in (episodes[place : place + size] for place in range(0, len(episodes), size)):
            (kept if choice.by is None or differs(group, choice.by) else uniform).append(group)
        if len(kept) == sampler.groups:
            break
    missing = sampler.groups - len(kept)
    chosen = kept + (uniform[-missing:] if missing else [])
    counts = {"drawn": drawn, "kept": len(kept), "uniform": len(uniform), "filled": missing, "rollouts": rollouts}
    return StepRollout(
        [episode for group in chosen for episode in group],
        {} if choice.by is None else {f"groups/{name}": float(count) for name, count in counts.items()},
    )


def differs(group: Sequence[Episode], by: str) -> bool:
    """Whether a group's scored episodes differ in the total reward or in a component.

    Raises:
        UsageError: if there is no component of that name.
    """
    scored = [episode for episode in group if episode.valid]
    if not scored:
        return False
    if by != REWARD and by not in scored[0].components:
        raise UsageError(str(unknown("dynamic_sampling", by, [REWARD, *scored[0].components])))
    values = [episode.reward if by == REWARD else episode.components[by] for episode in scored]
    known = [value for value in values if not math.isnan(value)]
    return bool(known) and not uniform(known)


def uniform(values: Sequence[float]) -> bool:
    """Whether all values are the same, but for rounding; there is at least one, and none is nan."""
    return max(values) - min(values) <= _EQUAL * max(map(abs, values))
