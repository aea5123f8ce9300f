"""The child that runs the test. `candidate` is a proxy here: calls go to the program's own process.

One such child judges many programs, one after another: it runs tests, not programs, and a program can only send it
values. Each time the test's module is made anew. It defines `check(candidate)`. A verdict is decided by how `check`
ends, except that a program which broke the rules (is gone, sent rubbish or a value that is not carried) has failed
whatever the test made of it.
"""

import builtins
import itertools
import json
import os
import resource
import socket
import sys
import types
from collections import OrderedDict
from typing import Any, NoReturn

from .decoder import Decoder
from .edits import update
from .encoder import Encoder
from .frames import Channel, ClosedError, TooLongError
from .own import Handles
from .values import Bounds, MalformedError, node_classes

RECURSION_LIMIT = 20_000  # helpers that compare linked lists recurse once a node
_TRACE_BYTES = 64 << 20
_MESSAGE = 500
_FRAME = 1 << 16
_JOBS, _RESIDENT, _SECONDS = 2000, 512 << 10, 600.0  # a judge serves so long: jobs, KiB, CPU seconds
_KEPT, _KEPT_SOURCE = 32, 4 << 20  # compiled sources kept: number, characters

_BUILTINS: dict[str, Any] = {}
_codes: OrderedDict[tuple[str, str], types.CodeType] = OrderedDict()


class Stop(BaseException):
    """Ends the test: the program has broken the rules."""


