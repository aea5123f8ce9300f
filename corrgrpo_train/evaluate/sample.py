"""`Sample`: one scored episode as it is written down, and `Job`: one that is to be played."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.errors import shown
from corrgrpo_train.rollout.episode import Episode

Key = tuple[str, str, int]
"""Environment, task and number of the sample."""


@dataclass(frozen=True, slots=True)
class Job:
    """An episode to play.

    Attributes:
        environment: short name.
        task: id, or `seed:N` where the environment has no list of tasks.
        index: number of the task in its environment; it seeds the episode's sampling.
        sample: number of the sample of the task, 0, 1, …
    """

    environment: str
    task: str
    index: int
    sample: int

    @property
    def key(self) -> Key:
        """What identifies the episode."""
        return self.environment, self.task, self.sample


@dataclass(frozen=True, slots=True)
class Sample:
    """A played episode.

    Attributes:
        environment, task, sample: which one.
        status: the environment's, or `environment_error`, or `request_failed`.
        reward: weighted sum of the components, summed over the steps; nan where it could not be scored.
        components: raw reward components, summed over the steps; empty where nothing was scored.
        weights: the components' weights.
        metrics: the environment's further numbers.
        texts: what the model wrote, one text a turn.
        truncated: the episode was cut off.
        tokens: number of tokens that the model wrote; None where nobody says.
        error: why the episode could not be played to its end; None if it could.
    """

    environment: str
    task: str
    sample: int
    status: str
    reward: float
    components: Mapping[str, float]
    weights: Mapping[str, float]
    metrics: Mapping[str, float]
    texts: tuple[str, ...]
    truncated: bool
    tokens: int | None
    error: str | None

    @property
    def key(self) -> Key:
        """What identifies the episode."""
        return self.environment, self.task, self.sample

    @property
    def scored(self) -> bool:
        """Whether no component of a weight other than 0 is missing."""
        return bool(self.components) and not any(
            math.isnan(value) for name, value in self.components.items() if self.weights.get(name) != 0
        )

    def info(self) -> dict[str, Any]:
        """The episode as the metrics of environments read it: like the info of its last step."""
        return {
            "task_id": self.task,
            "status": self.status,
            "reward": self.reward,
            "reward_components": dict(self.components),
            "metrics": dict(self.metrics),
        }

    def row(self) -> dict[str, Any]:
        """The episode as JSON values."""
        return {
            "environment": self.environment,
            "task": self.task,
            "sample": self.sample,
            "status": self.status,
            "reward": _null(self.reward),
            "components": {name: _null(value) for name, value in self.components.items()},
            "weights": dict(self.weights),
            "metrics": {name: _null(value) for name, value in self.metrics.items()},
            "texts": list(self.texts),
            "truncated": self.truncated,
            "tokens": self.tokens,
            "error": self.error,
        }


def sample_of(job: Job, episode: Episode, tokens: int | None) -> Sample:
    """Write a played episode down."""
    return Sample(
        *job.key,
        status=episode.status,
        reward=episode.reward,
        components=episode.components,
        weights=episode.weights,
        metrics=episode.metrics,
        texts=tuple(episode.texts),
        truncated=episode.truncated,
        tokens=tokens,
        error=episode.error,
    )


def read_sample(row: Any) -> Sample:
    """Read a row again.

    Raises:
        ValueError: if it is none.
    """
    try:
        return Sample(
            environment=of_type(str, row["environment"]),
            task=of_type(str, row["task"]),
            sample=of_type(int, row["sample"]),
            status=of_type(str, row["status"]),
            reward=_nan(row["reward"]),
            components=_numbers(row["components"]),
            weights=_numbers(row["weights"]),
            metrics=_numbers(row["metrics"]),
            texts=tuple(of_type(str, text) for text in row["texts"]),
            truncated=of_type(bool, row["truncated"]),
            tokens=None if row["tokens"] is None else of_type(int, row["tokens"]),
            error=None if row["error"] is None else of_type(str, row["error"]),
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no sample: {type(error).__name__}: {error}") from None


def of_type(kind: type[Any], value: Any) -> Any:
    """The value, if it is of this type.

    Raises:
        TypeError: if it is of another.
    """
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{shown(value)} is not of type {kind.__name__}")
    return value


def _numbers(values: Any) -> dict[str, float]:
    return {of_type(str, name): _nan(value) for name, value in values.items()}


def _nan(value: Any) -> float:
    return math.nan if value is None else number(value)


def number(value: Any) -> float:
    """The value, if it is a finite number.

    Raises:
        TypeError: if it is none.
        OverflowError: if it is beyond all floats.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{shown(value)} is no finite number")
    return float(value)


def _null(value: float) -> float | None:
    """JSON has no numbers that are none."""
    return value if math.isfinite(value) else None
