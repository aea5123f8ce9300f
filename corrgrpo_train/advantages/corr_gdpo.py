"""GDPO with CorrGRPO's denominator, over the whole batch."""

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.corrgrpo import MIN_CORRELATION_SUM
from corrgrpo_train.advantages.corrgrpo import denominator as corrgrpo_denominator
from corrgrpo_train.advantages.groups import Groups
from corrgrpo_train.advantages.mo_grpo import weighted_scores
from corrgrpo_train.advantages.options import check_non_negative
from corrgrpo_train.advantages.registry import register
from corrgrpo_train.advantages.whitening import whitening_by_name


@register("corr_gdpo")
def corr_gdpo(
    batch: Batch,
    *,
    whitening: str = "completions",
    component_epsilon: float | None = None,
    epsilon: float = 1e-6,
    min_correlation_sum: float = MIN_CORRELATION_SUM,
    paper_exact: bool = False,
) -> Tensor:
    """GDPO + CorrGRPO: A_i = (H_i − mean(H)) / sqrt(max(Q_B, q_min) + ε), with one Q_B for the whole batch.

    H_i = Σ_l Z_il is GDPO's, Z_il = w_l (R_il − mean_l) / (std_l + ε_l) with ddof 1 and ε_l = 1e-4; Q_B is
    the sum of all Pearson correlations of Z's columns over the batch's scored completions, ε = 1e-6 inside
    the root. The weights enter in Z. One factor for all groups: within a batch it is a rescaled GDPO.
    Source: arXiv 2609.36820, Appendix F.2.3.

    The same name elsewhere: `gdpo_covariance_coefficient` in the published code is `whitening="tokens",
    paper_exact=True`: mean(H) over tokens, ε_l = 1e-6, completions without a token left out of Q_B.

    Args:
        batch: the scored rows.
        whitening: over what mean(H) is taken: `"completions"`, or `"tokens"`, which needs `lengths`.
        component_epsilon: ε_l; None is 1e-4 with completions, 1e-6 with tokens.
        epsilon: added to Q_B inside the root.
        min_correlation_sum: q_min, as in `corrgrpo`.
        paper_exact: take q_min = 0, whatever `min_correlation_sum` is.
    """
    over = whitening_by_name(whitening)
    component_epsilon = over.component_epsilon if component_epsilon is None else component_epsilon
    check_non_negative(component_epsilon=component_epsilon)
    scores = weighted_scores(batch, component_epsilon)

    counted = scores[over.counts(batch) > 0]
    one_group = Groups(batch.groups.index.new_zeros(len(counted)), 1)
    denominator = corrgrpo_denominator(
        Batch(counted, batch.weights.new_ones(len(batch.weights)), one_group),  # the weights' signs are in Z already
        epsilon=epsilon,
        min_correlation_sum=min_correlation_sum,
        paper_exact=paper_exact,
    )
    return over.centre(scores.sum(dim=1), batch) / denominator
