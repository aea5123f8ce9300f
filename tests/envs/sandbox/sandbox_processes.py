"""Processes of workers, from the process file system, and files of programs."""

import os
import time
from pathlib import Path

from corrgrpo_envs.sandbox import Sandbox

PLACES = ("/", "/run", "/tmp", "/var/tmp", "/dev/shm")
_USERS = (range(20_000, 60_000), range(0x20000000, 0x30000000))  # numbers that workers of root take


def children(pid: int) -> list[int]:
    """All descendants of a process, from the process file system."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *children(int(entry.name))]
    return found


def worker_processes(sandbox: Sandbox) -> list[int]:
    """All processes of an embedded sandbox's workers."""
    pids = [worker._link._process.pid for worker in sandbox._workers]
    return [pid for top in pids for pid in (top, *children(top))]


def gone(pids: list[int], seconds: float = 20.0) -> bool:
    """Wait until no process of them runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def files_of_programs() -> list[str]:
    """Files in places where everybody may write that belong to users of the sandbox."""
    found = []
    for place in PLACES:
        for name in os.listdir(place) if os.path.isdir(place) else ():
            path = os.path.join(place, name)
            try:
                if any(os.lstat(path).st_uid in users for users in _USERS):
                    found.append(path)
            except OSError:
                continue
    return found
