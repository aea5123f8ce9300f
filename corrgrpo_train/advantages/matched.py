"""A control: Dr. GRPO with CorrGRPO's mean step size."""

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.corrgrpo import MIN_CORRELATION_SUM, corrgrpo
from corrgrpo_train.advantages.groups import TINY
from corrgrpo_train.advantages.registry import register


@register("matched")
def matched(
    batch: Batch,
    *,
    epsilon: float = 1e-6,
    min_correlation_sum: float = MIN_CORRELATION_SUM,
    paper_exact: bool = False,
) -> Tensor:
    """Step-size control: A_i = s · t_i, with s so that the batch's mean |A| equals CorrGRPO's.

    CorrGRPO changes how large advantages are and how they are shared out among groups. This changes only the
    first: one s for the whole batch. If CorrGRPO does no better than `matched`, a learning rate would have
    done. ddof, ε and weights as in `corrgrpo`. Source: our own.

    Args:
        batch: the scored rows.
        epsilon: as in `corrgrpo`.
        min_correlation_sum: as in `corrgrpo`.
        paper_exact: as in `corrgrpo`.
    """
    target = corrgrpo(batch, epsilon=epsilon, min_correlation_sum=min_correlation_sum, paper_exact=paper_exact)
    own = batch.centred_total
    return own * (target.abs().mean() / own.abs().mean().clamp(min=TINY))
