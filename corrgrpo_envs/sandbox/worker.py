"""One worker: a process tree, here or in a container, that does one request at a time."""

import importlib.util
import json
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from corrgrpo_envs.sandbox.inside.frames import FrameBuffer, framed
from corrgrpo_envs.sandbox.isolation import Isolation, isolation

_REPLY = 1 << 28
_SILENCE = 300.0  # seconds; a worker at work says so every 5
_INSIDE = "inside"


class WorkerLostError(Exception):
    """The worker is gone, silent or could not be reached: nothing that a program did."""


class Link(Protocol):
    """A byte stream to a worker."""

    def send(self, data: bytes, timeout: float) -> None:
        """Send all bytes; raises OSError."""

    def receive(self, timeout: float) -> bytes:
        """Wait for some bytes; empty at the end of the stream; raises OSError."""

    def close(self) -> None:
        """End the worker and free what belongs to it."""

    def abandon(self) -> None:
        """Close this process's copy of the stream alone: after a fork the worker is the parent's."""

    def last_words(self) -> str:
        """What the worker wrote when it failed, shortened."""


class Worker:
    """Speaks to a worker that was just started.

    Args:
        host: the host's name, for reports.
        link: the stream to it.
        packages: pure Python packages that programs may import.
        namespaces: whether the worker should make namespaces of its own.
        start_seconds: how long its start may take.

    Raises:
        WorkerLostError: if it does not start.
    """

    def __init__(
        self, host: str, link: Link, packages: tuple[str, ...], *, namespaces: bool, start_seconds: float = 60.0
    ) -> None:
        self._link = link
        self._buffer = FrameBuffer(_REPLY)
        options = {"namespaces": namespaces, "packages": [name for name in packages if _sources(name)]}
        try:
            hello = self._exchange(
                {"modules": bundle(packages), "main": f"{_INSIDE}.broker", "options": options}, start_seconds
            )
        except WorkerLostError as error:
            words = self._link.last_words()
            self.close()
            raise WorkerLostError(f"the sandbox worker does not start: {error}. {words}".strip()) from None
        except BaseException:
            self.close()
            raise
        self.isolation: Isolation = isolation(host, hello)

    def request(self, job: dict[str, Any]) -> dict[str, Any]:
        """Have a request done.

        Raises:
            WorkerLostError: if the worker ends or gives no sign of life.
        """
        return self._exchange(job, _SILENCE)

    def close(self) -> None:
        """End the worker."""
        self._link.close()

    def abandon(self) -> None:
        """Forget the worker in a forked process."""
        self._link.abandon()

    def _exchange(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        try:
            self._link.send(framed(json.dumps(job).encode("ascii")), seconds)
            while not (frame := self._buffer.pop()):  # an empty frame is a sign of life
                if frame is None:
                    data = self._link.receive(seconds)
                    if not data:
                        raise WorkerLostError("it ended")
                    self._buffer.feed(data)
        except TimeoutError:
            raise WorkerLostError(f"no sign of life for {seconds:.0f} s") from None
        except OSError as error:
            raise WorkerLostError(f"no connection: {error or type(error).__name__}") from None
        reply: dict[str, Any] = json.loads(frame)
        return reply


def boot_program() -> str:
    """The text of the program with which a worker's interpreter begins."""
    return (_folder() / "boot.py").read_text(encoding="utf-8")


def bundle(packages: tuple[str, ...]) -> dict[str, str]:
    """The modules that a worker needs, as {name: source}."""
    modules = {
        _INSIDE if path.stem == "__init__" else f"{_INSIDE}.{path.stem}": path.read_text(encoding="utf-8")
        for path in sorted(_folder().glob("*.py"))
    }
    for package in packages:
        modules |= _sources(package)
    return modules


def _folder() -> Path:
    return Path(str(resources.files("corrgrpo_envs.sandbox.inside")))


def _sources(package: str) -> dict[str, str]:
    """The sources of an installed pure Python package; empty if it is not installed."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return {}
    if not found.submodule_search_locations:
        return {package: Path(found.origin).read_text(encoding="utf-8")}
    folder = Path(found.origin).parent
    sources = {}
    for path in sorted(folder.rglob("*.py")):
        parts = (package, *path.relative_to(folder).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        sources[name] = path.read_text(encoding="utf-8")
    return sources
