"""Workers as processes beside this one."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from typing import IO

from corrgrpo_envs.sandbox.isolation import SandboxError
from corrgrpo_envs.sandbox.worker import Worker, boot_program

NAME = "embedded"
# Hash order is the same in every worker: programs that iterate over sets give equal results. One arena for all threads:
# else the C library sets 64 MiB of a program's address space aside for each of them, and a few threads fill it.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "1"}
# No user site, no script folder on the path, no site module, no bytecode.
FLAGS = ("-s", "-P", "-S", "-B", "-X", "utf8")


class EmbeddedHost:
    """Starts workers as child processes.

    Args:
        packages: pure Python packages that programs may import.
        namespaces: whether to make namespaces where that is allowed.
        interpreter: the Python that runs programs; None is this process's.
        user: number of the user that workers run as, for a process that is root; None is this process's.
    """

    name = NAME

    def __init__(
        self,
        packages: tuple[str, ...],
        *,
        namespaces: bool = True,
        interpreter: str | None = None,
        user: int | None = None,
    ) -> None:
        self._packages = packages
        self._namespaces = namespaces
        self._interpreter = interpreter or sys.executable
        self._user = user

    def start(self) -> Worker:
        """Start a worker.

        Raises:
            SandboxError: where there is no way to.
            WorkerLostError: if it ends at once.
        """
        if os.name != "posix" or not sys.platform.startswith("linux"):
            raise SandboxError("the embedded sandbox needs Linux; elsewhere use sandbox='docker'")
        if not self._interpreter:
            raise SandboxError("the embedded sandbox needs sys.executable, the path of the interpreter")
        return Worker(self.name, _Process(self._interpreter, self._user), self._packages, namespaces=self._namespaces)


class _Process:
    """The stream to a child process."""

    def __init__(self, interpreter: str, user: int | None) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [interpreter, *FLAGS, "-c", boot_program()],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )

    def send(self, data: bytes, timeout: float) -> None:
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    def receive(self, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        return self._socket.recv(1 << 18)

    def close(self) -> None:
        self._socket.close()
        self._errors.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):  # its own session: the whole group is the worker's
                os.killpg(self._process.pid, 9)
            self._process.wait()

    def abandon(self) -> None:
        self._socket.close()
        self._errors.close()
        self._process.returncode = 0  # not this process's child: nothing to wait for

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read(4000).decode("utf-8", "replace").strip().splitlines()
        return " ".join(lines[-1:])
