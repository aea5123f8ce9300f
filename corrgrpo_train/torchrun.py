"""What torchrun tells a process of its place among the others, before any of them is known to it."""

import os
from datetime import timedelta


def torchrun_rank() -> int:
    """The number of this process as torchrun gave it; 0 without torchrun."""
    return int(os.environ.get("RANK", "0"))


def torchrun_count() -> int:
    """The number of processes as torchrun gave it; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def own_device(device: str) -> str:
    """The GPU of this process where several share a machine; any other device is the same for all."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" and torchrun_count() > 1 else device


def is_first_to_fail() -> bool:
    """Whether no other process has failed before: of an error that ends them all, one process tells.

    The answer is kept where torchrun keeps the processes' addresses, so it needs none of them to be alive.
    """
    if torchrun_count() == 1:
        return True
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        store = TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=10)
        )
        return bool(store.add(f"corrgrpo/failed/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", 1) == 1)
    except (KeyError, ValueError, RuntimeError):  # the store is gone, and with it whoever ended it
        return torchrun_rank() == 0
