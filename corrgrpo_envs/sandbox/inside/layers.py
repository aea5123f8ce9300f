"""The layers that hold a child, put on in the child itself, the filter of system calls last."""

import functools
import glob
import math
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass

from . import landlock, seccomp
from .paths import standard_library
from .syscalls import (
    CAP_DAC_READ_SEARCH,
    PR_SET_DUMPABLE,
    PR_SET_KEEPCAPS,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    keeping_capabilities,
    prctl,
    prepared_prctl,
)

CANDIDATE, JUDGE, TIMED = "candidate", "judge", "timed"
_THREADS = 16
_STACK = 64 << 20
_DESCRIPTORS = 64
_SAME_FOR_ALL = ((resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_STACK, _STACK))
_FIRST_USER, _SMALL_USERS = 0x20000000, 20_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What one child may use: bytes of address space, CPU seconds, the core it is bound to."""

    memory: int
    cpu: float
    core: int | None = None


class Layers:
    """The layers that work here, tried once, and what they need, made once.

    Args:
        worker: a number that no other worker of this machine has.
        private: this process has a root of its own, without installed packages.

    Attributes:
        no_new_privileges, separate_users, landlock, seccomp: which are on; Landlock by its version, 0 without.
    """

    def __init__(self, worker: int, *, private: bool) -> None:
        self.no_new_privileges = _works(_no_new_privileges)
        self._user = _first_user(worker) if os.getuid() == 0 else None
        self.separate_users = self._user is not None
        # An interpreter in a folder of root's own: reading stays allowed, Landlock says what.
        self._kept = 0 if self._user is None or _works(functools.partial(_reads, self._user)) else CAP_DAC_READ_SEARCH
        self.landlock = landlock.version()
        self._ruleset = -1
        if self.landlock:
            try:
                self._ruleset = landlock.ruleset(self.landlock, whole_library=private)
            except OSError:
                self.landlock = 0
        self._restrict = landlock.restricting(self._ruleset)
        if self.landlock and not _works(self._restricted):
            self.landlock = 0
        self._filters = {}
        if seccomp.supported():
            self._filters = {
                CANDIDATE: seccomp.Filter(threads=True),
                JUDGE: seccomp.Filter(also=seccomp.RECEIVING),
                TIMED: seccomp.Filter(),
            }
        self.seccomp = bool(self._filters) and _works(lambda: _filtered(self._filters[TIMED]))
        self._steps = {role: self._steps_of(role) for role in (CANDIDATE, JUDGE, TIMED)}
        self._most = {what: resource.getrlimit(what)[1] for what in (resource.RLIMIT_AS, resource.RLIMIT_CPU)}

    def put_on_first(self) -> None:
        """Put on this process, which starts the children, what they inherit: less is left for each of them to do.

        Raises:
            OSError: if a layer that worked at the start fails now.
        """
        for what, value in _SAME_FOR_ALL:
            _lower(what, value)
        if self._user is not None:
            os.setgroups([])
            prctl(PR_SET_KEEPCAPS, 1 if self._kept else 0)
        if self.no_new_privileges:
            _no_new_privileges()

    def put_on(self, role: str, limits: Limits) -> None:
        """Hold this process, a child of one that has `put_on_first`; there is no way back.

        Raises:
            OSError: if a layer that worked at the start fails now.
        """
        if limits.core is not None:
            os.sched_setaffinity(0, {limits.core})
        # The CPU limit is a second net under the zygote's clock.
        for what, value in ((resource.RLIMIT_AS, limits.memory), (resource.RLIMIT_CPU, math.ceil(limits.cpu) + 2)):
            most = self._most[what]
            value = value if most == resource.RLIM_INFINITY or value < most else most
            resource.setrlimit(what, (value, value))
        for step in self._steps[role]:
            step()

    def _steps_of(self, role: str) -> tuple[Callable[[], object], ...]:
        steps: list[Callable[[], object]] = [functools.partial(_lower, resource.RLIMIT_NOFILE, _DESCRIPTORS)]
        if self._user is not None:
            user = self._user + (1 if role == JUDGE else 0)
            steps += [
                functools.partial(os.setresgid, user, user, user),
                functools.partial(os.setresuid, user, user, user),
            ]
            # Counts a user's threads: useful where the user is our own.
            steps += [functools.partial(_lower, resource.RLIMIT_NPROC, _THREADS)]
        # Those kept for reading, or those of a user namespace of our own.
        steps += [keeping_capabilities(self._kept)]
        steps += [prepared_prctl(PR_SET_DUMPABLE, 0), prepared_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)]
        if self.landlock:
            steps += [self._restrict]
        if self._ruleset >= 0:
            steps += [functools.partial(os.close, self._ruleset)]
        if self.seccomp:
            steps += [self._filters[role].install]
        return tuple(steps)

    def _restricted(self) -> None:
        _no_new_privileges()  # without it the kernel refuses
        self._restrict()


def _lower(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, value))


def _become(user: int, kept: int = 0) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    prctl(PR_SET_KEEPCAPS, 1 if kept else 0)
    os.setresuid(user, user, user)
    keeping_capabilities(kept)()


def _reads(user: int) -> None:
    _become(user)
    os.listdir(standard_library())
    for path in glob.glob(f"{standard_library()}/*.py"):
        os.close(os.open(path, os.O_RDONLY))


def _first_user(worker: int) -> int | None:
    """The first of two user numbers that nothing else on the machine uses, or None where they can't be taken."""
    for user in (_FIRST_USER + 2 * worker, _SMALL_USERS + 2 * (worker % 20_000)):
        if _works(functools.partial(_become, user)):
            return user
    return None


def _no_new_privileges() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def _filtered(wanted: seccomp.Filter) -> None:
    _no_new_privileges()
    wanted.install()
    try:
        os.kill(os.getpid(), 0)
    except PermissionError:
        return
    raise OSError("the filter does not hold")


def _works(attempt: Callable[[], object]) -> bool:
    """Whether an attempt succeeds, made in a child."""
    child = os.fork()
    if child == 0:
        try:
            attempt()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
