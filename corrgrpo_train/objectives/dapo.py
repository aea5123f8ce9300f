"""DAPO's surrogate: the clipped surrogate whose upper bound is wider ("clip-higher")."""

from torch import Tensor

from corrgrpo_train.objectives.grpo import clipped_surrogate
from corrgrpo_train.objectives.surrogate import Surrogate


def dapo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
) -> Surrogate:
    """−min(u·A, clip(u, 1 − 0.2, 1 + 0.28)·A): rare tokens may rise further, which keeps the entropy up.

    Arguments and result as for `clipped_surrogate`. The other parts of DAPO are settings of their own: mean over
    tokens (`aggregation="token"`), dynamic sampling, the overlong penalty; `--mode dapo` sets them all.

    Source: DAPO, arXiv 2503.14476, Eq. 8 and section 3.1.
    """
    return clipped_surrogate(logprobs, old_logprobs, advantages, clip_low=clip_low, clip_high=clip_high)
