"""The rollout of one training step, as the configuration wants it."""

from corrgrpo_train.config import OVERLONG, Config
from corrgrpo_train.engines import Engine
from corrgrpo_train.rollout import Limits
from corrgrpo_train.rollout.dynamic_sampling import GroupChoice, StepRollout, rollout_groups
from corrgrpo_train.rollout.groups import GroupSampler
from corrgrpo_train.rollout.overlong import OverlongPenalty


def rollout_step(sampler: GroupSampler, engine: Engine, limits: Limits, config: Config, step: int) -> StepRollout:
    """Roll out the groups of a step: length penalty added, groups without differences replaced where asked for."""
    return rollout_groups(
        sampler,
        engine,
        limits,
        temperature=config.temperature,
        key=(config.seed, step),
        choice=GroupChoice(config.dynamic_sampling, config.dynamic_sampling_attempts),
        penalty=overlong_penalty(config),
    )


def overlong_penalty(config: Config) -> OverlongPenalty | None:
    """The length penalty that joins the environment's components; None without one."""
    if not config.overlong_share:
        return None
    return OverlongPenalty.made(
        OVERLONG,
        weight=config.reward_weights.get(OVERLONG, 1.0),
        length=config.overlong_length or config.max_new_tokens,
        share=config.overlong_share,
    )
