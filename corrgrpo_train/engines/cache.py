"""A key-value cache with room to grow.

The library's dynamic cache copies everything that it holds for each new token; on a CPU that was a quarter of the
decoding time. Here a layer keeps spare room behind its tokens and copies only when that is used up.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_ROOM = 64  # tokens


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values, (B, heads, L, d) views of buffers that are longer than L."""

    _buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the new tokens' keys and values and return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length, end = self.get_seq_length(), self.get_seq_length() + key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < end:
            held = self._buffers
            self._buffers = _roomy(key_states, end + _ROOM), _roomy(value_states, end + _ROOM)
            if held is not None:
                for buffer, old in zip(self._buffers, held, strict=True):
                    buffer[..., :length, :] = old[..., :length, :]
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., length:end, :] = new
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows at `indices`, which may repeat."""
        if self._buffers is None:
            return
        length = self.get_seq_length()
        keys, values = self._buffers
        self._buffers = keys[indices], values[indices]
        self.keys, self.values = (buffer[..., :length, :] for buffer in self._buffers)


def roomy_cache(config: Any) -> DynamicCache:
    """A cache for a model of this configuration; layers of other kinds (sliding windows) stay the library's."""
    cache = DynamicCache(config=config)
    cache.layers = [
        RoomyLayer() if type(layer) is DynamicLayer else layer  # type: ignore[no-untyped-call]
        for layer in cache.layers
    ]
    return cache


def _roomy(states: Tensor, length: int) -> Tensor:
    return torch.empty(*states.shape[:-2], length, states.shape[-1], dtype=states.dtype, device=states.device)
