"""Landlock: read access to a few folders, nothing else of the file system; no network, no signals outward."""

import fcntl
import os
import struct
from ctypes import create_string_buffer

from .paths import library_entries, shared_libraries, standard_library
from .syscalls import Prepared, call, prepared_call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_GET_VERSION = 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_HIGH_DESCRIPTOR = 200


def version() -> int:
    """The kernel's Landlock version; 0 without Landlock."""
    try:
        return call(_CREATE_RULESET, None, 0, _GET_VERSION)
    except OSError:
        return 0


def ruleset(abi: int, *, whole_library: bool) -> int:
    """Make the ruleset and return its descriptor, a high one.

    Args:
        abi: the kernel's version.
        whole_library: installed packages can't be seen anyway: one rule will do for the standard library, where
            otherwise each of its entries has one. The kernel copies all rules for every process that it holds.

    Raises:
        OSError: if the kernel refuses.
    """
    handled = (1 << 13) - 1  # everything the first version knows
    for since, bit in ((2, 13), (3, 14), (5, 15)):  # linking across folders, truncation, device control
        if abi >= since:
            handled |= 1 << bit
    network = 3 if abi >= 4 else 0  # binding and connecting TCP
    scopes = 3 if abi >= 6 else 0  # abstract unix sockets, signals
    attributes = struct.pack("QQQ", handled, network, scopes)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    made = call(_CREATE_RULESET, create_string_buffer(attributes[:size], size), size, 0)
    # Above all descriptors that a child rearranges.
    descriptor = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    os.close(made)
    library = standard_library()
    _allow(descriptor, library, _READ_FOLDER)  # its listing, for imports
    entries = [library] if whole_library else library_entries()
    for path in (*entries, *shared_libraries()):
        folder = os.path.isdir(path)
        _allow(descriptor, path, _READ_FILE | (_READ_FOLDER if folder else 0))
    return descriptor


def restricting(descriptor: int) -> Prepared:
    """Puts the process that makes the call under the ruleset, for good."""
    return prepared_call(_RESTRICT_SELF, descriptor, 0)


def _allow(descriptor: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a dangling link
        return
    try:
        rule = struct.pack("<Qi", access, place)
        call(_ADD_RULE, descriptor, 1, create_string_buffer(rule, len(rule)), 0)
    finally:
        os.close(place)
