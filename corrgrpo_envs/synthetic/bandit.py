"""`CorrelatedBandit`: a bandit of K reward components with a chosen correlation matrix and chosen scales.

An episode is one answer, an answer names an arm, and scoring costs microseconds: whatever a multi-reward
method does with correlated, opposed or unequally scaled components can be studied here in seconds.
"""

import math
import string
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from corrgrpo_envs.env import Message, MultiRewardEnv, Opening, Outcome
from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.rewards import RewardComponent
from corrgrpo_envs.tasks import Task, TaskSet, drawn_split

Rows: TypeAlias = tuple[tuple[float, ...], ...]

TASKS = 64
REACH = 3.0  # values lie within this many scales of 0
_PUNCTUATION = ".,:;!?()[]{}\"'`*"


class CorrelatedBandit(MultiRewardEnv):
    """A text bandit: name an arm, get its K rewards.

    The means of every arm are drawn once per task, from the task's number as the seed: a normal vector with
    the chosen correlation matrix, times the scales, clipped at 3 scales. The arm is the first word of the
    answer, less punctuation: `A`, `B`, … An answer that names none gets the worst value of every component,
    −3 scales, and the status `no_arm`.

    Components are called `reward_1` … `reward_K`. Metrics: `best_arm`, 1 if no arm has a larger weighted
    mean, and `regret`, the difference to it (both only where an arm was named).
    """

    metric_names = ("best_arm", "regret")

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str = "builtin",
        reward_weights: Mapping[str, float] | None = None,
        render_mode: str | None = None,
        components: int = 3,
        correlation: float | Sequence[Sequence[float]] = 0.0,
        scales: Sequence[float] | None = None,
        arms: int = 8,
        noise: float = 0.0,
        show_means: bool = False,
    ) -> None:
        """Make a bandit.

        Args:
            split: one of the splits; the 64 tasks are divided by a hash of their ids.
            dataset: only `"builtin"`.
            reward_weights: weights by component name; 1 each by default.
            render_mode: None or `"ansi"`.
            components: K, at least 1.
            correlation: of every pair of components, or a K × K correlation matrix.
            scales: standard deviation of each component over arms and tasks, K positive numbers; 1 each by
                default.
            arms: 1 to 26.
            noise: standard deviation of the noise of a pull, in scales; the noise has the same correlations.
                0 makes an arm's rewards constant.
            show_means: whether the prompt lists every arm's means; without them a policy must find the arms
                out by trying, and can't know those of a task that it has never seen.

        Raises:
            ValueError: for an option outside its range.
        """
        if dataset != "builtin":
            raise unknown("dataset", dataset, ["builtin"])
        count = _whole("components", components, 1, 1000)
        self.arms = tuple(string.ascii_uppercase[: _whole("arms", arms, 1, 26)])
        self.scales = _scales(scales, count)
        self.noise = _at_least_zero("noise", noise)
        self.correlation = _correlation_matrix(correlation, count)
        if not isinstance(show_means, bool):
            raise ValueError(f"show_means must be True or False, not {shown(show_means)}")
        self.show_means = show_means
        super().__init__(
            split=split,
            dataset=dataset,
            reward_weights=reward_weights,
            render_mode=render_mode,
            components=[
                RewardComponent(
                    f"reward_{k}",
                    low=-REACH * scale,
                    high=REACH * scale,
                    description=f"component {k} of the arm's rewards, of scale {scale:g}",
                )
                for k, scale in enumerate(self.scales, 1)
            ],
        )

    def load_tasks(self) -> TaskSet[Rows]:
        """The 64 built-in tasks of the split; `data` are the arms' means, shape (arms, K)."""
        return _tasks(self.split, len(self.arms), self.correlation, self.scales)

    def open(self, task: Task[Rows]) -> Opening:
        """Name the machine and its arms."""
        lines = [
            f"Machine {task.id} has the arms {', '.join(self.arms)}.",
            f"Every arm pays {len(self.reward_spec)} rewards. Answer with the letter of the arm to pull.",
        ]
        if self.show_means:
            lines += [
                f"{arm}: " + ", ".join(f"{mean:.2f}" for mean in means)
                for arm, means in zip(self.arms, task.data, strict=True)
            ]
        return Opening([Message(role="user", content="\n".join(lines))])

    def answer(self, text: str) -> Outcome:
        """Pull the arm that the text names."""
        arm = self._arm(text)
        if arm is None:
            return Outcome({c.name: c.low for c in self.reward_spec}, status="no_arm")
        values = np.array(self.task.data[arm])
        if self.noise > 0:
            reach = REACH * np.array(self.scales)
            normal = _square_root(self.correlation) @ self.np_random.standard_normal(len(self.scales))
            values = np.clip(values + self.noise * np.array(self.scales) * normal, -reach, reach)
        totals = self._totals()
        regret = max(totals) - totals[arm]
        return Outcome(
            dict(zip(self.reward_spec.names, values.tolist(), strict=True)),
            metrics={"best_arm": float(regret == 0), "regret": regret},
        )

    def reference(self) -> tuple[str, ...]:
        """The arm with the largest weighted sum of means; the first of equals."""
        totals = self._totals()
        return (self.arms[totals.index(max(totals))],)

    def _arm(self, text: str) -> int | None:
        words = text.split(maxsplit=1)
        name = words[0].strip(_PUNCTUATION) if words else ""
        return self.arms.index(name) if name in self.arms else None

    def _totals(self) -> list[float]:
        weights = [component.weight for component in self.reward_spec]
        return [
            math.fsum(weight * mean for weight, mean in zip(weights, means, strict=True)) for means in self.task.data
        ]


