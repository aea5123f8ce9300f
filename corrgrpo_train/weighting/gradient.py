"""More weight for components whose policy gradients agree with the others: gradient weighting."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corrgrpo_train.weighting.registry import register
from corrgrpo_train.weighting.rule import Rollout, Rule, State, Weights, positive

# A share that has fallen so far is as good as 0, and can still come back.
LOWEST = -30.0


def updated_log_shares(log_shares: Mapping[str, float], products: Mapping[str, float], rate: float) -> dict[str, float]:
    """Log of softmax(log share + rate · product), each at least −30."""
    moved = {name: log + rate * products.get(name, 0.0) for name, log in log_shares.items()}
    top = max(moved.values())
    normaliser = top + math.log(math.fsum(math.exp(log - top) for log in moved.values()))
    return {name: max(log - normaliser, LOWEST) for name, log in moved.items()}


@register("gradient")
@dataclass(frozen=True, kw_only=True)
class Gradient(Rule):
    """Shares w ← softmax(log w + η · s / μ), s_i = Σ_j ⟨g_i, g_j⟩, after every rollout.

    g_i is the policy gradient of the rollout under component i alone (the run's estimator with one component,
    no clipping), over the chosen layers; j runs over all components, i included. η is the learning rate, μ =
    `mu` = 1e-5. Effective weights are the shares times Σ|base|, with the base weights' signs; they begin as the
    base weights and their absolute sum stays. Components of base weight 0 take no part.

    `layers` = [first, last], counted from 0 and inclusive; None is layers 10 to 25 of 36 as published (for
    Qwen3-8B), or that part of the depth of another model. Per step it costs one forward pass more, a backward
    pass per component down to the lowest of these layers, and memory for one gradient of the layers per component.
    Source: arXiv 2509.11452, and its published code.
    """

    needs_gradients = True

    mu: float = 1e-5
    layers: Sequence[int] | None = None

    def __post_init__(self) -> None:
        positive(mu=self.mu)
        if self.layers is not None and not _is_range(self.layers):
            raise ValueError(f"option 'layers' must be [first, last], counted from 0, not {self.layers!r}")

    def start(self) -> State:
        """No shares yet: they begin as the base weights."""
        return {"log_shares": {}, "products": {}}

    def weights(self, state: State, base: Mapping[str, float], step: int) -> Weights:
        """Shares of the base weights' absolute sum."""
        if not state["log_shares"]:
            return dict(base)
        size = math.fsum(map(abs, base.values()))
        shares = {name: math.exp(log) for name, log in state["log_shares"].items()}
        return {name: math.copysign(size * shares[name], w) if name in shares else w for name, w in base.items()}

    def after_rollout(self, state: State, rollout: Rollout) -> State:
        """Move shares towards components that agree."""
        size = math.fsum(map(abs, rollout.base.values()))
        shares = state["log_shares"] or {name: math.log(abs(w) / size) for name, w in rollout.base.items() if w}
        if not shares:
            return state
        products = dict(rollout.products(None if self.layers is None else (self.layers[0], self.layers[1])))
        rate = rollout.learning_rate / self.mu
        return {"log_shares": updated_log_shares(shares, products, rate), "products": products}

    def measures(self, state: State) -> dict[str, float]:
        """The latest products."""
        return {f"product/{name}": value for name, value in state["products"].items()}


def _is_range(layers: object) -> bool:
    return (
        isinstance(layers, Sequence)
        and len(layers) == 2
        and all(isinstance(layer, int) and not isinstance(layer, bool) for layer in layers)
        and 0 <= layers[0] <= layers[1]
    )
