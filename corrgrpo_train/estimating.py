"""From a rollout's episodes to their advantages."""

import math
from collections.abc import Mapping, Sequence

import torch

from corrgrpo_train.advantages import ESTIMATORS, Estimate, estimate
from corrgrpo_train.config import Config
from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.rollout.episode import Episode


def estimated(
    episodes: Sequence[Episode], config: Config, step: int, weights: Mapping[str, float] | None = None
) -> tuple[list[str], Estimate | None]:
    """Turn the episodes' component vectors into advantages; None if nothing was scored.

    Args:
        episodes: of one rollout.
        config: names the estimator and its options.
        step: makes random numbers of an estimator others at every step, and the same ones after a resume.
        weights: by component, 0 where missing; None takes the episodes' own.

    Returns:
        component names in the environment's order, and the estimate over all episodes, failed ones included (their
        components are `nan`, their advantage 0).
    """
    scored = [episode for episode in episodes if episode.components]
    if not scored:
        return [], None
    names = list(scored[0].components)
    if weights is None:
        weights = scored[0].weights
        if any(episode.weights != weights for episode in scored):
            raise UsageError("the environment's reward_weights differ between episodes; they must stay as made")
    components = torch.tensor(
        [[episode.components.get(name, math.nan) for name in names] for episode in episodes],
        dtype=torch.float64,
    )
    options = dict(config.method_args)
    if "seed" in ESTIMATORS[config.method_name].options:
        options.setdefault("seed", (config.seed * 1_000_003 + step) % 2**31)
    try:
        result = estimate(
            config.method_name,
            components,
            torch.tensor([episode.group for episode in episodes]),
            torch.tensor([weights.get(name, 0.0) for name in names], dtype=torch.float64),
            lengths=torch.tensor([episode.tokens.completion_length for episode in episodes]),
            **options,
        )
    except ValueError as error:
        raise UsageError(f"method {config.method!r}: {first_line(error)}") from error
    return names, result
