"""GDPO: every component standardised within its group, the sum standardised over the batch."""

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.mo_grpo import weighted_scores
from corrgrpo_train.advantages.options import check_non_negative
from corrgrpo_train.advantages.registry import register
from corrgrpo_train.advantages.whitening import whitening_by_name


@register("gdpo")
def gdpo(batch: Batch, *, whitening: str = "completions", epsilon: float | None = None) -> Tensor:
    """GDPO: H_i = Σ_l w_l (R_il − mean_l) / (std_l + ε), then A = (H − mean) / (std + ε) over the batch.

    ddof 1 in both steps, ε = 1e-4; the weights enter between the steps. The batch's statistics are over its
    scored completions. Source: arXiv 2601.05242; constants as in TRL.

    The same name elsewhere:
        - TRL (`multi_objective_aggregation="normalize_then_sum"`): this, but a nan component is skipped, not
          its row.
        - verl: `whitening="tokens"`: every token counts once in the batch's statistics, so long completions
          weigh more, A = (H − m) / sqrt(v + 1e-8), and ε = 1e-6.

    Args:
        batch: the scored rows.
        whitening: `"completions"`, or `"tokens"`, which needs `lengths`.
        epsilon: added to the standard deviations of both steps, with `"tokens"` of the first only; None is
            1e-4 with completions, 1e-6 with tokens.
    """
    over = whitening_by_name(whitening)
    epsilon = over.component_epsilon if epsilon is None else epsilon
    check_non_negative(epsilon=epsilon)
    return over.whiten(weighted_scores(batch, epsilon).sum(dim=1), batch, epsilon)
