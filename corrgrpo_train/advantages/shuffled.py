"""A control: CorrGRPO with its factors dealt to the wrong groups."""

import torch
from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.corrgrpo import MIN_CORRELATION_SUM
from corrgrpo_train.advantages.corrgrpo import denominator as corrgrpo_denominator
from corrgrpo_train.advantages.registry import register


@register("shuffled")
def shuffled(
    batch: Batch,
    *,
    seed: int | torch.Generator = 0,
    epsilon: float = 1e-6,
    min_correlation_sum: float = MIN_CORRELATION_SUM,
    paper_exact: bool = False,
) -> Tensor:
    """Assignment control: CorrGRPO with the factors 1 / sqrt(max(Q, q_min) + ε) permuted among the groups.

    The batch has the same factors, in other groups: does it matter *which* group gets which? Groups without a
    signal take no part, so that their factors, which mean nothing, do not reach groups that learn. Groups are
    permuted in the order of their labels: the order of rows has no influence. ddof, ε and weights as in
    `corrgrpo`.
    Source: our own.

    Args:
        batch: the scored rows.
        seed: of the permutation. An integer gives the same permutation at every call: pass another one at
            each step, or a CPU `torch.Generator`, which moves on by itself.
        epsilon: as in `corrgrpo`.
        min_correlation_sum: as in `corrgrpo`.
        paper_exact: as in `corrgrpo`.
    """
    divisor = corrgrpo_denominator(
        batch, epsilon=epsilon, min_correlation_sum=min_correlation_sum, paper_exact=paper_exact
    )
    dealt = batch.has_signal.nonzero().squeeze(1)
    order = torch.randperm(len(dealt), generator=_generator(seed), device="cpu")
    divisor = divisor.index_copy(0, dealt, divisor[dealt[order]])
    return batch.centred_total / batch.groups.spread(divisor)


def _generator(seed: int | torch.Generator) -> torch.Generator:
    if isinstance(seed, torch.Generator) and seed.device.type == "cpu":
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"option 'seed' must be an integer from 0 to 2**63 - 1 or a CPU torch.Generator, not {seed!r}")
    return torch.Generator("cpu").manual_seed(seed)
