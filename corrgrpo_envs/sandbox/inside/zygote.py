"""The warm interpreter that forks one child per program and watches it.

It is told what to start and receives the descriptors that the child will use; it never reads from them, so that no
child finds anything of another job in the memory it inherits.
"""

import contextlib
import fcntl
import gc
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

from . import candidate, cores, judge, orders
from .layers import CANDIDATE, JUDGE, Layers, Limits
from .openings import OPENINGS, Opening
from .syscalls import release_free_memory

_FIRST, _OWN = 3, 4  # a child's own descriptors begin here; so many at most
_HIGH, _HIGHEST = 100, 200  # the zygote's own, and the number below which a child closes all that is not its own
_SHORTEST_WAIT = 0.005
_MESSAGE = 1 << 16
_ROOM = socket.CMSG_SPACE(8 * 4)

# What solutions usually import, loaded once. What few of them import is left to them: all pay for what is loaded, each
# time that the process is copied.
_WARM = (
    *("typing", "functools", "collections", "itertools", "heapq", "bisect", "string", "operator", "math", "random"),
    *("re", "datetime", "copy", "dataclasses", "enum", "io", "time", "threading", "abc", "contextlib", "json", "types"),
)


class _Child:
    """A child that runs, and what it may still use.

    `due` is when its clocks are to be looked at next; `gathered`, whether it shares the core of its request.
    """

    __slots__ = (
        *("base", "cpu", "deadline", "due", "gathered", "group", "name", "pid", "process", "ready", "reason"),
        *("started", "waits"),
    )

    def __init__(self, name: int, group: int, pid: int, ready: int, cpu: float, wall: float, *, gathered: bool) -> None:
        self.name, self.group, self.pid, self.gathered = name, group, pid, gathered
        self.process = os.pidfd_open(pid)
        self.ready = ready  # a pipe on which it says that all layers are on
        self.reason = 0
        self.cpu = cpu
        self.base = 0.0  # seconds that it had waited for a core before this request
        self.waits = -1  # its file about that, once it was needed; for a child of one thread that stays
        self.started = time.monotonic()
        self.deadline = self.started + wall
        self.look_soon(cpu, wall)

    def look_soon(self, cpu: float, wall: float) -> None:
        """Set `due` at the start of a request that allows so many seconds."""
        patience = cores.PATIENCE if self.gathered else wall
        self.due = self.started + min(cpu, wall, patience)  # CPU time grows at most as fast as a core's wall time


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
        program: for the children, each of which has a copy.
    """

    def __init__(
        self, control: socket.socket, layers: Layers, null: int, processes: int, program: candidate.Program
    ) -> None:
        self._control = control
        self._layers = layers
        self._program = program
        self._children: dict[int, _Child] = {}
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._null = null
        self._processes = processes
        self._waited: dict[int, dict[int, float]] = {}  # by group and process

    def serve(self) -> None:
        """Work until the control socket closes."""
        control = self._control.fileno()
        while True:
            for descriptor, _ in self._poll.poll(self._patience()):
                if descriptor == control:
                    self._obey()
                else:
                    self._bury(self._children[descriptor])
            self._watch()

    def _obey(self) -> None:
        try:
            message, control, _, _ = self._control.recvmsg(_MESSAGE, _ROOM)
        except OSError:
            message, control = b"", []
        kind = message[:1]
        if kind == orders.START:
            self._start(message, struct.unpack(f"={len(control[0][2]) // 4}i", control[0][2]))
        elif kind == orders.STOP:
            _, number, resting = orders.stop.unpack(message)
            for child in self._children.values():
                if child.name == number:
                    os.kill(child.pid, signal.SIGKILL)
                elif child.name == resting:
                    child.due = math.inf
        elif kind == orders.RENEW:
            self._renew(message)
        else:
            for child in self._children.values():
                os.kill(child.pid, signal.SIGKILL)
            os._exit(0)

    def _start(self, message: bytes, descriptors: tuple[int, ...]) -> None:
        ready, said = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            self._report(orders.failed.pack(orders.FAILED, orders.start.unpack(message)[1]) + str(error).encode())
        if pid == 0:
            _child(message, self._layers, descriptors, said, self._null, self._program)
        for descriptor in descriptors:
            os.close(descriptor)
        os.close(said)
        if pid < 0:
            os.close(ready)
            return
        _, number, group, _, core, _, cpu, wall = orders.start.unpack(message)
        child = _Child(number, group, pid, ready, cpu, wall, gathered=core < 0)
        self._children[child.process] = child
        self._poll.register(child.process, select.POLLIN)
        self._report(orders.started.pack(orders.STARTED, number, pid))

    def _renew(self, message: bytes) -> None:
        """A child that stays gets the allowance of another request."""
        _, number, group, cpu, wall = orders.renew.unpack(message)
        for child in self._children.values():
            if child.name == number:
                child.group, child.base = group, self._waited_alone(child)
                child.cpu = clock(child.pid) + cpu
                child.started = time.monotonic()
                child.deadline = child.started + wall
                child.gathered = True
                child.look_soon(cpu, wall)

    def _patience(self) -> float | None:
        """Milliseconds until the next look at a clock."""
        soonest = math.inf
        for child in self._children.values():
            if child.due < soonest:
                soonest = child.due
        return None if soonest == math.inf else max(0.0, soonest - time.monotonic()) * 1000 + 1

    def _watch(self) -> None:
        """Kill what has used up its time."""
        now = time.monotonic()
        for child in self._children.values():
            if now < child.due:
                continue
            if child.gathered:
                child.gathered = False
                cores.release(child.pid)
            left = child.cpu - clock(child.pid)
            patience = child.deadline + self._starved(child) - now
            if not child.reason and (left <= 0 or patience <= 0):
                child.reason = 1 if left <= 0 else 2
                os.kill(child.pid, signal.SIGKILL)
            child.due = now + (1.0 if child.reason else max(_SHORTEST_WAIT, min(left, patience)))

    def _starved(self, child: _Child) -> float:
        """Seconds that the children of the request have waited for a core: no fault of theirs on a busy machine."""
        if child.group not in self._waited:
            self._waited = {child.group: {}}
        waited = self._waited[child.group]
        for other in self._children.values():
            if other.group == child.group:
                waited[other.pid] = max(waited.get(other.pid, 0.0), self._wait_of(other.pid) - other.base)
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

    def _waited_alone(self, child: _Child) -> float:
        """The wait for a core of a child that has one thread; the file stays open, which saves most of the time."""
        try:
            if child.waits < 0:
                child.waits = os.open(f"{child.pid}/schedstat", os.O_RDONLY, dir_fd=self._processes)
            return int(os.pread(child.waits, 100, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    def _bury(self, child: _Child) -> None:
        wall = time.monotonic() - child.started
        _, status, usage = os.wait4(child.pid, 0)
        self._poll.unregister(child.process)
        del self._children[child.process]
        os.close(child.process)
        if child.waits >= 0:
            os.close(child.waits)
        ready = bool(os.read(child.ready, 1))
        os.close(child.ready)
        cpu, code = usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and not child.reason and cpu >= child.cpu:
            child.reason = 1  # threads on several cores were faster than the watch; the kernel's limit ended them
        self._report(
            orders.ended.pack(orders.ENDED, child.name, code, child.reason, ready, cpu, wall, usage.ru_maxrss * 1024)
        )

    def _report(self, report: bytes) -> None:
        try:
            self._control.send(report)
        except OSError:
            os._exit(0)


def _child(
    message: bytes, layers: Layers, descriptors: tuple[int, ...], said: int, null: int, program: candidate.Program
) -> None:
    """What a child does from its first moment on; never returns."""
    try:
        _, _, _, kind, core, memory, cpu, _ = orders.start.unpack(message)
        role = orders.ROLES[kind]
        printing = role == CANDIDATE and len(descriptors) > 1
        own = descriptors[:1] if printing else descriptors
        if printing:
            for place, descriptor in enumerate(descriptors[1:3]):
                os.dup2(descriptor, place)
        said = _rearrange((*own, said), null)
        layers.put_on(role, Limits(memory, cpu, None if core < 0 else core))
        os.write(said, b"!")
        os.close(said)
        if role == JUDGE:
            judge.run(_FIRST)
        else:
            candidate.run(_FIRST, program, printing=printing)
    finally:
        os._exit(98)


def _rearrange(own: tuple[int, ...], null: int) -> int:
    """Put descriptors to 3, 4, ... and the null device to 2; close all else but the standard streams and the ruleset.

    Returns:
        The place of the last of `own`.
    """
    place = _FIRST - 1
    for descriptor in own:
        place += 1
        os.dup2(descriptor, place)
    os.dup2(null, 2)
    os.closerange(place + 1, _HIGHEST)
    return place


def _apart(descriptor: int) -> int:
    """A descriptor that lies above those that children rearrange."""
    apart = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(descriptor)
    return apart


def warm(packages: list[str]) -> None:
    """Import what programs usually import.

    Hooks that modules hang on forking are left out. `threading`'s tidies up after other threads, of which there are
    none, and costs every child a tenth of its time; `random`'s would give every program other random numbers.
    """
    register = os.register_at_fork
    os.register_at_fork = _no_hook
    try:
        for name in (*_WARM, *packages):
            with contextlib.suppress(ImportError):
                __import__(name)
        sys.modules["random"].seed(0)
    finally:
        os.register_at_fork = register


def _no_hook(**hooks: Any) -> None:
    """Stands for `os.register_at_fork`."""


def run(control: socket.socket, layers: Layers, null: int, processes: int) -> None:
    """Be the zygote; never returns."""
    for finder in sys.meta_path:  # programs find the packages that are theirs, not what runs them
        found = getattr(finder, "modules", {})
        for name in [name for name in found if name.startswith(__package__ or "")]:
            del found[name]
    openings = [Opening(lines) for lines in OPENINGS]
    candidate.become_script()
    candidate.rehearse()
    judge.prepare()
    for name in [name for name in sys.modules if name.startswith(__package__ or "")]:
        del sys.modules[name]
    layers.put_on_first()
    # What comes in for a child lies above the places to which the child moves it: one step for each, no collisions.
    control = socket.socket(fileno=_apart(control.detach()))
    null, processes = _apart(null), _apart(processes) if processes >= 0 else -1
    for place in (0, 1, *range(_FIRST, _FIRST + _OWN)):
        os.dup2(null, place)
    program = candidate.Program(openings)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # for the children; the zygote's session has no terminal
    gc.collect()
    release_free_memory()
    gc.freeze()
    try:
        Zygote(control, layers, null, processes, program).serve()
    finally:
        os._exit(1)
