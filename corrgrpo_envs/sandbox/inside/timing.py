"""Alternated rounds of two programs, timed from outside.

Each side of each round is a fresh process on one core: load, decode the arguments, then the calls, then the results.
The CPU clock of the process is read by the broker at the borders of these phases, so nothing that happens in the
process can stretch or hide time; work done outside the calls is seen too. Results must be those of the judged run.
"""

import itertools
import json
import socket
import time
from typing import Any

from .candidate import calls
from .crew import Child, Crew
from .frames import Channel, ClosedError
from .layers import TIMED
from .zygote import clock

Trace = list[tuple[bytes, bytes]]
PHASES = ("load", "decode", "calls", "encode")
_ROOM = 1 << 28
_SPREAD = 0.05


class BrokenRoundError(Exception):
    """A timed run that is no measurement; the message says why."""


def rounds(
    crew: Crew, job: dict[str, Any], reference: Trace, program: Trace
) -> tuple[list[dict[str, dict[str, float]]], str]:
    """Time both sides, first one then the other, the order changing from round to round.

    After `rounds` rounds, more are made (up to `max_rounds`) while odd and even rounds disagree by more than 5 %.
    None begins, beyond the second, once `budget` seconds of CPU time are used.

    Returns:
        For each round and side the CPU seconds of every phase and the wall seconds of the calls, under
        `reference` and `program`; and why there are none, or an empty text.
    """
    traces = {"reference": reference, "program": program}
    done: list[dict[str, dict[str, float]]] = []
    spent = 0.0
    while len(done) < job["max_rounds"]:
        if len(done) >= 2 and spent >= job["budget"]:
            break
        if len(done) >= job["rounds"] and (len(done) % 2 or _agree(done)):
            break
        times = {}
        for side in ("reference", "program") if len(done) % 2 == 0 else ("program", "reference"):
            try:
                times[side] = _timed(crew, job, job[side], traces[side])
            except BrokenRoundError as broken:
                return done, f"{side}: {broken}"
            spent += sum(times[side][phase] for phase in PHASES)
        done.append(times)
    return done, ""


def _agree(done: list[dict[str, dict[str, float]]]) -> bool:
    ratios = []
    for half in (done[0::2], done[1::2]):
        sums = [sum(times[side]["calls"] for times in half) for side in ("program", "reference")]
        ratios.append(sums[0] / max(sums[1], 1e-9))
    return abs(ratios[0] - ratios[1]) <= _SPREAD * max(ratios)


def _timed(crew: Crew, job: dict[str, Any], source: str, trace: Trace) -> dict[str, float]:
    ours, theirs = socket.socketpair()
    # All arguments of the test lie in memory at once: room beyond the limit that the program was judged under.
    limits = {**job["limits"], "memory": job["limits"]["memory"] + _ROOM}
    child = crew.start(TIMED, [theirs.detach()], limits, job["core"])
    largest = limits["value_bytes"] + max(len(request) for request, _ in trace)
    channel = Channel(ours.fileno(), limit=2 * largest + (1 << 16))
    names = {"candidate": job["entry_point"], **{name: name for name in job["names"]}}
    load = json.dumps({"source": source, "names": names, "value_bytes": limits["value_bytes"]})
    with ours:
        try:
            begin = clock(child.pid)
            _ask(crew, channel, child, b"L" + load.encode(), b"K")
            loaded = clock(child.pid)
            _ask(crew, channel, child, b"B" + calls([request for request, _ in trace]), b"R")
            ready, wall = clock(child.pid), time.perf_counter()
            _ask(crew, channel, child, b"G", b"D")
            wall, finished = time.perf_counter() - wall, clock(child.pid)
            for _, reply in trace:
                _ask(crew, channel, child, b"F", reply)
            encoded = clock(child.pid)
        except (ClosedError, ProcessLookupError, OSError):
            raise BrokenRoundError("ended in the middle of a timed round") from None
        finally:
            crew.stop(child)
    borders = (begin, loaded, ready, finished, encoded)
    phases = dict(zip(PHASES, (after - before for before, after in itertools.pairwise(borders)), strict=True))
    return {**phases, "wall": wall}


def _ask(crew: Crew, channel: Channel, child: Child, request: bytes, expected: bytes) -> None:
    channel.send(request)
    reply = crew.receive(channel, child)
    if reply is None:
        raise BrokenRoundError("did not finish a timed round")
    if reply != expected:
        raise BrokenRoundError("gave another result in a timed round than when it was judged")
