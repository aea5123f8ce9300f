"""`Sample`: one scored episode as it is written down, and `Job`: one that is to be played."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
            environment=_of(str, row["environment"]),
            task=_of(str, row["task"]),
            sample=_of(int, row["sample"]),
            status=_of(str, row["status"]),
            reward=_nan(row["reward"]),
            components=_numbers(row["components"]),
            weights=_numbers(row["weights"]),
            metrics=_numbers(row["metrics"]),
            texts=tuple(_of(str, text) for text in row["texts"]),
            truncated=_of(bool, row["truncated"]),
            tokens=None if row["tokens"] is None else _of(int, row["tokens"]),
            error=None if row["error"] is None else _of(str, row["error"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no sample: {type(error).__name__}: {error}") from None


def _of(kind: type[Any], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.60} is not of type {kind.__name__}")
    return value


def _numbers(values: Any) -> dict[str, float]:
    return {_of(str, name): _nan(value) for name, value in values.items()}


def _nan(value: Any) -> float:
    return math.nan if value is None else float(_of(int | float, value))  # type: ignore[arg-type]


def _null(value: float) -> float | None:
    """JSON has no numbers that are none."""
    return value if math.isfinite(value) else None
