"""Processes of workers, from the process file system, and files of programs."""

import math
import os
import time
from pathlib import Path
from typing import Any

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
    """All processes of a sandbox's workers, the oldest of each worker first; in containers as the engine lists them."""
    links = [worker._link for worker in sandbox._workers]
    if sandbox.isolation().host == "docker":
        return [pid for link in links for pid in _contained(link._container)]
    pids = [link._process.pid for link in links]
    return [pid for top in pids for pid in (top, *sorted(children(top), key=_age))]


def _contained(container: Any) -> list[int]:
    listed = container.top(ps_args="-eo pid")
    place = listed["Titles"].index("PID")
    return sorted((int(row[place]) for row in listed["Processes"]), key=_age)


def _age(pid: int) -> tuple[float, int]:
    """Sorts the oldest process first; numbers alone do not, for they begin anew at their end."""
    try:
        started = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except OSError:
        return math.inf, pid
    return started, pid


def lasting(sandbox: Sandbox) -> int:
    """How many processes a worker has before it judges: broker and zygote, with namespaces one that stays outside."""
    isolation = sandbox.isolation()
    return 3 if isolation.namespaces and isolation.host == "embedded" else 2


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
