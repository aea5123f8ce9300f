"""The divergence from a reference policy, per token."""

import torch
from torch import Tensor


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """exp(d) − d − 1 with d = reference logprob − logprob: never negative, 0 where both agree.

    Its mean over tokens sampled from the policy is an unbiased estimate of KL(policy ‖ reference).

    Args:
        logprobs: (T,) of the policy, with gradient.
        reference_logprobs: (T,) of the reference policy, without gradient.

    Returns:
        (T,), with gradient. |d| counts as 20 at most, so that one token can't overflow the sum.

    Source: GRPO, arXiv 2402.03300, Eq. 4; the estimator k3 of J. Schulman, "Approximating KL divergence" (2020).
    """
    difference = (reference_logprobs - logprobs).clamp(-20.0, 20.0)
    return torch.expm1(difference) - difference
