"""RDPO: quantile-normalised rewards, whitened among themselves, then summed. Our reconstruction."""

import torch
from torch import Tensor

from corrgrpo_train.advantages.batch import CONSTANT_SPREAD, Batch
from corrgrpo_train.advantages.groups import TINY, Groups
from corrgrpo_train.advantages.options import check_non_negative
from corrgrpo_train.advantages.registry import register

FLAT = 1e-10
"""Variance, in units of a standardised reward's, that is rounding."""


def quantile_scores(batch: Batch) -> Tensor:
    """Every component's ranks within its group as normal quantiles of unit spread, shape (M, L).

    Φ⁻¹((rank − 1/2) / n), less the group's mean, over its standard deviation (ddof 1); equal values share the
    mean of their ranks. Values are equal if they differ by no more than a constant component's may. 0 where constant.
    """
    groups = batch.groups
    middle = (_mid_ranks(batch) - 0.5) / groups.spread(groups.sizes)[:, None]
    quantiles = torch.special.ndtri(middle).masked_fill(groups.spread(batch.constant), 0.0)
    return _standardised(quantiles, groups)


def whitened(scores: Tensor, groups: Groups, ridge: float) -> Tensor:
    """Scores of every group times (C + ridge · I)^(−1/2), C their covariance in the group, shape (M, L).

    The symmetric root is taken: each column stays as near to its own reward as can be. A column of zeros (a
    reward that does not vary) stays zero and has no influence on the others.
    """
    size, width = groups.count, scores.shape[1]
    order = groups.index.sort(stable=True).indices
    place = groups.index[order]
    first = groups.sizes.cumsum(0) - groups.sizes
    slot = torch.arange(len(order), device=order.device) - first[place].long()
    longest = int(groups.sizes.max()) if size else 0
    # Padded to the longest group: one batched product gives all covariances, and none is of rows by rows.
    padded = scores.new_zeros(size, longest, width)
    padded[place, slot] = scores[order]
    covariance = padded.transpose(1, 2) @ padded / groups.freedom[:, None, None]
    values, vectors = torch.linalg.eigh(covariance)
    # Without a ridge, directions in which nothing varies but by rounding are left out.
    varies = values.clamp(min=0) + ridge
    factors = varies.clamp(min=FLAT).rsqrt().masked_fill(varies < FLAT, 0.0)
    roots = (vectors * factors[:, None, :]) @ vectors.transpose(1, 2)
    return torch.empty_like(scores).index_copy_(0, order, (padded @ roots)[place, slot])


@register("rdpo", per_group=True)
def rdpo(batch: Batch, *, magnitude: float = 0.5, ridge: float = 0.01) -> Tensor:
    """RDPO, our reconstruction: A_i = Σ_l w_l v_il, v the whitened, quantile-normalised rewards of the group.

    We know three steps of the method by name and no formula; nobody should take this for the published method.
    What is named, and what we chose:

    1. *Magnitude-aware quantile normalisation of each reward within the prompt.* q_il = Φ⁻¹((rank − 1/2) / n),
       equal values sharing their mean rank, and z_il = (R_il − mean_l) / std_l; both of unit spread (ddof 1);
       y_il = (1 − m) q_il + m z_il, m = `magnitude` = 0.5, of unit spread again. The ranks bound what one
       extreme reward can do, the z-scores keep by how much it is larger.
    2. *Mahalanobis whitening inside the subspace of active rewards.* v = y (C + δI)^(−1/2), C the correlations of
       y in the group, δ = `ridge` = 0.01, the symmetric root. Active are rewards that vary in the group. The
       ridge keeps directions in which the group hardly varies (copies of one reward; more rewards than
       completions) from being blown up.
    3. *Aggregation.* The sum with weights: they enter here and nowhere before.

    ddof 1, no ε but δ. Two copies of a reward count as √2 of it, two opposed ones of equal weight cancel. Free
    of each reward's scale and origin. A group of one gets 0. Source: the abstract of arXiv 2605.13641 for the
    steps, our own for the rest.

    Args:
        batch: the scored rows.
        magnitude: share of z-scores in step 1: 0 is ranks alone, 1 is `mo_grpo`'s standardisation.
        ridge: δ of step 2.
    """
    check_non_negative(magnitude=magnitude, ridge=ridge)
    if magnitude > 1:
        raise ValueError(f"option 'magnitude' must be a number from 0 to 1, not {magnitude!r}")
    blend = (1 - magnitude) * quantile_scores(batch) + magnitude * batch.standardised
    return whitened(_standardised(blend, batch.groups), batch.groups, ridge) @ batch.weights


def _standardised(values: Tensor, groups: Groups) -> Tensor:
    centred = values - groups.spread(groups.mean(values))
    return centred / groups.spread(groups.std(centred).clamp(min=TINY))


def _mid_ranks(batch: Batch) -> Tensor:
    """Rank of every value in its group and column, 1 … n, equal values sharing the mean, shape (M, L)."""
    values, groups = batch.components, batch.groups
    rows, width = values.shape
    by_value = values.sort(dim=0, stable=True).indices
    by_group = groups.index[by_value].sort(dim=0, stable=True).indices
    order = by_value.gather(0, by_group)  # of each column: by group, then by value
    ordered, place = values.gather(0, order), groups.index[order]
    largest = groups.amax(values.abs()).gather(0, place)
    begins = torch.ones_like(place, dtype=torch.bool)
    begins[1:] = (place[1:] != place[:-1]) | (ordered[1:] - ordered[:-1] > CONSTANT_SPREAD * largest[1:])
    run = begins.cumsum(0) - 1
    run = run + torch.arange(width, device=run.device) * rows
    first = groups.sizes.cumsum(0) - groups.sizes
    rank = torch.arange(1, rows + 1, device=run.device)[:, None] - first[place]
    runs = run.flatten()
    total = values.new_zeros(rows * width).index_add_(0, runs, rank.flatten())
    count = values.new_zeros(rows * width).index_add_(0, runs, torch.ones_like(rank).flatten())
    mean = (total[runs] / count[runs]).reshape(rows, width)
    return torch.empty_like(values).scatter_(0, order, mean)
