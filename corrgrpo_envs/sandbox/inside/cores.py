"""One core for the processes of a request, which take turns.

Left alone, the kernel wakes each on whatever core is idle, and the memory that one has just written has to cross from
core to core; on a machine of two cores a program then costs a tenth more and two workers do a quarter less. Which core
it is, the kernel says anew for each request; what runs for longer is let go.
"""

import contextlib
import os
from collections.abc import Iterable

from .syscalls import current_core

PATIENCE = 0.02
"""Seconds after which a process may run anywhere again: others may have come to want the core."""

_usable = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset((0,))


def gather(processes: Iterable[int]) -> None:
    """Keep this process, and those of the numbers, on the core that this process is on."""
    if len(_usable) > 1 and (core := current_core()) is not None:
        for process in (0, *processes):
            _bind(process, frozenset((core,)))


def release(process: int = 0) -> None:
    """Let a process, by default this one, run anywhere."""
    if len(_usable) > 1:
        _bind(process, _usable)


def _bind(process: int, cores: frozenset[int]) -> None:
    with contextlib.suppress(OSError):  # it has ended, or this is not allowed here: slower, that is all
        os.sched_setaffinity(process, cores)
