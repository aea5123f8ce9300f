"""The repeated layers of a model, and their recomputation in the backward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from corrgrpo_train.errors import UsageError


def repeated_layers(model: Any) -> list[torch.nn.Module]:
    """The model's decoder layers: what holds nearly all of its weights and activations, in order.

    Raises:
        UsageError: if the model does not mark them.
    """
    found: list[torch.nn.Module] = [
        module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)
    ]
    if not found:
        raise UsageError(
            f"{type(model).__name__} does not mark its layers: neither gradient_checkpointing nor sharding can be used"
        )
    return found


def recompute_layers(model: Any) -> None:
    """Keep only the inputs of the model's layers for the backward pass, which computes the layers once more.

    The library's own switch works in training mode alone; here the model stays in evaluation mode, so that no
    dropout begins with it.
    """
    for layer in repeated_layers(model):
        layer.forward = _Recomputed(layer.forward)


class _Recomputed:
    """A layer's forward pass that keeps nothing but its inputs where a gradient is wanted."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        return checkpoint(self.forward, *args, use_reentrant=False, **kwargs)
