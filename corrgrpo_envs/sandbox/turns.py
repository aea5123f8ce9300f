"""Turns at a core: programs are timed one at a time, whatever process of this user has them timed.

A core has a folder; who wants a turn puts a file into it, named by the next number, and holds a lock on it. A turn
begins when all files with smaller numbers are gone or unlocked: first come, first served, and a process that
dies gives its place up, because the kernel lets go of its locks.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LONGEST_WAIT = 120.0  # seconds; then a turn is taken all the same: a noisy time is better than none
_LOOK = 0.01


def folder() -> Path | None:
    """The folder of this user's queues; None where it can't be had (or belongs to somebody else)."""
    path = Path(tempfile.gettempdir()) / f"corrgrpo-timing-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return None
    return path if found.st_uid == os.getuid() and path.is_dir() and not path.is_symlink() else None


@contextlib.contextmanager
def turn(cores: Sequence[int], queues: Path | None, longest_wait: float = LONGEST_WAIT) -> Iterator[int]:
    """Wait for a turn at one of the cores, that with the shortest queue; yields the core.

    Args:
        cores: which may be used, the preferred one first.
        queues: `folder()`; without one, nobody waits.
        longest_wait: seconds after which the turn begins even if it is not free.
    """
    if queues is None:
        yield cores[0]
        return
    core = min(cores, key=lambda one: len(_waiting(queues / str(one))))
    try:
        place, descriptor = _queue_up(queues / str(core))
    except OSError:  # the disk is full, the folder is gone
        yield core
        return
    try:
        _wait(place, longest_wait)
        yield core
    finally:
        with contextlib.suppress(OSError):
            place.unlink()
        os.close(descriptor)


def _waiting(queue: Path) -> list[int]:
    """Numbers in a queue, in order."""
    try:
        return sorted(int(name) for name in os.listdir(queue) if name.isdigit())
    except OSError:
        return []


def _queue_up(queue: Path) -> tuple[Path, int]:
    """Take the next number of a queue; return its file and the locked descriptor."""
    queue.mkdir(mode=0o700, exist_ok=True)
    door = os.open(queue / "door", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(door, fcntl.LOCK_EX)  # for a moment: numbers are given one at a time
        number = max(_waiting(queue), default=0) + 1
        place = queue / str(number)
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return place, descriptor
    finally:
        os.close(door)


def _wait(place: Path, longest: float) -> None:
    end = time.monotonic() + longest
    while time.monotonic() < end:
        before = [number for number in _waiting(place.parent) if number < int(place.name)]
        if not any(_held(place.parent / str(number)) for number in before):
            return
        time.sleep(_LOOK)


def _held(place: Path) -> bool:
    """Whether somebody alive holds a place; a place of the dead is cleared away."""
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        with contextlib.suppress(OSError):
            place.unlink()
        return False
    finally:
        os.close(descriptor)
