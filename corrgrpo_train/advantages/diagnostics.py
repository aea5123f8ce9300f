"""The numbers that go with every estimate, the same for every estimator, so that runs can be compared.

N rows of which M were scored, G groups in ascending order of their labels, K components.

| name | shape | what it is |
| --- | --- | --- |
| `group` | (G,) int64 | the group's label |
| `group_size` | (G,) | its scored rows; 0 where all were left out |
| `correlation_sum` | (G,) | Q, the sum of all Pearson correlations, signed by the weights |
| `corrgrpo_denominator` | (G,) | sqrt(max(Q, 0.1) + 1e-6): `corrgrpo` with its default options |
| `grpo_denominator` | (G,) | std(total) + 1e-6: `grpo` with its default option |
| `corrgrpo_to_grpo` | (G,) | A_corrgrpo / A_grpo = grpo_denominator / corrgrpo_denominator |
| `denominator` | (G,) | what this estimator in effect divided by: mean abs(t) / mean abs(A) |
| `ratio_to_grpo` | (G,) | this estimator's mean abs(A) / that of `grpo` |
| `correlation` | (K, K) | Pearson correlations of raw components, mean over groups in which both vary |
| `constant_share` | (K,) | share of groups in which the component does not vary |
| `component_mean` | (K,) | mean over rows |
| `component_std` | (K,) | standard deviation within groups (ddof 1), mean over groups |
| `share_without_signal` | float | share of groups whose total does not vary: nothing to learn from |
| `share_below_guard` | float | share of groups with a signal and Q < 0.1, where `corrgrpo`'s guard acts |
| `rows_left_out` | float | N − M |
| `advantage_mean`, `advantage_mean_abs`, `advantage_max_abs` | float | over the M scored rows |

A number is nan where there is nothing to take it from: groups without scored rows or, for the last three
per-group ratios, without a signal (`denominator` is inf where A is 0 all the same); components that are nan
throughout. A component of weight zero may be nan: rows with a nan do not enter its mean, groups with one do
not enter its other numbers.
"""

import torch
from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.corrgrpo import MIN_CORRELATION_SUM, correlation_sum, denominator
from corrgrpo_train.advantages.grpo import EPSILON
from corrgrpo_train.advantages.inputs import Inputs

Diagnostics = dict[str, Tensor | float]


def diagnose(batch: Batch, inputs: Inputs, labels: Tensor, advantages: Tensor) -> Diagnostics:
    """Compute the diagnostics of one estimate.

    Args:
        batch: what the estimator saw.
        inputs: what the caller handed in: all rows and all components.
        labels: the groups' labels, ascending, shape (G,).
        advantages: of the scored rows, shape (M,), float64.
    """
    size = advantages.abs()
    opposed = batch.has_signal & (correlation_sum(batch) < MIN_CORRELATION_SUM)
    return {
        "group": labels,
        "group_size": batch.groups.sizes,
        **_of_groups(batch, advantages),
        **_of_components(inputs, batch),
        "share_without_signal": _mean(~batch.has_signal),
        "share_below_guard": _mean(opposed),
        "rows_left_out": float(len(inputs.labels) - len(advantages)),
        "advantage_mean": _mean(advantages),
        "advantage_mean_abs": _mean(size),
        "advantage_max_abs": size.max().item() if len(size) else torch.nan,
    }


def _of_groups(batch: Batch, advantages: Tensor) -> Diagnostics:
    groups, signal = batch.groups, batch.has_signal
    empty = groups.sizes == 0
    total = groups.mean(batch.centred_total.abs())
    own = groups.mean(advantages.abs())
    corrgrpo_denominator = denominator(batch)
    grpo_denominator = groups.std(batch.centred_total) + EPSILON
    return {
        "correlation_sum": correlation_sum(batch).masked_fill(empty, torch.nan),
        "corrgrpo_denominator": corrgrpo_denominator.masked_fill(empty, torch.nan),
        "grpo_denominator": grpo_denominator.masked_fill(empty, torch.nan),
        "corrgrpo_to_grpo": (grpo_denominator / corrgrpo_denominator).masked_fill(~signal, torch.nan),
        "denominator": (total / own).masked_fill(~signal, torch.nan),
        "ratio_to_grpo": (own * grpo_denominator / total).masked_fill(~signal, torch.nan),
    }


def _of_components(inputs: Inputs, batch: Batch) -> Diagnostics:
    components, groups = inputs.components[inputs.scored], batch.groups
    missing = components.isnan()
    counts = groups.sizes.new_full((components.shape[1],), len(components)) - missing.sum(dim=0)
    seen = (groups.sizes > 0)[:, None].expand(-1, components.shape[1])
    if missing.any():
        seen = seen & (groups.sum(missing.to(torch.float64)) == 0)
        components = components.nan_to_num(nan=0.0)
    # Where every component counts, the estimator has computed all of this already.
    all_count = batch.components.shape == components.shape
    watched = batch if all_count else Batch(components, components.new_ones(components.shape[1]), groups)
    varies = (seen & ~watched.constant).to(torch.float64)
    scores = watched.standardised * groups.spread(varies)
    both_vary = varies.T @ varies
    correlations = scores.T @ (scores / groups.spread(groups.freedom)[:, None])
    return {
        "correlation": correlations / both_vary,
        "constant_share": (seen & watched.constant).sum(dim=0).to(torch.float64) / seen.sum(dim=0),
        "component_mean": watched.components.sum(dim=0) / counts,
        "component_std": (watched.std * seen).sum(dim=0) / seen.sum(dim=0),
    }


def _mean(values: Tensor) -> float:
    return values.to(torch.float64).mean().item()
