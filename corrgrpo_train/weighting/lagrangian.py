"""Constraints on components, kept by multipliers: Safe RLHF's rule."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from corrgrpo_train.weighting.registry import register
from corrgrpo_train.weighting.rule import Rollout, Rule, State, Weights, mean, numbers_by_component, positive


def updated_log_multiplier(log_multiplier: float, violation: float, *, learning_rate: float, largest: float) -> float:
    """Log λ + α · λ · violation, at most log λ_max; the violation is positive where the constraint is broken."""
    return min(log_multiplier + learning_rate * math.exp(log_multiplier) * violation, math.log(largest))


def lagrangian_weights(
    base: Mapping[str, float], multipliers: Mapping[str, float], signs: Mapping[str, float]
) -> Weights:
    """Weights of (R + Σ_c s_c λ_c C_c) / (1 + Σ_c λ_c), R being the weighted sum of the unconstrained components."""
    scale = 1.0 + math.fsum(multipliers.values())
    return {
        name: (signs[name] * multipliers[name] if name in multipliers else weight) / scale
        for name, weight in base.items()
    }


@register("lagrangian")
@dataclass(frozen=True, kw_only=True)
class Lagrangian(Rule):
    """Maximise the unconstrained components, subject to means of the constrained ones.

    `at_least` and `at_most` give thresholds d by component. Every constraint has a multiplier λ. The effective
    weights are w / (1 + Σλ) for the unconstrained components and ±λ / (1 + Σλ) for the constrained ones, whose
    base weights have no influence (they may be 0: a cost that is measured only). After every rollout

        log λ ← min(log λ + α · λ · v, log λ_max),    v = C̄ − d (at most) or d − C̄ (at least)

    with C̄ the mean over the last `window` scored episodes. α = `learning_rate` = 0.1, λ = `start_at` = 1 at
    first, λ_max = `largest` = 5, window 128.
    Source: Safe RLHF, arXiv 2310.12773; constants of its published launcher. There the advantages of reward and
    cost are combined; here their weights are, and the estimator sees them.
    """

    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    start_at: float = 1.0
    learning_rate: float = 0.1
    largest: float = 5.0
    window: int = 128

    def __post_init__(self) -> None:
        numbers_by_component("at_least", self.at_least)
        numbers_by_component("at_most", self.at_most)
        positive(start_at=self.start_at, learning_rate=self.learning_rate, largest=self.largest)
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
            raise ValueError(f"option 'window' must be a whole number of episodes, at least 1, not {self.window!r}")
        if self.start_at > self.largest:
            raise ValueError(f"option 'start_at' ({self.start_at}) must not be above 'largest' ({self.largest})")
        if both := set(self.at_least) & set(self.at_most):
            raise ValueError(f"component {min(both)!r} has two thresholds: give at_least or at_most")
        if not self.names:
            raise ValueError(
                "weighting 'lagrangian' needs a threshold: give at_least or at_most, "
                'for example --weighting-args \'{"at_least": {"security": 0.9}}\''
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The constrained components."""
        return (*self.at_least, *self.at_most)

    def start(self) -> State:
        """Multipliers at their start, nothing seen."""
        return {
            "log_multipliers": dict.fromkeys(self.names, math.log(self.start_at)),
            "recent": {name: [] for name in self.names},
        }

    def weights(self, state: State, base: Mapping[str, float], step: int) -> Weights:
        """Weights of the Lagrangian."""
        signs = {name: 1.0 if name in self.at_least else -1.0 for name in self.names}
        return lagrangian_weights(base, self._multipliers(state), signs)

    def after_rollout(self, state: State, rollout: Rollout) -> State:
        """Move every multiplier by its violation."""
        recent = {name: self._windowed(state["recent"][name], rollout.components[name]) for name in self.names}
        return {
            "log_multipliers": {
                name: updated_log_multiplier(
                    log, self._violation(name, recent[name]), learning_rate=self.learning_rate, largest=self.largest
                )
                for name, log in state["log_multipliers"].items()
            },
            "recent": recent,
        }

    def measures(self, state: State) -> dict[str, float]:
        """Multipliers, and by how much each constraint is broken (negative: kept)."""
        found = {f"multiplier/{name}": value for name, value in self._multipliers(state).items()}
        seen = {name: values for name, values in state["recent"].items() if values}
        return {**found, **{f"violation/{name}": self._violation(name, values) for name, values in seen.items()}}

    def _multipliers(self, state: State) -> dict[str, float]:
        return {name: math.exp(log) for name, log in state["log_multipliers"].items()}

    def _windowed(self, before: Sequence[float], values: Sequence[float]) -> list[float]:
        return [*before, *(value for value in values if not math.isnan(value))][-self.window :]

    def _violation(self, name: str, recent: Sequence[float]) -> float:
        if not recent:
            return 0.0
        return self.at_least[name] - mean(recent) if name in self.at_least else mean(recent) - self.at_most[name]
