"""Where and in which float type the policy computes, and memory that it is done with."""

import ctypes
import sys

import torch


def chosen_device(name: str) -> str:
    """The device that the name means; `"auto"` takes a GPU where there is one."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def chosen_autocast(name: str, device: str) -> torch.dtype | None:
    """bfloat16 where the machine computes in it, else the weights' own type."""
    if name == "off":
        return None
    if name == "bf16":
        return torch.bfloat16
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else None
    # Without the instructions bfloat16 is emulated and slower than float32.
    return torch.bfloat16 if device == "cpu" and torch.cpu._is_avx512_bf16_supported() else None


def hand_memory_back() -> None:
    """Have the C library hand the memory of freed tensors back to the system; without effect where it isn't glibc.

    glibc takes freed large blocks as a sign that they come again, and keeps what is smaller than 32 MB among blocks
    that are still used: gradients lie between Adam's moments, activations between gradients. With a fixed border,
    blocks beyond it are pages of their own: 0.4 GB less at the peak of a step with 135 million parameters, at no cost
    that could be measured.
    """
    for setting, size in _GLIBC.values():
        _c_library("mallopt", setting, size)


def trim_heap() -> None:
    """Hand back what lies free between used blocks, too: 0.2 GB with the same model after a rollout."""
    _c_library("malloc_trim", 0)


_GLIBC = {"M_MMAP_THRESHOLD": (-3, 2_000_000), "M_TOP_PAD": (-2, 64 << 20)}
"""glibc's numbers of its settings, from its malloc.h, and bytes."""


def _c_library(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
