"""What callers hand in, read into tensors: every check of shapes, labels and numbers is here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

# Beyond this a difference of two values could overflow float64.
LARGEST = 1e300

Numbers = Tensor | Sequence[Any] | Any
"""A tensor of any real dtype, a numpy array, or nested sequences of numbers."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Checked input, on the CPU: rewards are few numbers, and sums on the CPU come out the same every time.

    Attributes:
        components: raw rewards, shape (N, K), float64; nan where something could not be scored.
        labels: shape (N,), int64.
        weights: shape (K,), float64, finite.
        lengths: tokens per completion, shape (N,), float64, or None.
        device: where the caller's components are.
    """

    components: Tensor
    labels: Tensor
    weights: Tensor
    lengths: Tensor | None
    device: torch.device

    @property
    def scored(self) -> Tensor:
        """Rows without a nan in a component of non-zero weight, shape (N,), bool."""
        missing = self.components.isnan()
        if not missing.any():
            return missing.new_ones(len(missing))
        return ~missing[:, self.weights != 0].any(dim=1)

    def reordered(self, order: Tensor) -> "Inputs":
        """The same rows in another order, shape (N,)."""
        lengths = None if self.lengths is None else self.lengths[order]
        return replace(self, components=self.components[order], labels=self.labels[order], lengths=lengths)


def read_inputs(components: Numbers, groups: Numbers, weights: Numbers, lengths: Numbers | None) -> Inputs:
    """Read and check the arguments of `estimate`; its docstring says what each may be.

    Raises:
        ValueError: in one line that names the argument.
    """
    rewards = _real("components", components)
    if rewards.dim() != 2:
        raise ValueError(f"components must have shape (rows, components), not {tuple(rewards.shape)}")
    rows, width = rewards.shape
    if not rows or not width:
        raise ValueError(f"components is empty: shape {(rows, width)}; at least one row and one column are needed")
    if (beyond := (rewards.abs() > LARGEST).nonzero()).numel():
        row, column = beyond[0].tolist()
        raise ValueError(
            f"components[{row}, {column}] is {rewards[row, column].item()}: components must be finite and "
            f"within ±{LARGEST:g} (nan marks one that could not be scored)"
        )

    labels = _tensor("groups", groups)
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise ValueError(f"groups must be integer labels, not {labels.dtype}")
    _check_shape("groups", labels, rows, "row of components")

    factors = _real("weights", weights)
    _check_shape("weights", factors, width, "component")
    if not factors.isfinite().all():
        raise ValueError(f"weights must be finite, not {factors.tolist()}")

    tokens = None
    if lengths is not None:
        tokens = _real("lengths", lengths)
        _check_shape("lengths", tokens, rows, "row of components")
        if not (tokens.isfinite() & (tokens >= 0) & (tokens == tokens.round())).all():
            raise ValueError("lengths must be whole numbers of tokens >= 0")

    device = components.device if isinstance(components, Tensor) else torch.device("cpu")
    return Inputs(rewards, labels.to(torch.int64), factors, tokens, device)


def _real(name: str, values: Numbers) -> Tensor:
    tensor = _tensor(name, values, torch.float64)
    if tensor.dtype.is_complex:
        raise ValueError(f"{name} must be real numbers, not {tensor.dtype}")
    return tensor.to(torch.float64)


def _tensor(name: str, values: Numbers, plain_dtype: torch.dtype | None = None) -> Tensor:
    """Copy to the CPU; `plain_dtype` is for Python numbers, which torch would round to float32."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    if hasattr(values, "dtype"):
        plain_dtype = None
    try:
        # An array's copy has plain strides; torch refuses reversed ones.
        return torch.tensor(values.copy() if hasattr(values, "copy") else values, dtype=plain_dtype, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{name} must be a rectangular array of numbers: {reason}") from None


def _check_shape(name: str, values: Tensor, expected: int, of: str) -> None:
    if values.shape != (expected,):
        raise ValueError(f"{name} must have shape ({expected},), one per {of}, not {tuple(values.shape)}")
