"""The warm interpreter that forks one child per program and watches it.

It is told what to start and receives the descriptors that the child will use; it never reads from them, so that no
child finds anything of another job in the memory it inherits.
"""

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from . import candidate, judge
from .layers import JUDGE, Layers, Limits

_FIRST = 3  # a child's own descriptors begin here
_HIGH = 100
_SHORTEST_WAIT = 0.005
_MESSAGE = 1 << 16

# What solutions usually import, loaded once.
_WARM = (
    *("typing", "functools", "collections", "itertools", "heapq", "bisect", "string", "operator", "math", "random"),
    *("re", "datetime", "copy", "dataclasses", "enum", "decimal", "fractions", "statistics", "io", "time"),
    *("threading", "abc", "contextlib", "numbers", "array", "cmath", "ast", "json", "types"),
)


@dataclass(slots=True)
class _Child:
    name: int
    pid: int
    process: int  # its pidfd
    ready: int  # a pipe on which it says that all layers are on
    cpu: float
    deadline: float
    started: float
    reason: str = ""
    due: float = 0.0
    group: int = 0


def clock(pid: int) -> float:
    """CPU seconds that a process has used, all threads."""
    return time.clock_gettime(((~pid) << 3) | 2)


class Zygote:
    """Starts children on request and reports how they end.

    Args:
        control: a socket that keeps message borders; requests with descriptors come in, reports go out.
        layers: what holds the children.
        null: the null device, open; a private root has none.
        processes: the process file system, open; -1 without.
    """

    def __init__(self, control: socket.socket, layers: Layers, null: int, processes: int) -> None:
        self._control = control
        self._layers = layers
        self._children: dict[int, _Child] = {}
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._null = null
        self._processes = processes
        self._waited: dict[int, dict[int, float]] = {}  # by group and process

    def serve(self) -> None:
        """Work until the control socket closes."""
        while True:
            for descriptor, _ in self._poll.poll(self._patience()):
                if descriptor == self._control.fileno():
                    self._obey()
                else:
                    self._bury(self._children[descriptor])
            self._watch()

    def _obey(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE, 8)
        except OSError:
            message, descriptors = b"", []
        if not message:
            for child in self._children.values():
                os.kill(child.pid, signal.SIGKILL)
            os._exit(0)
        request = json.loads(message)
        if "start" in request:
            self._start(request, descriptors)
        else:
            for child in self._children.values():
                if child.name in request["stop"]:
                    os.kill(child.pid, signal.SIGKILL)

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> None:
        limits = Limits(request["memory"], request["cpu"], request["core"])
        ready, said = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            self._report({"failed": request["start"], "message": str(error)})
            pid = -1
        if pid == 0:
            _child(request["role"], limits, self._layers, descriptors, said, self._null)
        for descriptor in (*descriptors, said):
            os.close(descriptor)
        if pid < 0:
            os.close(ready)
            return
        now = time.monotonic()
        child = _Child(
            request["start"],
            pid,
            os.pidfd_open(pid),
            ready,
            request["cpu"],
            now + request["wall"],
            now,
            due=now,
            group=request["group"],
        )
        self._waited = {child.group: self._waited.get(child.group, {})}
        self._children[child.process] = child
        self._poll.register(child.process, select.POLLIN)
        self._report({"started": child.name, "pid": pid})

    def _patience(self) -> float | None:
        """Milliseconds until the next look at a clock."""
        if not self._children:
            return None
        soonest = min(child.due for child in self._children.values())
        return max(0.0, soonest - time.monotonic()) * 1000 + 1

    def _watch(self) -> None:
        """Kill what has used up its time; CPU time grows at most as fast as a core's wall time allows."""
        now = time.monotonic()
        for child in self._children.values():
            if now < child.due:
                continue
            left = child.cpu - clock(child.pid)
            patience = child.deadline + self._starved(child) - now
            if not child.reason and (left <= 0 or patience <= 0):
                child.reason = "cpu" if left <= 0 else "wall"
                os.kill(child.pid, signal.SIGKILL)
            child.due = now + (1.0 if child.reason else max(_SHORTEST_WAIT, min(left, patience)))

    def _starved(self, child: _Child) -> float:
        """Seconds that the children of the request have waited for a core: no fault of theirs on a busy machine."""
        waited = self._waited.get(child.group, {})
        for other in self._children.values():
            if other.group == child.group:
                waited[other.pid] = max(waited.get(other.pid, 0.0), self._wait_of(other.pid))
        return sum(waited.values())

    def _wait_of(self, pid: int) -> float:
        """The longest wait for a core among a process's threads, seconds."""
        if self._processes < 0:
            return 0.0
        longest = 0.0
        try:
            folder = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._processes)
        except OSError:
            return 0.0
        try:
            for thread in os.listdir(folder):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    place = os.open(f"{thread}/schedstat", os.O_RDONLY, dir_fd=folder)
                    try:
                        longest = max(longest, int(os.read(place, 100).split()[1]) / 1e9)
                    finally:
                        os.close(place)
        finally:
            os.close(folder)
        return longest

    def _bury(self, child: _Child) -> None:
        wall = time.monotonic() - child.started
        _, status, usage = os.wait4(child.pid, 0)
        self._poll.unregister(child.process)
        del self._children[child.process]
        os.close(child.process)
        ready = bool(os.read(child.ready, 1))
        os.close(child.ready)
        self._report(
            {
                "ended": child.name,
                "status": os.waitstatus_to_exitcode(status),
                "reason": child.reason,
                "held": self._layers.seccomp,
                "ready": ready,
                "cpu": usage.ru_utime + usage.ru_stime,
                "wall": wall,
                "memory": usage.ru_maxrss * 1024,
            }
        )

    def _report(self, report: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(report).encode())
        except OSError:
            os._exit(0)


