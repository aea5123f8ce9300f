"""The child that runs the program under test. It knows the program and the arguments, nothing else.

Whatever the program does to this process, it can only choose which frames leave it; they are read elsewhere, with
limits, as values to be compared.

| request | reply |
| --- | --- |
| `L` JSON: source, names | `K`, or a failure |
| `C` name, document of the arguments | `V` document of the result and of edited arguments, or a failure |
| `B` frames of calls: decode them all | `R` |
| `G`: make those calls | `D` |
| `F`: next result | as for `C` |
| `P` JSON: source: run as a program | `K`, or a failure |
| `Y` JSON: source, mode: parse or compile alone | `K`, or a failure |

Failures: `S` does not compile, `E` exception, `U` value that is not carried, `T` value too large.
"""

import ast
import atexit
import builtins
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from .decoder import Decoder
from .encoder import Encoder
from .frames import Channel, ClosedError, FrameBuffer, framed
from .openings import Opening, opened
from .own import Own
from .values import Bounds, TooLargeError, UnsupportedError, all_scalar, node_classes

_MESSAGE = 500
_REPEATS = 30
_REHEARSAL = (
    "import math\nfrom typing import *\nfrom collections import *\nclass A:\n    def f(self, *x): return x\nf = A().f\n"
)
_COMPILE_ERRORS = (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError)


def serve(channel: Channel, program: "Program") -> None:
    """Answer requests until the other end is gone."""
    while True:
        try:
            request = channel.receive()
        except ClosedError:
            return
        channel.send(program.answer(request))


class Program:
    """A loaded program and the calls that wait for their time."""

    def __init__(self, openings: list[Opening] | None = None) -> None:
        self._openings = openings or []
        self._functions: dict[str, Callable[..., Any]] = {}
        self._classes: dict[str, type] = {}
        self._bounds = Bounds()
        self._own = Own()
        self._prepared: list[Call] = []
        self._results: list[bytes] = []
        # Bound here, before the program has run a line.
        self._threading: Any = sys.modules["threading"]
        self._actions: dict[bytes, Callable[[bytes], bytes]] = {
            b"L": self._load,
            b"C": self._call,
            b"B": self._prepare,
            b"G": self._go,
            b"F": self._fetch,
            b"P": self._run,
            b"Y": self._check,
        }

    def answer(self, request: bytes) -> bytes:
        """Do what a frame asks for and return the reply's frame."""
        return self._actions[request[:1]](request[1:])

    def _load(self, body: bytes) -> bytes:
        job = json.loads(body)
        self._bounds = Bounds(size=job["value_bytes"])
        namespace, failure = self._executed("solution", job["source"])
        if failure is not None:
            return failure
        try:
            self._functions = {name: eval(path, namespace) for name, path in job["names"].items()}
        except BaseException as error:
            return described(error)
        self._classes = node_classes(namespace)
        # Matches of patterns are returned where a test wants something true.
        self._own = Own((re.Match, *(found for found in self._functions.values() if type(found) is type)))
        return b"K"

    def _executed(
        self, name: str, source: str, leave: type[BaseException] | tuple[()] = ()
    ) -> tuple[dict[str, Any], bytes | None]:
        """Run a source as a module; return its namespace, and a failure's frame or None."""
        try:
            module, code = opened(self._openings, source)
        except _COMPILE_ERRORS as error:
            return {}, b"S" + described(error)[1:]
        module.__name__ = name
        sys.modules[name] = module
        namespace = module.__dict__
        namespace["__builtins__"] = builtins  # not this module's copy
        try:
            exec(code, namespace)
        except leave:
            pass
        except BaseException as error:
            return namespace, described(error)
        return namespace, None

    def _call(self, body: bytes) -> bytes:
        call = Call(self._functions, self._classes, self._bounds, self._own, body)
        call.run()
        return call.reply()

    def _prepare(self, body: bytes) -> bytes:
        buffer = FrameBuffer(len(body))
        buffer.feed(body)
        while (frame := buffer.pop()) is not None:
            self._prepared.append(Call(self._functions, self._classes, self._bounds, self._own, frame[1:]))
        return b"R"

    def _go(self, body: bytes) -> bytes:
        for call in self._prepared:
            call.run()
        return b"D"

    def _fetch(self, body: bytes) -> bytes:
        return self._prepared.pop(0).reply()

    def _run(self, body: bytes) -> bytes:
        _, failure = self._executed("__main__", json.loads(body)["source"], leave=SystemExit)
        if failure is not None:
            return failure
        try:
            self._leave()
        except BaseException as error:
            return described(error)
        return b"K"

    def _leave(self) -> None:
        """What an interpreter does at its end: wait for threads, call exit functions, write out what was printed."""
        for thread in self._threading.enumerate():
            if thread is not self._threading.main_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        for stream in (getattr(sys, "stdout", None), sys.__stdout__):
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()

    def _check(self, body: bytes) -> bytes:
        job = json.loads(body)
        flags = ast.PyCF_ONLY_AST if job["mode"] == "parse" else 0
        try:
            compile(job["source"], "<program>", "exec", flags, dont_inherit=True)
        except _COMPILE_ERRORS as error:
            return b"S" + described(error)[1:]
        return b"K"


