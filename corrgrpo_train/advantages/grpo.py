"""GRPO: the total reward, standardised within its group."""

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.groups import TINY
from corrgrpo_train.advantages.options import check_non_negative
from corrgrpo_train.advantages.registry import register

EPSILON = 1e-6


@register("grpo", per_group=True)
def grpo(batch: Batch, *, epsilon: float = EPSILON) -> Tensor:
    """GRPO: A_i = t_i / (std(total) + ε), the total reward standardised within its group.

    t_i = Σ_l w_l (R_il − mean_l); the weights enter in the total, before anything else. ddof 1, ε = 1e-6
    outside the root. Source: arXiv 2402.03300, Section 4.1.2; ddof and ε as in verl's `grpo`. A group of one
    gets 0.

    The same name elsewhere:
        - TRL (`scale_rewards="group"`): the same with `epsilon=1e-4`.
        - verl: the same, but a group of one gets its raw reward, and with `norm_adv_by_std_in_grpo=False` it
          is our `dr_grpo`.

    Args:
        batch: the scored rows.
        epsilon: added to the standard deviation.
    """
    check_non_negative(epsilon=epsilon)
    denominator = batch.groups.std(batch.centred_total) + epsilon
    return batch.centred_total / batch.groups.spread(denominator.clamp(min=TINY))
