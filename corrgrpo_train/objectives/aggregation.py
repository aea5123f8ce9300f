"""How token losses become one number: a weight for every token, fixed before the batch is cut into pieces.

Every aggregation is Σ_t weight_t · loss_t, with weights that depend on the lengths of the whole mini-batch alone.
Micro-batches then simply add up, and sequences that are left out of the backward pass, having no advantage, still
count.
"""

from collections.abc import Callable

from torch import Tensor


def sequence_weights(lengths: Tensor, constant: int | None = None) -> Tensor:
    """1 / (N · T_i): the mean over a sequence's tokens, then over sequences (CorrGRPO's and GRPO's form).

    Args:
        lengths: (N,) sampled tokens of every sequence of the mini-batch.
        constant: not used.

    Returns:
        (N,) weight of each token of each sequence.

    Source: arXiv 2402.03300, Eq. 3; arXiv 2609.36820, Eq. 27.
    """
    return 1.0 / (len(lengths) * lengths.clamp(min=1).double())


def token_weights(lengths: Tensor, constant: int | None = None) -> Tensor:
    """1 / Σ_i T_i: the mean over all tokens of the mini-batch.

    Arguments and result as for `sequence_weights`. Source: DAPO, arXiv 2503.14476, Eq. 8.
    """
    return (1.0 / lengths.sum().clamp(min=1).double()).expand(len(lengths))


def constant_weights(lengths: Tensor, constant: int | None = None) -> Tensor:
    """1 / (N · L): the sum over a sequence's tokens over a constant, then the mean over sequences.

    Arguments and result as for `sequence_weights`, but `constant`, the length L in tokens, is needed.
    Source: Dr. GRPO, arXiv 2503.20783.
    """
    if not constant or constant < 1:
        raise ValueError(f"aggregation 'constant' needs a positive length, not {constant!r}")
    return lengths.new_full((len(lengths),), 1.0 / (len(lengths) * constant), dtype=lengths.double().dtype)


AGGREGATIONS: dict[str, Callable[[Tensor, int | None], Tensor]] = {
    "sequence": sequence_weights,
    "token": token_weights,
    "constant": constant_weights,
}
