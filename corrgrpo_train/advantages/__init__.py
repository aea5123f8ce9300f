"""Advantage estimators for rewards with several components: one file each, on plain tensors.

    from corrgrpo_train.advantages import estimate
    out = estimate("corrgrpo", components, groups, weights)
    out.advantages, out.diagnostics

The package imports torch and nothing else, so it can be lifted into any trainer. What each module holds:

- `corrgrpo`, `grpo`, `dr_grpo`, `rloo`, `mo_grpo`, `gdpo`, `corr_gdpo`, `rdpo` (our reconstruction), and the
  controls `matched` and `shuffled`: one estimator each.
- `batch`: what an estimator is given; `groups`: sums over groups without a loop.
- `inputs`: what callers may hand in; `options`: messages for wrong options.
- `estimation`: `estimate`, the way in; `diagnostics`: the numbers that go with every estimate.

To add an estimator, decorate a function that takes a `Batch` and returns one advantage per row; its
keyword-only parameters are its options. Wherever an estimator is named, the new name works:

    @register("centre_by_first")
    def centre_by_first(batch: Batch, *, scale: float = 1.0) -> Tensor: ...
"""

# Importing an estimator's module registers it.
from corrgrpo_train.advantages import (
    corr_gdpo,
    corrgrpo,
    dr_grpo,
    gdpo,
    grpo,
    matched,
    mo_grpo,
    rdpo,
    rloo,
    shuffled,
)
from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.estimation import Estimate, estimate
from corrgrpo_train.advantages.registry import ESTIMATORS, Estimator, register

__all__ = [
    "ESTIMATORS",
    "Batch",
    "Estimate",
    "Estimator",
    "corr_gdpo",
    "corrgrpo",
    "dr_grpo",
    "estimate",
    "gdpo",
    "grpo",
    "matched",
    "mo_grpo",
    "rdpo",
    "register",
    "rloo",
    "shuffled",
]
