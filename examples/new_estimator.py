"""An advantage estimator of one's own, beside CorrGRPO and GRPO on the same groups.

python -m examples.new_estimator
python -m corrgrpo_train --env RLLA-v0 --method examples.new_estimator:clipped_grpo --method-args.limit 1.5
"""

import torch
from torch import Tensor

from corrgrpo_train.advantages import Batch, estimate, register


@register("clipped_grpo", per_group=True)
def clipped_grpo(batch: Batch, *, limit: float = 2.0) -> Tensor:
    """GRPO's advantage, cut to ±limit: one lucky answer in a large group can't take the whole step.

    Keyword-only parameters are options, on the command line too. `batch.groups.spread` hands one number per group
    back to its rows.
    """
    total = batch.centred_total
    variance = batch.groups.sum(total.square()) / batch.groups.freedom
    return (total / (batch.groups.spread(variance.sqrt()) + 1e-6)).clamp(-limit, limit)


def main() -> None:
    """Print the advantages of one group under three estimators."""
    components = torch.tensor(
        [[1.0, 1.0], [0.0, 0.0], [0.0, 0.1], [0.0, 0.0], [0.0, 0.2], [0.0, 0.0], [0.0, 0.0], [0.0, 0.1]]
    )
    groups = torch.zeros(8, dtype=torch.long)
    weights = torch.tensor([1.0, 0.5])
    for name in ("clipped_grpo", "grpo", "corrgrpo"):
        advantages = estimate(name, components, groups, weights).advantages
        print(f"{name:14}", "  ".join(f"{value:+.2f}" for value in advantages.tolist()))


if __name__ == "__main__":
    main()
