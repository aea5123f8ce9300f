"""The filter of system calls, x86-64: a list of what is allowed, all else fails with EPERM.

A program may compute, take memory, read what the file system lets it read, use the descriptors it was given and
(except where it is timed) start threads. There are no sockets, no new processes, no signals to anyone, no writable
opening of files and no timers in the list.
"""

import ctypes
import errno
import os
import platform
import struct

from .syscalls import PR_SET_SECCOMP, prepared_prctl

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_AUDIT_ARCH_X86_64 = 0xC000003E
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

# fmt: off
_FREE = (
    0, 1, 3, 19, 20, 17, 18, 8,              # read, write, close, readv, writev, pread64, pwrite64, lseek
    4, 5, 6, 262, 332, 21, 269, 439,         # stat, fstat, lstat, newfstatat, statx, access, faccessat, faccessat2
    78, 217, 79, 89, 267,                    # getdents, getdents64, getcwd, readlink, readlinkat
    7, 271, 23, 270, 232, 233, 281, 291,     # poll, ppoll, select, pselect6, epoll_wait, _ctl, _pwait, _create1
    22, 293, 32, 33, 292, 436,               # pipe, pipe2, dup, dup2, dup3, close_range
    9, 10, 11, 12, 25, 28,                   # mmap, mprotect, munmap, brk, mremap, madvise
    13, 14, 15, 131, 34,                     # rt_sigaction, rt_sigprocmask, rt_sigreturn, sigaltstack, pause
    24, 35, 230, 96, 201, 228, 229, 100,     # sched_yield, nanosleep, clock_nanosleep, times of day, clocks
    39, 110, 186, 102, 104, 107, 108, 111, 63, 97, 98, 204,  # who and where am I, uname, limits and usage
    202, 218, 273, 334, 318,                 # futex, set_tid_address, set_robust_list, rseq, getrandom
    60, 231,                                 # exit, exit_group
)
_FCNTL = (0, 1, 2, 3, 4, 1030)               # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_IOCTL = (0x5401, 0x5450, 0x5451, 0x541B)    # TCGETS (isatty), FIONCLEX, FIOCLEX, FIONREAD
# fmt: on
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | 0o20000000  # the last: O_TMPFILE
_CLONE_THREAD = 0x10000

RECEIVING = (47, 51)  # recvmsg, getsockname: the judge is given descriptors
_OPEN, _OPENAT, _IOCTL_CALL, _FCNTL_CALL, _CLONE, _CLONE3, _PRLIMIT = 2, 257, 16, 72, 56, 435, 302


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


class Filter:
    """A compiled filter, made once and installed by every child.

    Args:
        threads: whether threads may be started.
        also: numbers of further calls that are allowed.
    """

    def __init__(self, *, threads: bool = False, also: tuple[int, ...] = ()) -> None:
        code = b"".join(_instructions(threads=threads, also=also))
        self._buffer = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(code) // 8, ctypes.cast(self._buffer, ctypes.c_void_p).value)
        self.install = prepared_prctl(PR_SET_SECCOMP, 2, ctypes.byref(self._program))
        """Puts the process that makes the call under the filter, for good."""


def supported() -> bool:
    """Whether the list of calls is that of this machine."""
    return platform.machine() == "x86_64" and ctypes.sizeof(ctypes.c_void_p) == 8


def _step(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _end(action: int) -> bytes:
    return _step(_RETURN, 0, 0, action)


_DENY = _end(_ERRNO | errno.EPERM)
_PASS = _end(_ALLOW)


def _argument(index: int, *, high: bool = False) -> bytes:
    return _step(_LOAD, 0, 0, 16 + 8 * index + (4 if high else 0))


def _one_of(index: int, values: tuple[int, ...]) -> list[bytes]:
    steps = [_argument(index)]
    for value in values:
        steps += [_step(_EQUAL, 0, 1, value), _PASS]
    return [*steps, _DENY]


def _instructions(*, threads: bool, also: tuple[int, ...]) -> list[bytes]:
    return [
        _step(_LOAD, 0, 0, 4),
        _step(_EQUAL, 1, 0, _AUDIT_ARCH_X86_64),
        _end(_KILL),
        _step(_LOAD, 0, 0, 0),
        *_search(_borders(_rules(threads=threads, also=also))),
    ]


def _rules(*, threads: bool, also: tuple[int, ...]) -> dict[int, list[bytes]]:
    """What is done about each call that is not simply denied, by number; each ends in a return."""
    rules = {number: [_PASS] for number in (*_FREE, *also)}
    for number, flags in ((_OPEN, 1), (_OPENAT, 2)):
        rules[number] = [_argument(flags), _step(_ANY_BIT, 0, 1, _WRITING), _DENY, _PASS]
    rules[_FCNTL_CALL] = _one_of(1, _FCNTL)
    rules[_IOCTL_CALL] = _one_of(1, _IOCTL)
    # The C library falls back from clone3, whose flags a filter can't see, to clone.
    rules[_CLONE3] = [_end(_ERRNO | errno.ENOSYS)]
    if threads:
        rules[_CLONE] = [_argument(0), _step(_ANY_BIT, 1, 0, _CLONE_THREAD), _DENY, _PASS]
    # prlimit64 only to read one's own limits: process 0, no new value.
    reading = [_argument(0), _step(_EQUAL, 0, 5, 0), _argument(2), _step(_EQUAL, 0, 3, 0)]
    rules[_PRLIMIT] = [*reading, _argument(2, high=True), _step(_EQUAL, 0, 1, 0), _PASS, _DENY]
    return rules


def _borders(rules: dict[int, list[bytes]]) -> list[tuple[int, list[bytes]]]:
    """The numbers at which what is done changes, rising from 0; from the last on (x32 calls too) all is denied."""
    found = [(0, rules.get(0, [_DENY]))]
    for number in range(1, max(rules) + 2):
        rule = rules.get(number, [_DENY])
        if rule != found[-1][1]:
            found.append((number, rule))
    return found


def _search(borders: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """A binary search for the number: the kernel walks the filter for every call there is each time it is installed."""
    if len(borders) == 1:
        return borders[0][1]
    middle = len(borders) // 2
    below, above = _search(borders[:middle]), _search(borders[middle:])
    return [_step(_AT_LEAST, len(below), 0, borders[middle][0]), *below, *above]
