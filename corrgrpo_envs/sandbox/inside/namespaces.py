"""Private namespaces: own mounts with nothing but Python in them, own processes, no network."""

import os
import signal

from .paths import folders_to_hide, folders_to_show
from .syscalls import PR_SET_PDEATHSIG, call, mount, prctl, unmount_detached, unshare

_MOUNTS, _USERS, _PROCESSES = 0x20000, 0x10000000, 0x20000000
_NETWORK, _IPC, _HOSTNAME = 0x40000000, 0x08000000, 0x04000000
_PIVOT_ROOT = 155  # x86-64; elsewhere the attempt fails and the layer is reported missing
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18


def allowed() -> bool:
    """Whether all of `enter` works here; tried in a child, so that a failure half-way harms nothing."""
    child = os.fork()
    if child == 0:
        try:
            _leave_namespaces()
            _private_root()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def enter() -> int:
    """Enter new namespaces; on return this process is number 1 of its own.

    The process that called stays outside, waits, and ends when the inner one does.

    Returns:
        A descriptor of the process file system, which is not mounted anywhere; -1 where there is none.

    Raises:
        OSError: if the kernel refuses.
    """
    _leave_namespaces()
    _private_root()
    inner = os.fork()
    if inner:
        # Nothing of the stream may stay open here: the caller must see the end of the inner process.
        for descriptor in (0, 1):
            os.close(descriptor)
        os.waitpid(inner, 0)
        os._exit(0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != 0:  # 0: the parent lives, outside this namespace
        os._exit(1)
    return _processes()


def _processes() -> int:
    try:
        mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    except OSError:  # not allowed in some containers
        return -1
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    unmount_detached("/proc")
    return descriptor


def _leave_namespaces() -> None:
    user, group = os.getuid(), os.getgid()
    flags = _MOUNTS | _PROCESSES | _NETWORK | _IPC | _HOSTNAME
    unshare(flags if user == 0 else flags | _USERS)
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def _private_root() -> None:
    """Make a root of an empty, read-only file system with the folders that Python needs bound into it."""
    mount(None, "/", None, _REC | _PRIVATE)
    root = "/tmp"  # covered in this mount namespace only
    shown = [(path, os.open(path, os.O_PATH)) for path in folders_to_show()]
    hidden = folders_to_hide()
    mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=4m,mode=755")
    for path, descriptor in shown:
        target = root + path
        os.makedirs(target, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", target, None, _BIND | _REC)
        os.close(descriptor)
        mount(None, target, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)
    for path in hidden:
        mount("tmpfs", root + path, "tmpfs", _RDONLY | _NOSUID | _NODEV | _NOEXEC, "size=4k,mode=755")
    os.mkdir(f"{root}/proc")
    os.mkdir(f"{root}/old")
    os.chdir(root)
    call(_PIVOT_ROOT, b".", b"old")
    os.chdir("/")
    unmount_detached("/old")
    os.rmdir("/old")
    mount(None, "/", None, _REMOUNT | _RDONLY | _BIND | _NOSUID | _NODEV)
