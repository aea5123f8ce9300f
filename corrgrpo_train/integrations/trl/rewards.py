"""Reward functions as TRL wants them: one for each component of an environment."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from corrgrpo_train.measures import summary
from corrgrpo_train.rollout.episode import Episode

Scorer = Callable[..., list[Episode]]


class OnceScored:
    """Scores a batch of completions once, for all reward functions of an environment.

    TRL calls each reward function with the same batch. Scoring may be costly, and measured rewards differ from one
    scoring to the next.
    """

    def __init__(self, score: Scorer) -> None:
        """Wrap the function that scores: `score(completions=…, completion_ids=…, …)`, an episode per completion."""
        self._score = score
        # The batch itself, not its id: as long as it is held here, no other list can have its place in memory.
        self._batch: Any = None
        self._episodes: list[Episode] = []

    def __call__(
        self, *, completions: Sequence[Any], log_metric: Callable[[str, float], None] | None = None, **columns: Any
    ) -> list[Episode]:
        """The batch's episodes; metrics of the environment are logged where TRL gives a way to."""
        if completions is not self._batch:
            self._episodes = self._score(completions=completions, **columns)
            self._batch = completions
            if log_metric is not None:
                measured = summary(self._episodes)
                for name, value in measured.items():
                    if name.startswith("metrics/") and not math.isnan(value):
                        log_metric(name, value)
                # TRL makes the mean over processes of it.
                log_metric("episodes/failed", measured["failed"])
        return self._episodes


class ComponentReward:
    """One component of an environment as a reward function of TRL.

    Attributes:
        weight: the component's weight in the environment's reward; `MultiRewardGRPOTrainer` takes it from here.
        end_tokens: those that end a completion; one that ends with another was cut.
    """

    def __init__(self, name: str, weight: float, scored: OnceScored, end_tokens: Collection[int]) -> None:
        """Name the component; TRL logs under `__name__`."""
        self.__name__, self.weight, self._scored = name, weight, scored
        self.end_tokens = frozenset(end_tokens)

    def __call__(self, **columns: Any) -> list[float | None]:
        """Raw values of the component, one a completion; None where it could not be scored."""
        values = (episode.components.get(self.__name__, math.nan) for episode in self._scored(**columns))
        return [None if math.isnan(value) else value for value in values]
