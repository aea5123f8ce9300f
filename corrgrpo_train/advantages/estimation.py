"""`estimate`: from rewards, groups and weights to advantages and diagnostics."""

from dataclasses import dataclass

import torch
from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.diagnostics import Diagnostics, diagnose
from corrgrpo_train.advantages.groups import Groups
from corrgrpo_train.advantages.inputs import Inputs, Numbers, read_inputs
from corrgrpo_train.advantages.options import unknown
from corrgrpo_train.advantages.registry import ESTIMATORS


@dataclass(frozen=True, eq=False)
class Estimate:
    """What `estimate` returns.

    Attributes:
        advantages: shape (N,), float32, no gradient, on the components' device; 0 in rows that were left out.
        diagnostics: named tensors (float64 or int64, on the CPU) and floats, the same for every estimator;
            `corrgrpo_train.advantages.diagnostics` says what each is.
    """

    advantages: Tensor
    diagnostics: Diagnostics


@torch.no_grad()
def estimate(
    name: str,
    components: Numbers,
    groups: Numbers,
    weights: Numbers,
    lengths: Numbers | None = None,
    **options: object,
) -> Estimate:
    """Estimate the advantage of every completion with the estimator `name`.

    Args:
        name: a key of `ESTIMATORS`.
        components: raw (unweighted) rewards, shape (N, K), finite and within ±1e300, any real dtype; computed
            in float64. A row with nan in a component of non-zero weight is left out of its group and gets 0;
            nan in a component of weight 0 is ignored.
        groups: integer labels, shape (N,): rows of equal label are completions of one prompt. Groups may have
            any sizes and rows any order.
        weights: factor of each component in the total, shape (K,), finite. A negative weight turns a
            component round, a zero weight takes it out.
        lengths: tokens of each completion, shape (N,); only estimators that weigh by token need it.
        **options: the estimator's own, as in its docstring.

    Raises:
        ValueError: for an unknown estimator or option, or input that is not as above; one line each.
    """
    if not isinstance(name, str) or name not in ESTIMATORS:
        raise unknown("estimator", name, ESTIMATORS)
    estimator = ESTIMATORS[name]
    estimator.check_options(options)
    inputs = read_inputs(components, groups, weights, lengths)

    groups_of_rows, labels, order = Groups.of_labels(inputs.labels)
    inputs = inputs.reordered(order)
    scored = inputs.scored
    batch = _batch(inputs, scored, groups_of_rows)
    advantages = inputs.components.new_zeros(len(scored))
    if scored.any():
        advantages[scored] = estimator(batch, options)
    diagnostics = diagnose(batch, inputs, labels, advantages[scored])
    advantages = torch.empty_like(advantages).index_copy_(0, order, advantages)
    return Estimate(advantages.to(torch.float32).to(inputs.device), diagnostics)


def _batch(inputs: Inputs, scored: Tensor, groups: Groups) -> Batch:
    counted = inputs.weights != 0
    components, lengths = inputs.components, inputs.lengths
    if not scored.all():
        components, groups = components[scored], Groups(groups.index[scored], groups.count)
        lengths = None if lengths is None else lengths[scored]
    if not counted.all():
        components = components[:, counted]
    return Batch(components, inputs.weights[counted], groups, lengths)
