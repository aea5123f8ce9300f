"""The isolation that a worker reached, what each layer gives, and how to get more."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.errors import unknown

LEVELS = ("reduced", "basic", "strong", "full")

_MEANING = {
    "reduced": "limits of time, memory and processes alone: for development, not for programs you don't trust",
    "basic": "no sockets, processes, signals or writing (system calls filtered); the user's files can be read",
    "strong": "besides, no files but the standard library (Landlock)",
    "full": "besides, own mounts, processes and network (namespaces or a container)",
}
_TESTED = ("Linux", "x86_64")


class SandboxError(RuntimeError):
    """The sandbox can't be started; the message says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What holds a program.

    Attributes:
        host: `"embedded"` or `"docker"`.
        python: version of the interpreter that runs programs.
        namespaces: private mounts, processes, network (of the worker itself or of its container).
        separate_users: every worker has users of its own, another one for the test than for the program.
        landlock: version of Landlock in force, 0 without.
        seccomp: system calls are filtered.
        no_new_privileges: no program can gain rights.
    """

    host: str
    python: str
    namespaces: bool
    separate_users: bool
    landlock: int
    seccomp: bool
    no_new_privileges: bool

    @property
    def level(self) -> str:
        """`"reduced"`, `"basic"`, `"strong"` or `"full"`."""
        if not (self.seccomp and self.no_new_privileges):
            return "reduced"
        if not self.landlock:
            return "basic"
        return "full" if self.namespaces else "strong"

    def require(self, minimum: str) -> None:
        """Check that the level is at least `minimum`.

        Raises:
            ValueError: if there is no such level.
            SandboxError: if it is lower; the message says what is missing.
        """
        if minimum not in LEVELS:
            raise unknown("minimum", minimum, LEVELS)
        if LEVELS.index(self.level) < LEVELS.index(minimum):
            advice = "; ".join(text for text in map(str.strip, self._missing()) if text)
            raise SandboxError(
                f"the {self.host} sandbox reaches the level {self.level!r} here, {minimum!r} is asked for. {advice}. "
                f"Or accept it: minimum={self.level!r} ({_MEANING[self.level]})."
            )

    def lines(self) -> list[str]:
        """A report for people: level, layers, advice."""
        system = (platform.system(), platform.machine())
        tested = "the tested platform" if system == _TESTED else "not a tested platform: x86-64 Linux is"
        rows = [
            f"host          {self.host}, Python {self.python}, {' '.join(system)} ({tested})",
            f"level         {self.level}: {_MEANING[self.level]}",
        ]
        for name, on, gives in self._layers():
            rows.append(f"{name:13} {on:13} {gives}")
        rows += [f"to get more   {advice}" for advice in self._missing()]
        return rows

    def _layers(self) -> list[tuple[str, str, str]]:
        def on(there: bool) -> str:
            return "on" if there else "missing"

        return [
            ("limits", "on", "CPU time, memory, descriptors, written files and core dumps are bounded"),
            ("privileges", on(self.no_new_privileges), "no setuid program gives rights (no_new_privs)"),
            ("system calls", on(self.seccomp), "no sockets, processes, signals, tracing or writable files (seccomp)"),
            (
                "files",
                f"on, version {self.landlock}" if self.landlock else "missing",
                "nothing but the standard library can be read (Landlock; signals are scoped from version 6)",
            ),
            ("users", on(self.separate_users), "program and test run as different users that own nothing"),
            ("namespaces", on(self.namespaces), "other files, processes and networks do not exist for the program"),
        ]

    def _missing(self) -> list[str]:
        advice = []
        if not self.seccomp:
            advice.append("system calls: the filter exists for x86-64 Linux; elsewhere use the docker host")
        if not self.landlock:
            advice.append("files: Landlock needs Linux 5.13 with CONFIG_SECURITY_LANDLOCK, or use the docker host")
        if not self.namespaces:
            advice.append(
                "namespaces: run as root with CAP_SYS_ADMIN, allow unprivileged user namespaces "
                "(sysctl kernel.unprivileged_userns_clone=1), or use the docker host"
            )
        if not self.separate_users and self.host == "embedded":
            advice.append("users: run as root; without, the filter of system calls keeps programs off the test")
        return advice


def isolation(host: str, hello: Mapping[str, Any]) -> Isolation:
    """Build from a worker's first message; a container is a namespace of its own."""
    layers = {**hello, "namespaces": hello["namespaces"] or host == "docker"}
    return Isolation(host=host, **layers)
