"""RLOO: the total reward less the mean of the others in its group."""

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.registry import register


@register("rloo", per_group=True)
def rloo(batch: Batch) -> Tensor:
    """RLOO: A_i = total_i − mean of the group's other totals, which equals t_i · n / (n − 1).

    No ddof, no ε; the weights enter in the total; n counts the rows that were scored. Source: arXiv
    2402.14740. A group of one has no others and gets 0. The same elsewhere: verl `rloo` (a group of one keeps
    its raw reward there).
    """
    return batch.centred_total * batch.groups.spread(batch.groups.sizes / batch.groups.freedom)