class Call:
    """One call: arguments decoded at once, result kept until it is asked for."""

    def __init__(
        self, functions: dict[str, Callable[..., Any]], classes: dict[str, type], bounds: Bounds, own: Own, body: bytes
    ) -> None:
        name, document = body.split(b"\n", 1)
        _, self._attributes, self._text = document.split(b"\n")
        self._function = functions[name.decode()]
        self._classes, self._bounds, self._own = classes, bounds, own
        # What the test passes is limited by the test alone.
        decoder = Decoder(classes, [], Bounds(size=1 << 30, nodes=1 << 28), own.item)
        self._arguments = decoder.document(document)
        self._objects = decoder.objects
        self._result: Any = None
        self._failure: bytes | None = None

    def run(self) -> None:
        """Make the call."""
        positional, named = self._arguments
        try:
            self._result = self._function(*positional, **named)
        except BaseException as error:
            self._failure = described(error)

    def reply(self) -> bytes:
        """The result, and the arguments where they were edited."""
        if self._failure is not None:
            return self._failure
        # What the test passed may be edited and come back, however large it was.
        encoder = Encoder(self._classes, self._objects, self._bounds.plus(len(self._text)), self._own)
        known = len(self._objects)
        positional, named = self._arguments
        try:
            result = encoder.text(self._result)
            if len(result) > self._bounds.size:
                raise TooLargeError(f"a value of more than {self._bounds.size} bytes")
            edits = b""
            if known or not all_scalar(positional) or not all_scalar(list(named.values())):
                edits = encoder.text(self._arguments)
                edits = b"" if edits == self._text else edits
            attributes = encoder.attributes() if encoder.objects else b""
            attributes = b"" if attributes == self._attributes else attributes
            return b"V" + b"\n".join((encoder.new_classes(known), attributes, result, edits))
        except UnsupportedError as error:
            return b"U" + _clipped(error).encode()
        except TooLargeError as error:
            return b"T" + _clipped(error).encode()
        except BaseException as error:
            return described(error)


def described(error: BaseException) -> bytes:
    """An exception as a frame: names of its classes, message, line, missing module."""
    names = [cls.__name__ for cls in type.mro(type(error))]
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            line = trace.tb_lineno
        trace = trace.tb_next
    report = {
        "classes": names,
        "message": _clipped(error),
        "line": line,
        "missing": missing if type(missing) is str else None,
    }
    return b"E" + json.dumps(report).encode()


def _clipped(error: BaseException) -> str:
    try:
        text = str(error)
        return text[:_MESSAGE] if type(text) is str else ""
    except BaseException:
        return ""


def calls(frames: list[bytes]) -> bytes:
    """The body of a `B` request for a list of `C` requests."""
    return b"".join(map(framed, frames))


def rehearse() -> None:
    """Do a few times what every child does: code that has run is changed no more, and its pages stay shared."""
    load = {"source": _REHEARSAL, "names": {"candidate": "f"}, "value_bytes": 1 << 20}
    for _ in range(_REPEATS):
        program = Program([Opening(("import math\n",))])
        program.answer(b"L" + json.dumps(load).encode())
        program.answer(b"Ccandidate\n" + Encoder({}, [], Bounds()).document([[1, [2], "x"], {}]))
    del sys.modules["solution"]


def become_script() -> None:
    """Have what a script finds when it begins: its standard streams, and `exit` and `quit`."""
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogatepass", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    atexit._clear()  # what was registered here so far is not the program's


def run(descriptor: int, program: Program, *, printing: bool) -> None:
    """Serve over a descriptor with a program that is not loaded yet.

    With `printing` the standard streams are not those that were open already.
    """
    try:
        if printing:
            become_script()
        serve(Channel(descriptor), program)
    finally:
        os._exit(0)
