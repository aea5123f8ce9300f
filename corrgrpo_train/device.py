"""Where and in which float type the policy computes."""

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
