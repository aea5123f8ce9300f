"""Workers in containers: one long-lived, hardened container each, spoken to over its attached streams.

Nothing is mounted into the container and nothing installed: it needs a Python, the rest comes over the stream.
"""

import contextlib
import importlib
import socket
import struct
from typing import Any

from corrgrpo_envs.sandbox.hosts.embedded import ENVIRONMENT, FLAGS
from corrgrpo_envs.sandbox.isolation import SandboxError
from corrgrpo_envs.sandbox.worker import Worker, boot_program

NAME = "docker"
IMAGE = "python:3.11-slim"
LABEL = "corrgrpo.sandbox"
_USER = "65534:65534"
_MEMORY = "6g"  # the test may take 3 GiB and the program its own limit; each is bounded by itself as well
# Broker, zygote, judge, and a program with its threads. Many more threads could fill a program's memory to the last
# page, and Python waits for ever for a thread that dies of that before it has begun.
_PROCESSES = 24


class DockerHost:
    """Starts workers as containers.

    Args:
        packages: pure Python packages that programs may import.
        image: an image with a `python3` on its path.
        base_url: the engine's address; None takes the environment's (`DOCKER_HOST`).
    """

    name = NAME

    def __init__(self, packages: tuple[str, ...], *, image: str = IMAGE, base_url: str | None = None) -> None:
        self._packages = packages
        self._image = image
        self._base_url = base_url
        self._client: Any = None

    def start(self) -> Worker:
        """Start a worker.

        Raises:
            SandboxError: without the SDK, an engine or the image.
            WorkerLostError: if it ends at once.
        """
        return Worker(self.name, _Container(self._engine(), self._image), self._packages, namespaces=False)

    def _engine(self) -> Any:
        if self._client is None:
            try:
                docker = importlib.import_module("docker")
            except ImportError:
                raise SandboxError("the docker sandbox needs the Docker SDK: pip install 'corrgrpo[docker]'") from None
            try:
                made = docker.DockerClient(base_url=self._base_url) if self._base_url else docker.from_env()
                made.ping()
            except Exception as error:
                raise SandboxError(f"no Docker engine answers ({_line(error)}); start one or set DOCKER_HOST") from None
            self._client = made
        return self._client


class _Container:
    """The stream to a container."""

    def __init__(self, client: Any, image: str) -> None:
        errors = importlib.import_module("docker.errors")
        try:
            self._container = client.containers.create(
                image,
                entrypoint=["python3"],
                command=[*FLAGS, "-c", boot_program()],
                stdin_open=True,
                environment=ENVIRONMENT,
                network_mode="none",
                read_only=True,
                working_dir="/",
                user=_USER,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                mem_limit=_MEMORY,
                memswap_limit=_MEMORY,
                pids_limit=_PROCESSES,
                auto_remove=True,
                labels={LABEL: "worker"},
            )
        except errors.ImageNotFound:
            raise SandboxError(
                f"the Docker engine has no image {image!r}: docker pull {image}, or name another that has python3"
            ) from None
        try:
            attached = self._container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            self._holder = attached
            self._socket: socket.socket = getattr(attached, "_sock", attached)
            self._container.start()
        except errors.APIError as error:
            self._remove()
            raise SandboxError(f"the Docker engine refuses to start a container: {_line(error)}") from None
        self._raw = bytearray()
        self._errors = bytearray()

    def send(self, data: bytes, timeout: float) -> None:
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    def receive(self, timeout: float) -> bytes:
        """Take the next piece of standard output from the engine's stream of labelled pieces."""
        self._socket.settimeout(timeout)
        while True:
            if len(self._raw) >= 8:
                kind, length = struct.unpack_from(">BxxxI", self._raw)
                if len(self._raw) >= 8 + length:
                    piece = bytes(memoryview(self._raw)[8 : 8 + length])
                    del self._raw[: 8 + length]
                    if kind == 1:
                        return piece
                    self._errors += piece[: max(0, 4000 - len(self._errors))]
                    continue
            data = self._socket.recv(1 << 18)
            if not data:
                return b""
            self._raw += data

    def close(self) -> None:
        self.abandon()
        self._remove()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        with contextlib.suppress(Exception):
            self._holder.close()

    def last_words(self) -> str:
        lines = self._errors.decode("utf-8", "replace").strip().splitlines()
        return " ".join(lines[-1:])

    def _remove(self) -> None:
        with contextlib.suppress(Exception):  # gone already: containers remove themselves when they end
            self._container.remove(force=True)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