class Candidate:
    """The program's end of the wire, as the test sees it through its proxies."""

    def __init__(self, channel: Channel, value_bytes: int) -> None:
        self.calls = 0
        self.errors: list[BaseException] = []
        self.failures: list[dict[str, Any]] = []
        self.broken: dict[str, Any] | None = None
        self.trace: list[tuple[bytes, bytes]] | None = None
        self.classes: dict[str, type] = {}
        self._channel = channel
        self._bounds = Bounds(size=value_bytes)
        self._handles = Handles()
        self._traced = 0

    def load(self, source: str, names: dict[str, str]) -> None:
        """Have the program loaded; the reply is read by `loaded`."""
        job = {"source": source, "names": names, "value_bytes": self._bounds.size}
        try:
            self._channel.send(b"L" + json.dumps(job).encode())
        except ClosedError:
            self._stop({"outcome": "gone"})

    def loaded(self) -> dict[str, Any] | None:
        """Wait for the program; return its failure or None."""
        reply = self._receive()
        return None if reply == b"K" else failure(reply)

    def call(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a function of the program."""
        if self.broken is not None:
            raise Stop
        encoder = Encoder(self.classes, [], Bounds(size=1 << 30, nodes=1 << 28))
        arguments = [list(positional), named]
        request = b"C" + name.encode() + b"\n" + encoder.document(arguments)
        try:
            self._channel.send(request)
        except ClosedError:
            self._stop({"outcome": "gone"})
        self._channel.buffer.limit = 2 * (self._bounds.size + len(request)) + _FRAME
        reply = self._receive()
        self.calls += 1
        self._record(request, reply)
        if reply[:1] != b"V":
            self._raise(failure(reply))
        try:
            return self._result(reply[1:], arguments, encoder.objects, self._bounds.plus(len(request)))
        except MalformedError as error:
            self._stop({"outcome": "failed", "message": f"the program sent what is no value: {error}"})

    def _result(self, body: bytes, arguments: list[Any], objects: list[Any], bounds: Bounds) -> Any:
        lines = body.split(b"\n")
        if len(lines) != 4:
            raise MalformedError("a result has four lines")
        decoder = Decoder(self.classes, objects, bounds, self._handles.handle)
        decoder.new_classes(lines[0])
        if lines[1]:
            decoder.attributes(lines[1])
        result = decoder.value(lines[2])
        if lines[3]:
            update(arguments, decoder.value(lines[3]))
        return result

    def _receive(self) -> bytes:
        try:
            return self._channel.receive()
        except ClosedError:
            self._stop({"outcome": "gone"})
        except TooLongError as error:
            self._stop({"outcome": "output_limit", "message": str(error)})

    def _raise(self, report: dict[str, Any]) -> NoReturn:
        """Raise in the test what the program raised, as the nearest built-in exception."""
        if report["outcome"] not in ("exception", "missing_package"):
            self._stop(report)
        error = _exception(report["classes"], report["message"])
        if error is None:
            self._stop(report)
        self.errors.append(error)
        self.failures.append(report)
        raise error

    def _record(self, request: bytes, reply: bytes) -> None:
        if self.trace is None:
            return
        self._traced += len(request) + len(reply)
        if self._traced > _TRACE_BYTES:
            self.trace = None
        else:
            self.trace.append((request, reply))

    def _stop(self, report: dict[str, Any]) -> NoReturn:
        self.broken = report
        raise Stop


class Proxy:
    """Stands for a function of the program."""

    def __init__(self, candidate: Candidate, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self._call = candidate.call

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call the function in the program's process."""
        return self._call(self.__name__, positional, named)


def failure(reply: bytes) -> dict[str, Any]:
    """What a failure's frame says; anything unreadable is the program's fault."""
    kind, body = reply[:1], reply[1:]
    if kind == b"U":
        text = body.decode("utf-8", "replace")[:_MESSAGE]
        return {"outcome": "failed", "message": f"the program returned {text}, which no test compares"}
    if kind == b"T":
        return {"outcome": "output_limit", "message": body.decode("utf-8", "replace")[:_MESSAGE]}
    report: Any = None
    if kind in (b"S", b"E") and len(body) < 1 << 16:
        try:
            report = json.loads(body)
        except (ValueError, RecursionError):
            report = None
    if not _is_report(report):
        return {"outcome": "failed", "message": "the program sent what is no reply"}
    line = report["line"]
    message = f"{report['classes'][0]}: {report['message']}" + (f" (line {line})" if type(line) is int else "")
    outcome = "syntax_error" if kind == b"S" else _outcome(report)
    missing = report["missing"] if outcome == "missing_package" else None
    return {
        "outcome": outcome,
        "message": message[: 2 * _MESSAGE],
        "missing": missing,
        "classes": report["classes"],
    }


def _outcome(report: dict[str, Any]) -> str:
    if report["classes"][0] == "MemoryError":
        return "memory_limit"
    missing = report["missing"]
    if "ModuleNotFoundError" in report["classes"] and missing and all(map(str.isidentifier, missing.split("."))):
        report["missing"] = missing.split(".")[0][:100]
        return "missing_package"
    return "exception"


def _is_report(report: Any) -> bool:
    if type(report) is not dict or set(report) != {"classes", "message", "line", "missing"}:
        return False
    names = report["classes"]
    return (
        type(names) is list
        and 0 < len(names) < 100
        and all(type(name) is str for name in names)
        and type(report["message"]) is str
        and (report["missing"] is None or type(report["missing"]) is str)
    )


def _exception(names: list[str], message: str) -> Exception | None:
    """The nearest built-in exception, made without its constructor; None for what ends an interpreter."""
    for name in names:
        cls = getattr(builtins, name, None)
        if isinstance(cls, type) and issubclass(cls, BaseException):
            if not issubclass(cls, Exception) or issubclass(cls, BaseExceptionGroup):
                return None
            error = cls.__new__(cls)
            error.args = (message,)
            return error
    return None


def judge(job: dict[str, Any], channel: Channel) -> tuple[dict[str, Any], list[tuple[bytes, bytes]] | None]:
    """Run the test against the program at the channel's other end; return the report and the calls made."""
    candidate = Candidate(channel, job["value_bytes"])
    if job["record"]:
        candidate.trace = []
    names = {"candidate": job["entry_point"], **{name: name for name in job["names"]}}
    report: dict[str, Any]
    try:
        candidate.load(job["program"], names)  # compiles there while the test compiles here
        check = _test(job, candidate, names)
        if isinstance(check, str):
            report = {"outcome": "invalid_test", "message": check}
        elif (failed := candidate.loaded()) is not None:
            report = failed
        else:
            report = _checked(check, Proxy(candidate, "candidate"), candidate)
    except Stop:
        report = {"outcome": "gone"}
    if candidate.broken is not None and report["outcome"] != "invalid_test":
        report = candidate.broken
    report["calls"] = candidate.calls
    return report, candidate.trace


def _test(job: dict[str, Any], candidate: Candidate, names: dict[str, str]) -> Any:
    """Define the test; return `check`, or why there is none."""
    module = types.ModuleType("test")
    sys.modules["test"] = module
    namespace = module.__dict__
    namespace["__builtins__"] = builtins
    try:
        exec(_compiled(job["setup"], "<setup>"), namespace)
        candidate.classes = node_classes(namespace)
        namespace.update({name: Proxy(candidate, name) for name in names if name != "candidate"})
        exec(_compiled(job["test"], "<test>"), namespace)
    except Stop:
        raise
    except BaseException as error:
        return f"the test can't be defined: {type(error).__name__}: {error}"[:_MESSAGE]
    check = namespace.get("check")
    return check if callable(check) else "the test defines no function check(candidate)"


def _compiled(source: str, name: str) -> types.CodeType:
    """Compile a source, or take what it was compiled to before: a test is used for many programs in a row."""
    code = _codes.pop((name, source), None)
    if code is None:
        code = compile(source, name, "exec", dont_inherit=True)
    _codes[name, source] = code
    while len(_codes) > _KEPT or (len(_codes) > 2 and sum(len(kept) for _, kept in _codes) > _KEPT_SOURCE):
        _codes.popitem(last=False)
    return code


def _checked(check: Any, proxy: Proxy, candidate: Candidate) -> dict[str, Any]:
    try:
        check(proxy)
    except Stop:
        return {"outcome": "gone"}
    except BaseException as error:
        for raised, report in zip(candidate.errors, candidate.failures, strict=True):
            if raised is error:
                return report
        text = f"{type(error).__name__}: {str(error)[:_MESSAGE]}{_where(error)}"
        if isinstance(error, AssertionError):
            return {"outcome": "failed", "message": text}
        if not candidate.calls:
            return {"outcome": "invalid_test", "message": f"the test fails before it calls the program: {text}"}
        return {"outcome": "test_error", "message": text}
    return {"outcome": "passed", "message": ""}


def _where(error: BaseException) -> str:
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<test>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" (line {line} of the test)"


def prepare() -> None:
    """What is done once, before the judges are forked."""
    _BUILTINS.update(vars(builtins))


def _as_new() -> None:
    """Undo what an earlier test may have done to the interpreter."""
    names = vars(builtins)
    names.update(_BUILTINS)
    for name in names.keys() - _BUILTINS.keys():
        del names[name]
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.modules["random"].seed(0)  # not imported above: it would hang a hook on forking, see `zygote.warm`


def _worn(jobs: int) -> bool:
    """Whether a fresh judge is better than this one."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return jobs >= _JOBS or usage.ru_maxrss > _RESIDENT or usage.ru_utime + usage.ru_stime > _SECONDS


def run(broker: int) -> None:
    """Take jobs from the broker's descriptor, one after another: judge, report.

    With each job comes a descriptor of its own to the program's process: nothing that a program sends is read as
    another's.
    """
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=broker)
    channel = Channel(broker)
    for count in itertools.count(1):
        _, descriptors, _, _ = socket.recv_fds(stream, 1, 1)
        if not descriptors:
            os._exit(0)
        _as_new()
        job = json.loads(channel.receive())
        candidate = Channel(descriptors[0], limit=job["value_bytes"] * 2 + _FRAME)
        try:
            report, trace = judge(job, candidate)
        finally:
            os.close(descriptors[0])
        report["traced"] = None if trace is None else len(trace)
        report["worn"] = _worn(count)
        channel.send(json.dumps(report).encode())
        for request, reply in trace or ():
            channel.send(request)
            channel.send(reply)
        del job, report, trace, candidate
