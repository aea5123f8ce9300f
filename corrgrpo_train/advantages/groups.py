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

    @cached_property
    def sizes(self) -> Tensor:
        """Rows per group, shape (G,), float64."""
        return self.sum(self.index.new_ones(self.index.shape, dtype=torch.float64))

    @cached_property
    def freedom(self) -> Tensor:
        """Degrees of freedom n − 1, at least 1, shape (G,): a group of one has no deviation to divide."""
        return (self.sizes - 1).clamp(min=1)

    def spread(self, per_group: Tensor) -> Tensor:
        """Give every row its group's value: (G, …) → (M, …)."""
        return per_group.index_select(0, self.index)

    def sum(self, values: Tensor) -> Tensor:
        """Sum per group: (M, …) → (G, …)."""
        return values.new_zeros(self.count, *values.shape[1:]).index_add_(0, self.index, values)

    def mean(self, values: Tensor) -> Tensor:
        """Mean per group: (M, …) → (G, …); 0 for an empty group."""
        sizes = self.sizes.clamp(min=1).reshape(-1, *[1] * (values.dim() - 1))
        return self.sum(values) / sizes

    def amin(self, values: Tensor) -> Tensor:
        """Smallest value per group: (M, …) → (G, …); 0 for an empty group."""
        return self._reduce(values, "amin")

    def amax(self, values: Tensor) -> Tensor:
        """Largest value per group: (M, …) → (G, …); 0 for an empty group."""
        return self._reduce(values, "amax")

    def std(self, centred: Tensor) -> Tensor:
        """Sample standard deviation (ddof 1) per group of centred values: (M, …) → (G, …).

        Deviations are scaled by the group's largest before they are squared: 1e-200 must not vanish nor
        1e200 overflow. 0 where n = 1.
        """
        largest = self.amax(centred.abs())
        scaled = centred / self.spread(largest.clamp(min=TINY))
        freedom = self.freedom.reshape(-1, *[1] * (centred.dim() - 1))
        return largest * (self.sum(scaled.square()) / freedom).sqrt()

    def _reduce(self, values: Tensor, how: str) -> Tensor:
        index = self.index.reshape(-1, *[1] * (values.dim() - 1)).expand_as(values)
        start = values.new_zeros(self.count, *values.shape[1:])
        return start.scatter_reduce_(0, index, values, how, include_self=False)
