"""The children of one request, as the broker sees them."""

import json
import os
import select
import socket
from typing import Any

from .frames import Channel, ClosedError, TooLongError

_REPORT = 1 << 16
_SIGN_OF_LIFE = 5000  # milliseconds


class LostError(Exception):
    """The zygote is gone or could not start a child: nothing that a program did."""


class Child:
    """A running child: its number, its process id inside the worker, how it ended, whether it sent too much."""

    def __init__(self, number: int, pid: int) -> None:
        self.number, self.pid = number, pid
        self.end: dict[str, Any] | None = None
        self.flooded = False


class Crew:
    """Starts children through the zygote and waits for what they say.

    Args:
        control: the socket to the zygote.
        stream: the caller's stream; when it ends, so does this process, and the children with it. While a request
            is being done, an empty frame now and then says that it is.
    """

    def __init__(self, control: socket.socket, stream: Channel) -> None:
        self._control = control
        self._stream = stream
        self._next = 0
        self._group = 0
        self._children: dict[int, Child] = {}

    def start(self, role: str, descriptors: list[int], limits: dict[str, Any], core: int | None = None) -> Child:
        """Have a child started; it takes over the descriptors.

        Raises:
            LostError: if that fails.
        """
        self._next += 1
        request = {
            "start": self._next,
            "group": self._group,
            "role": role,
            "cpu": limits["cpu"],
            "wall": limits["wall"],
            "memory": limits["memory"],
            "core": core,
        }
        child = Child(self._next, 0)
        self._children[child.number] = child
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        except OSError as error:
            raise LostError(f"the zygote is gone: {error}") from None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        while not child.pid:
            self._listen()
        return child

    def receive(self, channel: Channel, child: Child) -> bytes | None:
        """The next frame on the channel, or None if the child ends without one or sends too much."""
        try:
            while (frame := channel.buffer.pop()) is None:
                if self.wait(channel.reader):
                    channel.read()
        except ClosedError:
            return None
        except TooLongError:
            child.flooded = True
            self.stop(child)
            return None
        return frame

    def wait(self, *readers: int) -> set[int]:
        """Wait for news of children or for something to read; return the descriptors with something to read."""
        poll = select.poll()
        poll.register(self._stream.reader, select.POLLIN)
        poll.register(self._control.fileno(), select.POLLIN)
        for reader in readers:
            poll.register(reader, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(_SIGN_OF_LIFE)}
        if not ready:
            self._stream.send(b"")
        if self._stream.reader in ready:
            os._exit(0)  # the caller never speaks during a request: it is gone
        if self._control.fileno() in ready:
            self._listen()
        return ready.intersection(readers)

    def stop(self, *children: Child) -> None:
        """Kill the children and wait until they are gone."""
        running = [child.number for child in children if child.end is None]
        if running:
            try:
                self._control.send(json.dumps({"stop": running}).encode())
            except OSError as error:
                raise LostError(f"the zygote is gone: {error}") from None
        self.join(*children)

    def join(self, *children: Child) -> None:
        """Wait until the children are gone."""
        while any(child.end is None for child in children):
            self.wait()
        for child in children:
            self._children.pop(child.number, None)

    def stop_all(self) -> None:
        """Kill whatever still runs: the request is done."""
        self.stop(*list(self._children.values()))
        self._group += 1

    def _listen(self) -> None:
        try:
            message = self._control.recv(_REPORT)
        except OSError as error:
            raise LostError(f"the zygote is gone: {error}") from None
        if not message:
            raise LostError("the zygote is gone")
        report = json.loads(message)
        if "failed" in report:
            self._children.pop(report["failed"], None)
            raise LostError(f"no process could be started: {report['message']}")
        if "started" in report:
            self._children[report["started"]].pid = report["pid"]
        elif report["ended"] in self._children:
            self._children[report["ended"]].end = report
