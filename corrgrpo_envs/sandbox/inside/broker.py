"""Takes requests from the caller, has children do them, and answers; one request at a time.

It holds the bytes of the current request, tests included, and is no ancestor of the children in the sense that
matters: the zygote was forked before the first request came in.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from io import FileIO
from typing import Any

from . import namespaces, textmatch, timing, zygote
from .bench import Bench
from .crew import Child, Crew, LostError
from .ends import verdict_of
from .frames import Channel, ClosedError, TooLongError
from .judge import failure
from .layers import CANDIDATE, Layers
from .syscalls import PR_SET_DUMPABLE, prctl

Trace = list[tuple[bytes, bytes]]
_RESULT_ROOM = 1 << 16


class Broker:
    """Does requests.

    Args:
        stream: frames from and to the caller.
        crew: starts the children.
    """

    def __init__(self, stream: Channel, crew: Crew) -> None:
        self._stream = stream
        self._crew = crew
        self._bench = Bench(crew)
        self._actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "judge": lambda job: self.judged(job)[0],
            "cases": self.cases,
            "measure": self.measure,
            "call": self.call,
            "check": self.check,
        }

    def serve(self) -> None:
        """Work until the caller is gone."""
        while True:
            try:
                job = json.loads(self._stream.receive())
            except ClosedError:
                os._exit(0)
            self._crew.begin()
            try:
                report = self._actions[job["op"]](job)
            except LostError as error:
                report = {"outcome": "infrastructure_error", "message": str(error), "lost": True}
            finally:
                self._crew.stop_all()
            self._stream.send(json.dumps(report).encode())

    def judged(self, job: dict[str, Any], *, record: bool = False) -> tuple[dict[str, Any], Trace]:
        """Run a test against a program; with `record`, also return the calls it made."""
        ours, theirs = socket.socketpair()
        with ours:
            program = self._crew.start(CANDIDATE, [theirs.detach()], job["limits"])
            judge, channel = self._bench.take({**job, "record": record}, ours)
        trace: Trace = []
        reply = self._crew.receive(channel, judge)
        report: dict[str, Any] | None = None if reply is None else json.loads(reply)
        for _ in range((report or {}).get("traced") or 0):
            pair = (self._crew.receive(channel, judge), self._crew.receive(channel, judge))
            trace.append((pair[0] or b"", pair[1] or b""))
        if report is None or report.pop("worn"):
            self._bench.dismiss()
        if report is not None and report["outcome"] == "gone":
            self._crew.join(program)
        self._crew.stop(program, resting=judge)
        return verdict_of(report, program, judge), trace

    def cases(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a program once for each input and compare what it prints; ends at the first failure."""
        total: dict[str, Any] = {"cpu": 0.0, "wall": 0.0, "memory": 0}
        report: dict[str, Any] = {"outcome": "passed", "message": ""}
        passed = 0
        for number, (given, expected) in enumerate(job["cases"]):
            report, printed = self._printed(job, given)
            for key in ("cpu", "wall"):
                total[key] += report[key]
            total["memory"] = max(total["memory"], report["memory"])
            if report["outcome"] == "passed" and not textmatch.same(printed, expected):
                report = {"outcome": "failed", "message": f"wrong output for input {number + 1}"}
            if report["outcome"] != "passed":
                break
            passed += 1
        return {**report, **total, "calls": passed}

    def _printed(self, job: dict[str, Any], given: str) -> tuple[dict[str, Any], str]:
        limits = job["limits"]
        ours, theirs = socket.socketpair()
        source = _input_file(given.encode("utf-8", "surrogatepass"))
        reader, writer = os.pipe()
        child = self._crew.start(CANDIDATE, [theirs.detach(), source, writer], limits)
        channel = Channel(ours.fileno(), limit=_RESULT_ROOM)
        report: dict[str, Any] = {"outcome": "gone"}
        with ours, open(reader, "rb", buffering=0) as printed:
            with contextlib.suppress(ClosedError):
                channel.send(b"P" + json.dumps({"source": job["program"]}).encode())
            output, reply = self._output(channel, child, printed, limits["output_bytes"])
        if len(output) > limits["output_bytes"]:
            report = {"outcome": "output_limit", "message": f"more than {limits['output_bytes']} bytes printed"}
        elif reply == b"K" or (reply is None and child.end is not None and child.end["status"] == 0):
            report = {"outcome": "passed", "message": ""}
        elif reply is not None:
            report = failure(reply)
        return verdict_of(report, child), output.decode("utf-8", "replace")

    def _output(self, channel: Channel, child: Child, printed: FileIO, limit: int) -> tuple[bytes, bytes | None]:
        """Read what a program prints until it says that it is done, or is gone; one byte more than the limit at most.

        Returns:
            The output, and the reply's frame if there was one.
        """
        output = bytearray()
        readers = {printed.fileno(), channel.reader}
        reply = None
        try:
            while readers and reply is None and len(output) <= limit:
                ready = self._crew.wait(*readers)
                if printed.fileno() in ready:
                    piece = printed.read(1 << 16)
                    output += piece
                    readers -= set() if piece else {printed.fileno()}
                if channel.reader in ready:
                    channel.read()
                    reply = channel.buffer.pop()
        except TooLongError:
            child.flooded = True
        except ClosedError:
            self._crew.join(child)
        self._crew.stop(child)
        while len(output) <= limit and (piece := printed.read(1 << 16)):  # what was left in the pipe
            output += piece
        return bytes(output[: limit + 1]), reply

    def measure(self, job: dict[str, Any]) -> dict[str, Any]:
        """Judge a program and its reference, then time both in alternated rounds."""
        sides = {}
        traces = []
        for side in ("reference", "program"):
            sides[side], trace = self.judged({**job, "program": job[side]}, record=True)
            traces.append(trace)
            if sides[side]["outcome"] != "passed":
                return {"sides": sides, "rounds": [], "why": f"the {side} does not pass"}
        if not all(traces):
            return {"sides": sides, "rounds": [], "why": "no calls to time, or too many bytes in them"}
        if [request for request, _ in traces[0]] != [request for request, _ in traces[1]]:
            return {"sides": sides, "rounds": [], "why": "the test called the two programs differently"}
        if any(b'{"o":' in request for request, _ in traces[0]):
            return {"sides": sides, "rounds": [], "why": "the test passes objects of the program's own classes"}
        self._crew.spread()
        rounds, why = timing.rounds(self._crew, job, traces[0], traces[1])
        return {"sides": sides, "rounds": rounds, "why": why}

    def call(self, job: dict[str, Any]) -> dict[str, Any]:
        """Load a program and call one function; the value's document is part of the report."""
        requests = [b"L" + json.dumps(job["load"]).encode(), b"Ccall\n" + job["arguments"].encode("ascii")]
        return self._asked(job, requests)

    def check(self, job: dict[str, Any]) -> dict[str, Any]:
        """Parse or compile a source."""
        return self._asked(job, [b"Y" + json.dumps({"source": job["program"], "mode": job["mode"]}).encode()])

    def _asked(self, job: dict[str, Any], requests: list[bytes]) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        child = self._crew.start(CANDIDATE, [theirs.detach()], job["limits"])
        channel = Channel(ours.fileno(), limit=job["limits"]["value_bytes"] * 2 + _RESULT_ROOM)
        report: dict[str, Any] = {"outcome": "passed", "message": ""}
        with ours:
            for request in requests:
                try:
                    channel.send(request)
                    reply = self._crew.receive(channel, child)
                except ClosedError:
                    reply = None
                if reply is None:
                    report = {"outcome": "gone"}
                    break
                if reply[:1] == b"V":
                    report["value"] = reply[1:].decode("ascii", "replace")
                elif reply != b"K":
                    report = failure(reply)
                    break
            if report["outcome"] == "gone":
                self._crew.join(child)
            self._crew.stop(child)
        return verdict_of(report, child)