def _child(role: str, limits: Limits, layers: Layers, descriptors: list[int], said: int, null: int) -> None:
    """What a child does from its first moment on; never returns."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        standard = descriptors[1:3] if role != JUDGE and len(descriptors) > 1 else []
        own = descriptors if role == JUDGE else descriptors[:1]
        said = _rearrange([*own, said], standard, null) - 1
        layers.put_on(role, limits)
        for name in [name for name in sys.modules if name.startswith(__package__ or "")]:
            del sys.modules[name]
        os.write(said, b"!")
        os.close(said)
        if role == JUDGE:
            judge.run(_FIRST, _FIRST + 1)
        else:
            candidate.run(_FIRST)
    finally:
        os._exit(98)


def _rearrange(own: list[int], standard: list[int], null: int) -> int:
    """Put descriptors to 3, 4, ... and the standard streams to 0 and 1; close all else but the ruleset's.

    Returns:
        The number after the last of `own`.
    """
    own = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in own]
    standard = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in standard]
    null_high = fcntl.fcntl(null, fcntl.F_DUPFD, _HIGH)
    for place in range(3):
        os.dup2(standard[place] if place < len(standard) else null_high, place)
    for place, descriptor in enumerate(own, _FIRST):
        os.dup2(descriptor, place)
    end = _FIRST + len(own)
    os.closerange(end, 200)
    return end


def warm(packages: list[str]) -> None:
    """Import what programs usually import."""
    for name in (*_WARM, *packages):
        with contextlib.suppress(ImportError):
            __import__(name)


def run(control: socket.socket, layers: Layers, null: int, processes: int) -> None:
    """Be the zygote; never returns."""
    for finder in sys.meta_path:  # programs find the packages that are theirs, not what runs them
        found = getattr(finder, "modules", {})
        for name in [name for name in found if name.startswith(__package__ or "")]:
            del found[name]
    gc.collect()
    gc.freeze()
    try:
        Zygote(control, layers, null, processes).serve()
    finally:
        os._exit(1)
