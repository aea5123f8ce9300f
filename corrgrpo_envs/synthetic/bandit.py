"""`CorrelatedBandit`: a bandit of K reward components of chosen correlation, scale, noise and difficulty.

An episode is one answer, an answer names an arm, and scoring costs microseconds: whatever a multi-reward
method does with correlated, opposed or unequally scaled components can be studied here in seconds.
"""

import math
import string
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
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
    −3 scales (with a difficulty: 0), and the status `no_arm`.

    With a `difficulty` components are pass or fail, like those of most tasks: one pays its scale where the arm's
    normal value, noise included, exceeds the difficulty's quantile, else nothing. Of all arms the share
    `difficulty` fails. The normal values have the chosen correlations, what they pay has smaller ones.

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
        difficulty: float | Sequence[float] | None = None,
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
            difficulty: share of arms that fail a component, above 0 and below 1: one number, or one per component.
                None pays the values themselves.
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
        self.thresholds = None if difficulty is None else _thresholds(difficulty, count)
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
                    low=-REACH * scale if difficulty is None else 0.0,
                    high=REACH * scale if difficulty is None else scale,
                    description=f"component {k} of the arm's rewards, of scale {scale:g}",
                )
                for k, scale in enumerate(self.scales, 1)
            ],
        )

    def load_tasks(self) -> TaskSet[Rows]:
        """The built-in tasks of the split; `data` are the arms' levels, normal values times scales, shape (arms, K)."""
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
                for arm, means in zip(self.arms, self.means(np.array(task.data)), strict=True)
            ]
        return Opening([Message(role="user", content="\n".join(lines))])

    def answer(self, text: str) -> Outcome:
        """Pull the arm that the text names."""
        arm = self._arm(text)
        if arm is None:
            return Outcome({c.name: c.low for c in self.reward_spec}, status="no_arm")
        normal = self.np_random.standard_normal(len(self.scales)) if self.noise > 0 else np.zeros(len(self.scales))
        values = self.pay(np.array(self.task.data[arm]), normal)
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

    def pay(self, levels: NDArray[np.float64], normal: NDArray[np.float64]) -> NDArray[np.float64]:
        """What pulls pay, shape (…, K).

        Args:
            levels: of the arms pulled, from a task's `data`, shape (…, K).
            normal: independent standard normal numbers, shape (…, K).
        """
        scales = np.array(self.scales)
        values: NDArray[np.float64] = levels
        if self.noise > 0:
            values = values + self.noise * scales * (normal @ _square_root(self.correlation))
        if self.thresholds is None:
            paid: NDArray[np.float64] = np.clip(values, -REACH * scales, REACH * scales)
            return paid
        return np.where(values > np.array(self.thresholds) * scales, scales, 0.0)

    def means(self, levels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means of arms of these levels, shape (…, K); what clipping takes off noisy values is not counted."""
        if self.thresholds is None:
            return levels
        scales, above = np.array(self.scales), levels - np.array(self.thresholds) * np.array(self.scales)
        if self.noise == 0:
            return np.where(above > 0, scales, 0.0)
        return scales * _normal_distribution(above / (self.noise * scales))

    def _arm(self, text: str) -> int | None:
        words = text.split(maxsplit=1)
        name = words[0].strip(_PUNCTUATION) if words else ""
        return self.arms.index(name) if name in self.arms else None

    def _totals(self) -> list[float]:
        weights = [component.weight for component in self.reward_spec]
        return [
            math.fsum(weight * mean for weight, mean in zip(weights, means, strict=True))
            for means in self.means(np.array(self.task.data)).tolist()
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


def _normal_distribution(values: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = np.vectorize(NormalDist().cdf, otypes=[np.float64])(values)
    return shares


def _thresholds(difficulty: float | Sequence[float], count: int) -> tuple[float, ...]:
    shares = tuple(difficulty) if isinstance(difficulty, Sequence) else (difficulty,) * count
    numbers = all(isinstance(share, int | float) and not isinstance(share, bool) for share in shares)
    if len(shares) != count or not numbers or not all(0 < share < 1 for share in shares):
        raise ValueError(
            f"difficulty must be a number above 0 and below 1, or {count} of them, one per component, "
            f"not {shown(difficulty)}"
        )
    return tuple(NormalDist().inv_cdf(share) for share in shares)


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
