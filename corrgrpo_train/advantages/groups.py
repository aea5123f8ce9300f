"""Groups of rows, and sums over them without a Python loop."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

# The smallest normal float64: a divisor that is never zero and never changes a divisor that is not.
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False)
class Groups:
    """Which rows belong together. Groups are numbered in ascending order of their labels.

    Attributes:
        index: shape (M,), int64: the group of each row, 0 … count − 1.
        count: number of groups G. A group may be empty (all of its rows were left out).
    """

    index: Tensor
    count: int

    @classmethod
    def of_labels(cls, labels: Tensor) -> tuple["Groups", Tensor, Tensor]:
        """Sort rows by label, so that groups lie one after the other.

        Args:
            labels: shape (N,), int64.

        Returns:
            The groups of the sorted rows, the distinct labels, ascending, shape (G,), and the order that sorts
            the rows, shape (N,): rows of a group keep their order.
        """
        ordered, order = labels.sort(stable=True)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = ordered[1:] != ordered[:-1]
        distinct = ordered[first]
        return cls(first.cumsum(0) - 1, len(distinct)), distinct, order

    @cached_property
    def sizes(self) -> Tensor:
        """Rows per group, shape (G,), float64."""
        return self._counts.to(torch.float64)

    @cached_property
    def freedom(self) -> Tensor:
        """Degrees of freedom n − 1, at least 1, shape (G,): a group of one has no deviation to divide."""
        return (self.sizes - 1).clamp(min=1)

    def spread(self, per_group: Tensor) -> Tensor:
        """Give every row its group's value: (G, …) → (M, …)."""
        return per_group.index_select(0, self.index)

    def sum(self, values: Tensor) -> Tensor:
        """Sum per group: (M, …) → (G, …)."""
        return self._reduce(values, "sum")

    def mean(self, values: Tensor) -> Tensor:
        """Mean per group: (M, …) → (G, …); 0 for an empty group."""
        sizes = self.sizes.clamp(min=1).reshape(-1, *[1] * (values.dim() - 1))
        return self.sum(values) / sizes

    def amin(self, values: Tensor) -> Tensor:
        """Smallest value per group: (M, …) → (G, …); 0 for an empty group."""
        return self._reduce(values, "min")

    def amax(self, values: Tensor) -> Tensor:
        """Largest value per group: (M, …) → (G, …); 0 for an empty group."""
        return self._reduce(values, "max")

    def std(self, centred: Tensor, size: Tensor | None = None) -> Tensor:
        """Sample standard deviation (ddof 1) per group of centred values: (M, …) → (G, …).

        Deviations are scaled by the group's largest before they are squared: 1e-200 must not vanish nor
        1e200 overflow. 0 where n = 1.

        Args:
            centred: the deviations.
            size: what to scale by, (G, …), where something of the largest deviation's size is known.
        """
        size = self.amax(centred.abs()) if size is None else size
        scaled = centred / self.spread(size.clamp(min=TINY))
        freedom = self.freedom.reshape(-1, *[1] * (centred.dim() - 1))
        return size * (self.sum(scaled.square()) / freedom).sqrt()

    @cached_property
    def _counts(self) -> Tensor:
        return torch.bincount(self.index, minlength=self.count)

    @cached_property
    def _order(self) -> Tensor | None:
        """The order that sorts rows by group; None if they are sorted."""
        is_sorted = bool((self.index[1:] >= self.index[:-1]).all())
        return None if is_sorted else self.index.sort(stable=True).indices

    def _reduce(self, values: Tensor, how: str) -> Tensor:
        # One pass over neighbours: scattering rows to their groups takes several times as long.
        ordered = values if self._order is None else values.index_select(0, self._order)
        reduced = torch.segment_reduce(ordered.contiguous(), how, lengths=self._counts, axis=0, unsafe=True)
        if how == "sum" or not self._has_empty:
            return reduced
        empty = (self._counts == 0).reshape(-1, *[1] * (values.dim() - 1))
        return reduced.masked_fill(empty, 0.0)

    @cached_property
    def _has_empty(self) -> bool:
        return bool((self._counts == 0).any())
