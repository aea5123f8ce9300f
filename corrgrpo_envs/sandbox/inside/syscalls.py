"""System calls that the standard library does not wrap."""

import ctypes
import os
import struct
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
CAP_DAC_READ_SEARCH = 1 << 2
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def call(number: int, *arguments: object) -> int:
    """Make a system call by number.

    Raises:
        OSError: if the kernel refuses.
    """
    plain = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return _checked(int(_libc.syscall(ctypes.c_long(number), *plain)), f"system call {number}")


def prctl(option: int, *values: object) -> int:
    """Call prctl.

    Raises:
        OSError: if the kernel refuses.
    """
    plain = [ctypes.c_ulong(item) if isinstance(item, int) else item for item in values]
    plain += [ctypes.c_ulong(0)] * (4 - len(plain))
    return _checked(int(_libc.prctl(option, *plain)), f"prctl {option}")


class Prepared:
    """A call whose arguments are made once: making it then touches little memory, which counts after a fork."""

    __slots__ = ("_arguments", "_function", "_what")

    def __init__(self, what: str, function: Any, *arguments: object) -> None:
        self._what = what
        self._function = function
        self._arguments = tuple(ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)

    def __call__(self) -> None:
        """Make the call.

        Raises:
            OSError: if the kernel refuses.
        """
        if self._function(*self._arguments) < 0:
            _checked(-1, self._what)


def prepared_call(number: int, *arguments: object) -> Prepared:
    """A system call by number, to be made later."""
    return Prepared(f"system call {number}", _libc.syscall, number, *arguments)


def prepared_prctl(option: int, *values: object) -> Prepared:
    """A prctl, to be made later."""
    return Prepared(f"prctl {option}", _libc.prctl, option, *values, *(0,) * (4 - len(values)))


def keeping_capabilities(bits: int) -> Prepared:
    """Gives up all capabilities but those of the bits (which must be held)."""
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    data = struct.pack("IIIIII", bits, bits, 0, 0, 0, 0)
    return Prepared("capset", _libc.capset, header, data)


def current_core() -> int | None:
    """The number of the core that this process runs on, or None where the C library can't say."""
    asked = getattr(_libc, "sched_getcpu", None)
    core = -1 if asked is None else int(asked())
    return None if core < 0 else core


def unshare(flags: int) -> None:
    """Leave namespaces.

    Raises:
        OSError: if the kernel refuses.
    """
    _checked(int(_libc.unshare(flags)), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system.

    Raises:
        OSError: if the kernel refuses.
    """
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _checked(int(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])), f"mount {target}")


def unmount_detached(target: str) -> None:
    """Take a mount out of the tree.

    Raises:
        OSError: if the kernel refuses.
    """
    _checked(int(_libc.umount2(target.encode(), 2)), f"umount {target}")


def release_free_memory() -> None:
    """Give the system back what the C library keeps for later, where it can: a fork copies a table of every page."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
