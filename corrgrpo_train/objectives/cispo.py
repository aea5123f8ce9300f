"""CISPO: the policy gradient with a bounded importance weight, in which no token loses its gradient."""

from torch import Tensor

from corrgrpo_train.objectives.surrogate import Surrogate, probability_ratios


def cispo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    cispo_max_ratio: float = 5.0,
) -> Surrogate:
    """−sg(min(u, cispo_max_ratio)) · A · logprob with u = exp(logprob − old logprob), sg: no gradient.

    As published the weight is clip(u, 1 − ε_low, 1 + ε_high) under the stop-gradient, with ε_low so large that
    there is no lower bound, and J is the mean over all tokens of the batch (`aggregation="token"`).
    `cispo_max_ratio` is the bound on the ratio itself: 1 + ε_high of the paper and of verl (`clip_ratio_high`), and
    TRL's `epsilon_high`, which there bounds the ratio. The default 5 is the one that TRL recommends; the paper
    doesn't print its own.

    Args:
        logprobs: (T,) of the policy, with gradient.
        old_logprobs: (T,) of the policy that is the ratio's denominator, without gradient.
        advantages: (T,) each token's advantage.
        cispo_max_ratio: largest importance weight.

    Returns:
        The surrogate; `clipped` marks tokens whose weight is cut, which keep a gradient.

    Source: MiniMax-M1, arXiv 2506.13585, Eq. 4 and 5.
    """
    ratios = probability_ratios(logprobs, old_logprobs).detach()
    return Surrogate(
        losses=-ratios.clamp(max=cispo_max_ratio) * advantages * logprobs,
        ratios=ratios,
        clipped=ratios > cispo_max_ratio,
    )
