"""Dr. GRPO: the total reward less its group mean."""

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.registry import register


@register("dr_grpo", aliases=("centered",), per_group=True)
def dr_grpo(batch: Batch) -> Tensor:
    """Dr. GRPO: A_i = t_i = Σ_l w_l (R_il − mean_l), centred and not scaled.

    No ddof, no ε; the weights enter in the total. Source: arXiv 2503.20783. Only the advantage is meant: that
    paper's second change, the loss divided by a constant length, is the objective's aggregation.

    The same elsewhere: TRL `scale_rewards="none"`; verl `grpo` with `norm_adv_by_std_in_grpo=False`.
    """
    return batch.centred_total
