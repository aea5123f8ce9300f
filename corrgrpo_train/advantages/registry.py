"""The estimators by name, and the decorator that adds one."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from corrgrpo_train.advantages.batch import Batch
from corrgrpo_train.advantages.options import unknown

Function = Callable[..., Tensor]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Estimator:
    """A registered estimator.

    Attributes:
        name: the name it was registered under (not an alias).
        function: takes a `Batch` and options by keyword; returns advantages, shape (M,).
        options: each option's default, in order.
        per_group: a group's advantages do not depend on the batch's other groups.
    """

    name: str
    function: Function
    options: Mapping[str, object]
    per_group: bool = False

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def __call__(self, batch: Batch, options: Mapping[str, object]) -> Tensor:
        """Run the function and check what it returns.

        Returns:
            Advantages, shape (M,), float64.

        Raises:
            ValueError: if it returns no tensor of that shape, or a number that is nan or beyond float32.
        """
        advantages = self.function(batch, **options)
        rows = len(batch.groups.index)
        if not isinstance(advantages, Tensor) or advantages.shape != (rows,):
            shape = tuple(advantages.shape) if isinstance(advantages, Tensor) else type(advantages).__name__
            raise ValueError(f"estimator {self.name!r} must return a tensor of shape ({rows},), not {shape}")
        if not advantages.to(torch.float32).isfinite().all():
            raise ValueError(
                f"estimator {self.name!r} gave advantages that are nan or beyond float32 (3.4e38): "
                "rescale the components or the weights"
            )
        return advantages.to(torch.float64)

    def check_options(self, options: Mapping[str, object]) -> None:
        """Raise `ValueError` for the first option that this estimator does not have."""
        for option in options:
            if option not in self.options:
                raise unknown(f"estimator {self.name!r}: option", option, self.options)


ESTIMATORS: dict[str, Estimator] = {}
"""Every estimator by name and alias."""


def register(name: str, *, aliases: tuple[str, ...] = (), per_group: bool = False) -> Callable[[F], F]:
    """Return a decorator that makes a function available as estimator `name` wherever estimators are named.

    Args:
        name: what users will write; a Python identifier, so that it is safe in file names and commands.
        aliases: further names of the same estimator.
        per_group: promise that a group's advantages do not depend on the batch's other groups; callers may then
            estimate several batches at once.

    The function takes a `Batch` and returns advantages of shape (M,). Its other parameters are its options:
    they are keyword-only and have defaults.

    Raises:
        ValueError: if a name is taken or is not an identifier, or (on decorating) if the function's
            parameters are not as above.

    Example:
        >>> from corrgrpo_train.advantages import Batch, ESTIMATORS, estimate, register
        >>> @register("signs")
        ... def signs(batch: Batch, *, size: float = 1.0):
        ...     return size * batch.centred_total.sign()
        >>> estimate("signs", [[0.0], [1.0], [1.0]], [7, 7, 7], [1.0], size=0.5).advantages
        tensor([-0.5000,  0.5000,  0.5000])
        >>> del ESTIMATORS["signs"]
    """
    for taken in (name, *aliases):
        if not isinstance(taken, str) or not taken.isidentifier():
            raise ValueError(f"an estimator's name must be a Python identifier, not {taken!r}")
        if taken in ESTIMATORS:
            raise ValueError(
                f"estimator {taken!r} is already registered; choose another name, "
                f"or `del ESTIMATORS[{taken!r}]` first to replace it"
            )

    def add(function: F) -> F:
        estimator = Estimator(name, function, _options(name, function), per_group)
        ESTIMATORS.update(dict.fromkeys((name, *aliases), estimator))
        return function

    return add


def _options(name: str, function: Function) -> dict[str, object]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ValueError(f"estimator {name!r} must take a Batch as its first parameter")
    for parameter in parameters[1:]:
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise ValueError(
                f"parameter {parameter.name!r} of estimator {name!r} must be keyword-only and have a default"
            )
    return {parameter.name: parameter.default for parameter in parameters[1:]}
