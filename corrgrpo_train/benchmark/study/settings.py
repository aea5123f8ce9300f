"""The conditions of the study: bandits that differ in one thing from a base, optimisers, and learning rates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TUNED = ("corrgrpo", "grpo", "gdpo", "mo_grpo", "dr_grpo")
"""Methods that each get the learning rate that suits them best."""
CONTROLS = ("matched", "shuffled")
"""They are CorrGRPO with one thing changed, and run at its learning rate."""

LEARNING_RATES = {
    "sgd": (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0),
    "adamw": (0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
}
"""What is tried, by optimiser."""
TUNING_SEEDS = tuple(range(1000, 1008))
"""Learning rates are chosen on these and compared on others."""
SEEDS = tuple(range(32))
STEPS = 150
KL = 0.2
"""The coefficient where the divergence is on."""
GUARDS = (0.0, 0.01, 0.05, 0.1, 0.3, 1.0)
"""Values of q_min = min_correlation_sum."""


@dataclass(frozen=True, eq=False)
class Condition:
    """A bandit, and a size of groups.

    Attributes:
        name: what differs from the base.
        env_args: arguments of `CorrelatedBandit` beside `noise`.
        weights: reward weights by component where they are not 1.
        group_size: pulls per group.
    """

    name: str
    env_args: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    group_size: int = 8

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the table policy."""
        return {
            "steps": STEPS,
            "groups_per_step": 8,
            "group_size": self.group_size,
            "env_args": {"components": 3, "correlation": 0.3, "noise": 0.5, **self.env_args},
            **({"reward_weights": dict(self.weights)} if self.weights else {}),
        }


def _opposed(correlation: float, **further: Any) -> Condition:
    kind = "pass/fail, " if further else ""
    return Condition(
        f"{kind}2 opposed, correlation {correlation:g}, weights 1 and 0.6",
        {"components": 2, "correlation": correlation, **further},
        {"reward_2": 0.6},
    )


CONDITIONS = (
    Condition("base: 3 components, correlation 0.3, equal scales, groups of 8"),
    Condition("correlation -0.45", {"correlation": -0.45}),
    Condition("correlation 0", {"correlation": 0.0}),
    Condition("correlation 0.6", {"correlation": 0.6}),
    Condition("correlation 0.9", {"correlation": 0.9}),
    Condition("scale of one 0.2", {"scales": [1.0, 1.0, 0.2]}),
    Condition("scale of one 5", {"scales": [1.0, 1.0, 5.0]}),
    Condition("pass/fail, half pass", {"difficulty": 0.5}),
    Condition("pass/fail, 20 % pass", {"difficulty": 0.8}),
    Condition("pass/fail, 5 % pass", {"difficulty": 0.95}),
    Condition("pass/fail, 70, 30 and 5 % pass", {"difficulty": [0.3, 0.7, 0.95]}),
    Condition("the same, scale of the hardest 5", {"difficulty": [0.3, 0.7, 0.95], "scales": [1.0, 1.0, 5.0]}),
    Condition("5 components", {"components": 5}),
    Condition("8 components", {"components": 8}),
    Condition("groups of 4", group_size=4),
    Condition("groups of 16", group_size=16),
    _opposed(-0.9),
)
_NAMED = {condition.name.partition(":")[0]: condition for condition in CONDITIONS}
WITH_KL = (_NAMED["base"], _NAMED["scale of one 5"], _NAMED["pass/fail, 70, 30 and 5 % pass"])
"""Conditions that are run with the divergence as well."""

GUARD_CONDITIONS = (
    _NAMED["base"],
    _NAMED["correlation -0.45"],
    _NAMED["pass/fail, 70, 30 and 5 % pass"],
    Condition("5 components, correlation -0.2", {"components": 5, "correlation": -0.2}),
    CONDITIONS[-1],
    _opposed(-0.99),
    _opposed(-0.9, difficulty=0.5),
)
"""Where rewards oppose each other the guard acts; elsewhere it should not."""


@dataclass(frozen=True)
class Panel:
    """A condition under an optimiser, with or without the divergence.

    Attributes:
        condition: the bandit.
        optimizer: "sgd" or "adamw".
        kl: coefficient of the divergence.
    """

    condition: Condition
    optimizer: str
    kl: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the table policy."""
        return {**self.condition.settings, **({"kl_coefficient": self.kl} if self.kl else {})}


PANELS = tuple(
    [Panel(condition, optimizer) for optimizer in LEARNING_RATES for condition in CONDITIONS]
    + [Panel(condition, optimizer, KL) for optimizer in LEARNING_RATES for condition in WITH_KL]
)
