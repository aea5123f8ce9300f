"""MO-GRPO: every component standardised within its group, then summed."""

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.groups import TINY
from corrgrpo_train.advantages.options import check_non_negative
from corrgrpo_train.advantages.registry import register


def weighted_scores(batch: Batch, epsilon: float) -> Tensor:
    """Weighted advantages of the single components, w_l (R_il − mean_l) / (std_l + ε), shape (M, L)."""
    denominator = (batch.std + epsilon).clamp(min=TINY)
    return batch.weights * batch.centred / batch.groups.spread(denominator)


@register("mo_grpo", per_group=True)
def mo_grpo(batch: Batch, *, epsilon: float = 1e-6) -> Tensor:
    """MO-GRPO: A_i = Σ_l w_l (R_il − mean_l) / (std_l + ε), every component standardised before the sum.

    ddof 1, ε = 1e-6; the weights enter after the standardisation. Source: arXiv 2509.22047, whose ddof, ε and
    weights we have not seen; this is GDPO without its last, batch-wide step.

    Args:
        batch: the scored rows.
        epsilon: added to each component's standard deviation.
    """
    check_non_negative(epsilon=epsilon)
    return weighted_scores(batch, epsilon).sum(dim=1)
