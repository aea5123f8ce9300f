"""CorrGRPO: GRPO with the spread of the total replaced by the correlation of its components.

For a prompt with n completions, r rewards R_il with weights w_l, and group means mean_l:

    t_i  = Σ_l w_l (R_il − mean_l)                    the centred total, as in GRPO
    z_il = (R_il − mean_l) / std_l                    each reward on its own scale; 0 where it does not vary
    Q    = Σ_l Σ_m sign(w_l) sign(w_m) corr(l, m)     the sum of all Pearson correlations
    A_i  = t_i / sqrt(max(Q, q_min) + ε)

GRPO divides by the standard deviation of the total, in which a reward counts by its variance: one reward of
large scale decides for all. Q is the variance that the total would have if every reward had unit variance, so
no reward's scale enters it: r for uncorrelated rewards, r² for r copies of one reward, 0 for two that oppose
each other.
"""

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.groups import TINY
from corrgrpo_train.advantages.options import check_flag, check_non_negative
from corrgrpo_train.advantages.registry import register

MIN_CORRELATION_SUM = 0.1
"""Our guard q_min: no group's advantages are more than sqrt(10) times the centred total."""


def correlation_sum(batch: Batch) -> Tensor:
    """Sum of all Pearson correlations of the components in each group, signed by their weights, shape (G,).

    Computed as the variance of the signed sum of z-scores, which is the same number: it needs no K × K
    product and cannot come out negative. A component that is constant in a group has no correlation, also
    none with itself.
    Source: arXiv 2609.36820, Eq. 2.
    """
    signed_scores = batch.standardised @ batch.weights.sign()
    return batch.groups.sum(signed_scores.square()) / batch.groups.freedom


def denominator(
    batch: Batch,
    *,
    epsilon: float = 1e-6,
    min_correlation_sum: float = MIN_CORRELATION_SUM,
    paper_exact: bool = False,
) -> Tensor:
    """What CorrGRPO divides each group by, sqrt(max(Q, q_min) + ε), shape (G,)."""
    check_non_negative(epsilon=epsilon, min_correlation_sum=min_correlation_sum)
    check_flag(paper_exact=paper_exact)
    smallest = 0.0 if paper_exact else min_correlation_sum
    return (correlation_sum(batch).clamp(min=smallest) + epsilon).sqrt().clamp(min=TINY)


@register("corrgrpo", per_group=True)
def corrgrpo(
    batch: Batch,
    *,
    epsilon: float = 1e-6,
    min_correlation_sum: float = MIN_CORRELATION_SUM,
    paper_exact: bool = False,
) -> Tensor:
    """CorrGRPO: A_i = t_i / sqrt(max(Q, q_min) + ε), Q the sum of all pairwise correlations.

    ddof 1 (it cancels in a correlation), ε = 1e-6 inside the root. The weights enter in t; of Q they decide
    the signs only. Within a group A is GRPO's times a positive factor: same signs, order and ratios. With one
    component it is Dr. GRPO's. Multiplying all rewards by a multiplies A by a: it is not free of scale.
    Source: arXiv 2609.36820, Eq. 2.

    The same elsewhere: `grpo_covariance_coefficient` in the published code is `paper_exact=True` there, but
    for its test of constancy (variance > 0 in float32), which takes constant decimals for varying ones. The
    paper prints ε outside the root; the difference is below 1e-6 of A wherever Q ≥ 1.

    Args:
        batch: the scored rows.
        epsilon: added to Q inside the root.
        min_correlation_sum: q_min. Rewards that oppose each other have Q near 0, and unless their weights are
            equal t stays, so the published form divides by 1e-3: advantages of ±200 where GRPO's are below 1.
            The default limits the factor to sqrt(10).
        paper_exact: take q_min = 0, whatever `min_correlation_sum` is.
    """
    divisor = denominator(batch, epsilon=epsilon, min_correlation_sum=min_correlation_sum, paper_exact=paper_exact)
    return batch.centred_total / batch.groups.spread(divisor)
