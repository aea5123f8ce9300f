"""The children that the broker has had started, as it sees them."""

import os
import select
import socket
from typing import Any

from . import cores, orders
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
        zygote: its process.
        stream: the caller's stream; when it ends, so does this process, and the children with it. While a request
            is being done, an empty frame now and then says that it is.
        held: whether the children's system calls are filtered.
    """

    def __init__(self, control: socket.socket, zygote: int, stream: Channel, *, held: bool) -> None:
        self._control = control
        self._zygote = zygote
        self._stream = stream
        self._held = held
        self._next = 0
        self._group = 1
        self._children: dict[int, Child] = {}
        self._staying: set[Child] = set()

    def begin(self) -> None:
        """A request begins: zygote, children and this process share a core."""
        cores.gather((self._zygote, *(child.pid for child in self._staying)))

    def spread(self) -> None:
        """What comes now is timed: nothing but what is timed needs a core of its own."""
        for process in (0, self._zygote):
            cores.release(process)

    def start(
        self, role: str, descriptors: list[int], limits: dict[str, Any], core: int | None = None, *, stays: bool = False
    ) -> Child:
        """Have a child started; it takes over the descriptors. One that stays outlives the request.

        Raises:
            LostError: if that fails.
        """
        self._next += 1
        child = Child(self._next, 0)
        self._children[child.number] = child
        if stays:
            self._staying.add(child)
        try:
            socket.send_fds(
                self._control,
                [
                    orders.start.pack(
                        orders.START,
                        child.number,
                        self._group,
                        orders.ROLES.index(role),
                        -1 if core is None else core,
                        limits["memory"],
                        limits["cpu"],
                        limits["wall"],
                    )
                ],
                descriptors,
            )
        except OSError as error:
            raise LostError(f"the zygote is gone: {error}") from None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        while not child.pid:
            self._listen()
        return child

    def renew(self, child: Child, limits: dict[str, Any]) -> None:
        """Give a child that stays the time for another request."""
        self._tell(orders.renew.pack(orders.RENEW, child.number, self._group, limits["cpu"], limits["wall"]))

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

    def stop(self, child: Child, resting: Child | None = None) -> None:
        """Kill a child and wait until it is gone; another one, that stays, needs no watching until it is renewed."""
        if child.end is None or resting is not None:
            self._tell(orders.stop.pack(orders.STOP, child.number, 0 if resting is None else resting.number))
        self.join(child)

    def join(self, child: Child) -> None:
        """Wait until a child is gone."""
        while child.end is None:
            self.wait()

    def stop_all(self) -> None:
        """Kill whatever still runs but for what stays: the request is done."""
        for child in list(self._children.values()):
            if child not in self._staying:
                self.stop(child)
        self._group += 1
        cores.release()  # so that the next request begins where there is room

    def _tell(self, order: bytes) -> None:
        try:
            self._control.send(order)
        except OSError as error:
            raise LostError(f"the zygote is gone: {error}") from None

    def _listen(self) -> None:
        try:
            message = self._control.recv(_REPORT)
        except OSError as error:
            raise LostError(f"the zygote is gone: {error}") from None
        kind = message[:1]
        if kind == orders.STARTED:
            _, number, pid = orders.started.unpack(message)
            self._children[number].pid = pid
        elif kind == orders.ENDED:
            _, number, status, reason, ready, cpu, wall, memory = orders.ended.unpack(message)
            child = self._children.pop(number)
            self._staying.discard(child)
            child.end = {
                "status": status,
                "reason": orders.REASONS[reason],
                "held": self._held,
                "ready": ready,
                "cpu": cpu,
                "wall": wall,
                "memory": memory,
            }
        elif kind == orders.FAILED:
            _, number = orders.failed.unpack_from(message)
            self._staying.discard(self._children.pop(number))
            raise LostError(f"no process could be started: {message[orders.failed.size :].decode()}")
        else:
            raise LostError("the zygote is gone")