@lru_cache(maxsize=64)
def _tasks(split: str, arms: int, correlation: Rows, scales: tuple[float, ...]) -> TaskSet[Rows]:
    """All tasks; cached, since every environment with the same options has the same ones."""
    root, scale = _square_root(correlation), np.array(scales)
    tasks = []
    for seed in range(TASKS):
        normal = np.random.default_rng(seed).standard_normal((arms, len(scales)))
        means = np.clip(normal @ root, -REACH, REACH) * scale
        task_id = f"bandit-{seed:02d}"
        tasks.append(Task(task_id, drawn_split(task_id), tuple(map(tuple, means.tolist()))))
    return TaskSet(tasks, split, "CorrelatedBandit")


@lru_cache(maxsize=64)
def _square_root(correlation: Rows) -> NDArray[np.float64]:
    """The symmetric square root of a correlation matrix, shape (K, K).

    It exists for singular matrices (correlation 1) too, and, unlike other factors, there is only one.
    """
    values, vectors = np.linalg.eigh(np.array(correlation))
    root: NDArray[np.float64] = (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
    root.flags.writeable = False
    return root


def _correlation_matrix(correlation: object, count: int) -> Rows:
    form = f"a number or a {count} × {count} correlation matrix (symmetric, ones on the diagonal)"
    try:
        matrix = np.array(correlation, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"correlation must be {form}, not {shown(correlation)}") from None
    if matrix.ndim == 0:
        matrix = np.where(np.eye(count) == 1, 1.0, matrix)
    if matrix.shape != (count, count) or not np.isfinite(matrix).all():
        raise ValueError(f"correlation must be {form}, not {shown(correlation)}")
    if not (np.array_equal(matrix, matrix.T) and (np.diag(matrix) == 1).all() and (abs(matrix) <= 1).all()):
        raise ValueError(f"correlation must be {form}, not {shown(correlation)}")
    if np.linalg.eigvalsh(matrix).min() < -1e-9:
        least = f"; a number must be at least -1/{count - 1}" if np.ndim(correlation) == 0 else ""  # type: ignore[arg-type]
        raise ValueError(f"no {count} rewards have the correlations {shown(correlation)}{least}")
    return tuple(map(tuple, matrix.tolist()))


def _scales(scales: Sequence[float] | None, count: int) -> tuple[float, ...]:
    if scales is None:
        return (1.0,) * count
    numbers = tuple(_at_least_zero("a scale", scale) for scale in scales) if isinstance(scales, Sequence) else ()
    if len(numbers) != count or not all(numbers):
        raise ValueError(f"scales must be {count} positive numbers, one per component, not {shown(scales)}")
    return numbers


def _at_least_zero(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{what} must be a finite number, at least 0, not {shown(value)}")
    return float(value)


def _whole(what: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{what} must be a whole number from {low} to {high}, not {shown(value)}")
    return value
