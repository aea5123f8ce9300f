"""`Sampler`: what plays episodes, whatever model is behind it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from corrgrpo_train.evaluate.sample import Job, Sample
from corrgrpo_train.evaluate.settings import EnvironmentChoice
from corrgrpo_train.rollout.environment import Start

Done = Callable[[Sequence[Sample]], None]
"""Takes episodes as soon as they are finished."""


class Sampler(Protocol):
    """Plays episodes of one model."""

    def play(
        self, choice: EnvironmentChoice, units: Sequence[Sequence[Job]], starts: Mapping[str, Start], done: Done
    ) -> None:
        """Play all jobs.

        Args:
            choice: the environment.
            units: the jobs; those of a unit are sampled together where the model samples batches.
            starts: what an episode on each task is reset to.
            done: called with finished episodes.

        Raises:
            UsageError: if it can't go on. What `done` has been given stays.
        """

    def close(self) -> None:
        """Give back what is held."""
