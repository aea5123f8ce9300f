"""The judge that stays: one child runs the tests of many requests, so that a request forks for the program alone."""

import json
import os
import socket
from typing import Any

from .crew import Child, Crew
from .frames import Channel, ClosedError
from .layers import JUDGE

_MEMORY = 3 << 30
_LIFE = 3600.0  # CPU seconds; a judge asks to be replaced long before
_CPU, _WALL = 2.0, 10.0


class Bench:
    """Has a judge sit: started when there is none, replaced when it has ended or is worn.

    Args:
        crew: starts it.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._judge: Child | None = None
        self._stream: socket.socket | None = None

    def take(self, job: dict[str, Any], candidate: socket.socket) -> tuple[Child, Channel]:
        """Give the judge a job and the socket to the program's process; return it and the channel for its report.

        A judge that is gone by now is replaced; that costs the request nothing.

        Raises:
            LostError: if none can be started.
        """
        limits = job["limits"]
        # The judge spends time on comparing alone; what a program makes it spend beyond that is a timeout.
        allowance = {"cpu": limits["cpu"] + _CPU, "wall": limits["wall"] + _WALL}
        judge, stream = self._sitting()
        self._crew.renew(judge, allowance)
        try:
            socket.send_fds(stream, [b"J"], [candidate.fileno()])
            channel = Channel(stream.fileno())
            channel.send(json.dumps({**job, "value_bytes": limits["value_bytes"]}).encode())
        except (OSError, ClosedError):
            return judge, Channel(stream.fileno())  # the report will be missing, and why will be seen
        return judge, channel

    def dismiss(self) -> None:
        """Have another judge next time."""
        if self._judge is not None:
            self._crew.stop(self._judge)
        self._judge = None

    def _sitting(self) -> tuple[Child, socket.socket]:
        if self._judge is None or self._judge.end is not None or self._stream is None:
            if self._stream is not None:
                self._stream.close()
            self._stream, theirs = socket.socketpair()
            limits = {"cpu": _LIFE, "wall": _LIFE, "memory": _MEMORY}
            self._judge = self._crew.start(JUDGE, [os.dup(theirs.fileno())], limits, stays=True)
            theirs.close()
        return self._judge, self._stream
