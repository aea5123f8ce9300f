"""What an estimator is given: scored rows, their groups and weights, and what follows from them."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from corrgrpo_train.advantages.groups import TINY, Groups

# A component whose values in a group differ by no more than this share of their size is constant. The test is
# relative because equal scores reached by other orders of addition differ in their last bits; it looks at raw
# values because weighted ones (0.05 · 1.0, …) do not average to themselves, so a "variance > 0" test takes
# them for varying ones and each adds a full 1 to the sum of correlations.
CONSTANT_SPREAD = 1e-9

# A weighted total whose deviations are below this share of what its components vary by has cancelled: what is
# left is rounding.
CANCELLED_SHARE = 1e-12


@dataclass(frozen=True, eq=False)
class Batch:
    """The scored rows of a batch, in float64 on the CPU.

    Rows that could not be scored (a nan in a component of non-zero weight) and components of weight zero are
    already gone, so an estimator sees finite numbers that all count. M rows, L components, G groups.

    Attributes:
        components: raw rewards, shape (M, L).
        weights: factor of each component in the total, shape (L,), finite, none zero, any sign.
        groups: which rows belong together.
        lengths: tokens of each completion, shape (M,), float64; None if the caller gave none.
    """

    components: Tensor
    weights: Tensor
    groups: Groups
    lengths: Tensor | None = None

    @cached_property
    def constant(self) -> Tensor:
        """Where a component does not vary in a group, shape (G, L), bool: max − min ≤ 1e-9 · max|R|."""
        return self._range <= CONSTANT_SPREAD * self._lowest.abs().maximum(self._highest.abs())

    @cached_property
    def centred(self) -> Tensor:
        """Components less their group means, shape (M, L); exactly 0 where constant in the group."""
        # Counted from the group's minimum, the mean rounds at the scale of the spread, not of the level.
        above = self.components - self.groups.spread(self._lowest)
        centred = above - self.groups.spread(self.groups.mean(above))
        return centred.masked_fill(self.groups.spread(self.constant), 0.0)

    @cached_property
    def std(self) -> Tensor:
        """Standard deviation of each component in each group, shape (G, L), ddof 1; 0 where constant."""
        return self.groups.std(self.centred, self._range)

    @cached_property
    def standardised(self) -> Tensor:
        """Components as z-scores within their groups, shape (M, L), ddof 1, no ε; 0 where constant."""
        return self.centred / self.groups.spread(self.std.clamp(min=TINY))

    @cached_property
    def centred_total(self) -> Tensor:
        """The weighted total less its group mean, t_i = Σ_l w_l (R_il − mean_l), shape (M,).

        Exactly 0 throughout a group in which the components cancel, e.g. opposed rewards of equal weight.
        """
        total = self.centred @ self.weights
        varied = self._range.masked_fill(self.constant, 0.0) @ self.weights.abs()
        cancelled = self.groups.amax(total.abs()) < CANCELLED_SHARE * varied
        return total.masked_fill(self.groups.spread(cancelled), 0.0)

    @cached_property
    def has_signal(self) -> Tensor:
        """Groups whose weighted total varies, shape (G,), bool."""
        return self.groups.amax(self.centred_total.abs()) > 0

    @cached_property
    def _lowest(self) -> Tensor:
        return self.groups.amin(self.components)

    @cached_property
    def _highest(self) -> Tensor:
        return self.groups.amax(self.components)

    @cached_property
    def _range(self) -> Tensor:
        return self._highest - self._lowest
