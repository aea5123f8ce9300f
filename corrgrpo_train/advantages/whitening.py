"""Over what GDPO's batch-wide statistics are taken: completions, or the tokens of completions."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.groups import TINY
from corrgrpo_train.advantages.options import unknown


@dataclass(frozen=True)
class Whitening:
    """A way of taking batch-wide statistics.

    Attributes:
        counts: how often each row counts, shape (M,).
        component_epsilon: ε of the per-component step in the projects that whiten this way.
        denominator: from the standard deviation (a scalar tensor) and ε to what deviations are divided by.
    """

    counts: Callable[[Batch], Tensor]
    component_epsilon: float
    denominator: Callable[[Tensor, float], Tensor]

    def centre(self, values: Tensor, batch: Batch) -> Tensor:
        """Subtract the batch mean from `values`, shape (M,)."""
        counts = self.counts(batch)
        return values - (counts @ values) / counts.sum().clamp(min=1)

    def whiten(self, values: Tensor, batch: Batch, epsilon: float) -> Tensor:
        """Subtract the batch mean and divide by the standard deviation (ddof 1), shape (M,)."""
        counts = self.counts(batch)
        centred = self.centre(values, batch)
        largest = centred.abs().max().clamp(min=TINY)  # squares must neither vanish nor overflow
        variance = (counts @ (centred / largest).square()) / (counts.sum() - 1).clamp(min=1)
        return centred / self.denominator(largest * variance.sqrt(), epsilon).clamp(min=TINY)


def _each_completion_once(batch: Batch) -> Tensor:
    return batch.components.new_ones(len(batch.components))


def _each_token_once(batch: Batch) -> Tensor:
    if batch.lengths is None:
        raise ValueError("whitening='tokens' needs lengths: the number of tokens of each completion")
    return batch.lengths


_WHITENINGS = {
    "completions": Whitening(_each_completion_once, 1e-4, lambda std, epsilon: std + epsilon),
    "tokens": Whitening(_each_token_once, 1e-6, lambda std, _: std.hypot(std.new_tensor(1e-4))),
}


def whitening_by_name(name: str) -> Whitening:
    """Return the whitening of that name.

    Raises:
        ValueError: if there is none.
    """
    if not isinstance(name, str) or name not in _WHITENINGS:
        raise unknown("option 'whitening'", name, _WHITENINGS)
    return _WHITENINGS[name]
