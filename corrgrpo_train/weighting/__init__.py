"""Weights of reward components that change during a run: one rule a file, pure functions of a small state.

    weighting = Weighting(make_rule("lagrangian", {"at_least": {"security": 0.9}}))
    measures = weighting.weigh(episodes, step)      # before the estimate: the step's effective weights
    weighting.after_rollout(...)                    # after it: what the rule learns from the rollout
    weighting.after_validation(...)                 # and from a validation

- `fixed`, `schedule` (`linear`, `piecewise`), `lagrangian`, `hypervolume`, `gradient`: the rules.
- `rule`: what a rule is and what it is shown; `registry`: rules by name, and the decorator that adds one.
- `weighting`: the state of a run's rule, and its weights put to use.

The package imports neither torch nor the trainer. To add a rule, decorate a class derived from `Rule`; its
constructor's keyword-only parameters are its options:

    @register("fading")
    @dataclass(frozen=True, kw_only=True)
    class Fading(Rule):
        half_life: float = 100.0

        def weights(self, state, base, step):
            return {name: weight * 0.5 ** (step / self.half_life) for name, weight in base.items()}
"""

# Importing a rule's module registers it.
from corrgrpo_train.weighting import fixed, gradient, hypervolume, lagrangian, schedule
from corrgrpo_train.weighting.registry import WEIGHTINGS, make_rule, register
from corrgrpo_train.weighting.rule import Rollout, Rule
from corrgrpo_train.weighting.weighting import Weighting

__all__ = [
    "WEIGHTINGS",
    "Rollout",
    "Rule",
    "Weighting",
    "fixed",
    "gradient",
    "hypervolume",
    "lagrangian",
    "make_rule",
    "register",
    "schedule",
]
