"""`Weighting`: the state of a run's rule, and its weights put to use."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from corrgrpo_envs.errors import unknown
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.weighting.rule import Rollout, Rule, State, Weights, mean


class Weighting:
    """What the trainer holds: a rule and what it remembers.

    Attributes:
        base: the environment's weights as last seen; empty before the first rollout or validation.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule, self.base = rule, dict[str, float]()
        self._state: State = rule.start()

    def weigh(self, episodes: Sequence[Episode], step: int) -> dict[str, float]:
        """Give every episode the step's effective weights and return what is to be logged of them.

        An episode's `weights` become the effective ones; its `reward` stays what the environment paid, under the
        base weights. Episodes that the environment failed to score are passed over.

        Raises:
            UsageError: if the environment's weights changed or lack a component that the rule names, or the rule
                gave weights that are none.
        """
        scored = [episode for episode in episodes if episode.components]
        if not scored:
            return {}
        self.base = _common_weights(scored)
        check_components(self.rule, self.base)
        effective = self._effective(step)
        for episode in scored:
            episode.weights = dict(effective)
        totals = (
            math.fsum(effective[name] * value for name, value in episode.components.items() if effective[name])
            for episode in scored
        )
        return {
            **{f"weights/base/{name}": weight for name, weight in self.base.items()},
            **{f"weights/effective/{name}": weight for name, weight in effective.items()},
            **{f"weights/{name}": value for name, value in self.rule.measures(self._state).items()},
            "reward/effective_mean": mean(totals),
        }

    def after_rollout(
        self,
        episodes: Sequence[Episode],
        learning_rate: float,
        products: Callable[[tuple[int, int] | None], Mapping[str, float]],
    ) -> None:
        """Show the rule a rollout, between `weigh` and the update; arguments as in `Rollout`."""
        scored = [episode for episode in episodes if episode.components]
        if scored:
            components = {name: [episode.components[name] for episode in scored] for name in self.base}
            self._state = self.rule.after_rollout(
                self._state, Rollout(dict(self.base), components, learning_rate, products)
            )

    def after_validation(self, episodes: Sequence[Episode], results: Mapping[str, float], step: int) -> None:
        """Show the rule a validation: its episodes, which carry base weights, and its means `components/NAME`."""
        scored = [episode for episode in episodes if episode.components]
        if scored:
            base = _common_weights(scored)
            means = {name: results.get(f"components/{name}", math.nan) for name in base}
            self._state = self.rule.after_validation(self._state, base, means, step)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold: JSON data."""
        return self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checkpoint's state over.

        Raises:
            ValueError: if it is not one of this rule.
        """
        if set(state) != set(self._state):
            raise ValueError(f"the weighting's state must have {sorted(self._state)}, not {sorted(state)}")
        self._state = dict(state)

    def _effective(self, step: int) -> Weights:
        weights = self.rule.weights(self._state, self.base, step)
        if set(weights) != set(self.base) or not all(map(math.isfinite, weights.values())):
            raise UsageError(
                f"weighting {type(self.rule).__name__} must give a finite weight to each of {sorted(self.base)}, "
                f"not {weights}"
            )
        return {name: float(weights[name]) for name in self.base}


def check_components(rule: Rule, names: Iterable[str]) -> None:
    """Check that the components that a rule's options speak of are there.

    Raises:
        UsageError: naming the first that is not, and the nearest.
    """
    known = list(names)
    for name in rule.names:
        if name not in known:
            raise UsageError(f"weighting_args: {unknown('component', name, known)}")


def _common_weights(episodes: Sequence[Episode]) -> Weights:
    weights = episodes[0].weights
    if any(episode.weights != weights for episode in episodes):
        raise UsageError("the environment's reward_weights differ between episodes; they must stay as made")
    return dict(weights)
