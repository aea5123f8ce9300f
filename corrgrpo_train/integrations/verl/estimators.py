"""The estimators of `corrgrpo_train.advantages` in verl's registry.

    algorithm.adv_estimator=corrgrpo

Names that verl has for mathematics of its own (`grpo`, `gdpo`, `rloo`) stay verl's; ours are `component_grpo` and so
on.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

from corrgrpo_train.advantages import ESTIMATORS, estimate
from corrgrpo_train.integrations.verl.components import BatchComponents, carried_components
from corrgrpo_train.integrations.verl.names import verl_name

VerlEstimator = Callable[..., tuple[Tensor, Tensor]]


def registered() -> dict[str, str]:
    """Name in verl's registry to our estimator's name, for every estimator that is ours."""
    return {verl_name(name): name for name in ESTIMATORS}


def register_estimators() -> None:
    """Put every estimator of `ESTIMATORS` that is not there yet into verl's registry.

    Raises:
        ValueError: if another project has registered the name.
    """
    for theirs, ours in registered().items():
        known = ADV_ESTIMATOR_REGISTRY.get(theirs)
        if getattr(known, "estimator", None) != ours:
            register_adv_est(theirs)(verl_estimator(ours))


def verl_estimator(name: str) -> VerlEstimator:
    """Our estimator `name` as a function of verl's form."""

    def compute(
        token_level_rewards: Tensor,
        response_mask: Tensor,
        index: Any = None,
        config: Any = None,
        non_tensor_batch: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[Tensor, Tensor]:
        """Advantages of a batch.

        Args:
            token_level_rewards: not read: the components are what the rewards are made of.
            response_mask: shape (N, T), 1 where the policy sampled the token.
            index: shape (N,), labels of groups.
            config: verl's settings of the algorithm; not read.
            non_tensor_batch: the batch's other fields, for a verl that hands them on.

        Returns:
            Advantages and returns, both shape (N, T): a row's advantage at its sampled tokens, 0 elsewhere.

        Raises:
            ValueError: if there are no components or groups, or the estimator refuses them.
        """
        batch = carried_components()
        if batch is None and non_tensor_batch is not None:
            batch = BatchComponents.of_batch(non_tensor_batch)
        if batch is None:
            raise ValueError(
                f"estimator {verl_name(name)!r} needs the reward components, which verl's own trainers do not fetch: "
                "set trainer.v1.trainer_mode=corrgrpo"
            )
        if index is None:
            raise ValueError(f"estimator {verl_name(name)!r} needs the groups of the batch ('uid')")
        advantages = _advantages(name, batch, index, response_mask)
        spread = advantages.unsqueeze(-1) * response_mask
        return spread, spread

    compute.estimator = name  # type: ignore[attr-defined]
    return compute


def _advantages(name: str, batch: BatchComponents, index: Any, response_mask: Tensor) -> Tensor:
    """Shape (N,), float32, on the mask's device."""
    rows = len(response_mask)
    if len(batch.values) != rows:
        raise ValueError(f"there are reward components for {len(batch.values)} rows, but {rows} rows in the batch")
    if not batch.names:  # nothing was scored
        return torch.zeros(rows, dtype=torch.float32, device=response_mask.device)
    real = batch.real
    _, groups = np.unique(np.asarray(index, dtype=object).astype(str)[real.numpy()], return_inverse=True)
    result = estimate(
        name,
        batch.values[real],
        torch.from_numpy(np.asarray(groups).reshape(-1)),
        batch.weights,
        lengths=response_mask.sum(-1).cpu()[real],
        **batch.options,
    )
    batch.diagnostics = result.diagnostics
    advantages = torch.zeros(rows, dtype=torch.float32)
    advantages[real] = result.advantages
    return advantages.to(response_mask.device)