def _input_file(data: bytes) -> int:
    """A descriptor from which the data can be read."""
    descriptor = os.memfd_create("input")
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _processes() -> int:
    try:
        return os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return -1


def main(options: dict[str, Any]) -> None:
    """Become a worker: namespaces, zygote, requests."""
    worker = os.getpid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller's Ctrl-C is the caller's
    null = os.open(os.devnull, os.O_RDWR)
    private = bool(options["namespaces"]) and namespaces.allowed()
    processes = namespaces.enter() if private else _processes()
    prctl(PR_SET_DUMPABLE, 0)  # its memory, and the zygote's, are for nobody of the same user
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        ours.close()
        os.dup2(null, 0)  # no child and no hand-over may find the caller's stream there
        os.dup2(null, 1)
        layers = Layers(worker, private=private)
        zygote.warm(options["packages"])
        theirs.send(
            json.dumps(
                {
                    "namespaces": private,
                    "separate_users": layers.separate_users,
                    "landlock": layers.landlock,
                    "seccomp": layers.seccomp,
                    "no_new_privileges": layers.no_new_privileges,
                    "python": ".".join(map(str, sys.version_info[:3])),
                }
            ).encode()
        )
        zygote.run(theirs, layers, null, processes)
    theirs.close()
    stream = Channel(0, 1)
    hello = ours.recv(1 << 16)
    if not hello:
        os._exit(1)
    stream.send(hello)
    Broker(stream, Crew(ours, child, stream, held=json.loads(hello)["seccomp"])).serve()
