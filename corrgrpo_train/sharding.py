"""Weights spread over the processes (FSDP2), and a whole model of them for the time that it is needed."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from corrgrpo_train.models.layers import repeated_layers


def without_weights(model: Any) -> Any:
    """A copy of a model that keeps everything but the weights' numbers; `filled` puts such in."""
    # Weights are told to the copy as already copied: at no moment do two models of them exist.
    known = {id(weight): torch.nn.Parameter(weight.to("meta"), requires_grad=False) for weight in model.parameters()}
    return copy.deepcopy(model, known)


def shard(scorer: torch.nn.Module, count: int, device: str) -> None:
    """Spread a scorer's weights over the processes, layer by layer; `device` is where each process keeps its part.

    Gradients are added up over the processes in the backward pass.

    Raises:
        UsageError: if the model does not mark its layers.
    """
    kind = torch.device(device).type
    mesh = init_device_mesh(kind, (count,))
    for module in (*repeated_layers(scorer.model), scorer):
        fully_shard(module, mesh=mesh)
        assert isinstance(module, FSDPModule)
        # The loss's normalisers cover all processes already: gradients are summed, not averaged.
        module.set_force_sum_reduction_for_comms(True)
        module.set_gradient_divide_factor(1.0)


@contextmanager
def filled(empty: Any, model: Any) -> Iterator[None]:
    """Give a copy made by `without_weights` the model's weights, gathered from all processes, while this lasts."""
    whole: dict[int, torch.nn.Parameter] = {}
    places = list(_places(empty))
    before = [module._parameters[name] for module, name in places]
    for (module, name), (_, weight) in zip(places, model.named_parameters(remove_duplicate=False), strict=True):
        if id(weight) not in whole:  # weights that are tied stay so
            whole[id(weight)] = torch.nn.Parameter(gathered(weight.detach()), requires_grad=False)
        module._parameters[name] = whole[id(weight)]
    try:
        yield
    finally:
        for (module, name), weight in zip(places, before, strict=True):
            module._parameters[name] = weight


def _places(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str]]:
    for _, module in model.named_modules(remove_duplicate=False):
        for name, weight in module._parameters.items():
            if weight is not None:
                yield module, name


def gathered(value: Any) -> Any:
    """The whole of a tensor that is spread over the processes; any other value as it is."""
    if not isinstance(value, DTensor):
        return value
    whole = value.full_tensor()
    # It may be a view of something longer, of which files would be made.
    return whole if whole.untyped_storage().nbytes() == whole.nbytes else whole.clone()


def spread_like(value: Tensor, weight: Tensor) -> Tensor:
    """A whole tensor in the form in which a weight of its shape is kept."""
    if not isinstance(weight, DTensor):
        return value
    device = weight.to_local().device
    # Every process has the whole: nothing needs to be sent.
    return distribute_tensor(value.to(device), weight.device_mesh, weight.placements, src_data_rank=None)


def whole_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimiser's state as one process alone would have it, on the CPU."""
    state = optimizer.state_dict()
    entries = {
        index: {name: gathered(value).cpu() if isinstance(value, Tensor) else value for name, value in entry.items()}
        for index, entry in state["state"].items()
    }
    return {**state, "state": entries}


def load_whole_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state made by `whole_state`, under any number of processes."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if any(isinstance(weight, DTensor) for weight in weights):
        entries = {
            index: {
                name: spread_like(value, weights[index])
                if isinstance(value, Tensor) and value.shape == weights[index].shape
                else value
                for name, value in entry.items()
            }
            for index, entry in state["state"].items()
        }
        state = {**state, "state": entries}
    optimizer.load_state_dict(state)
