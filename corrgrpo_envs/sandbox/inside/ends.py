"""From how children ended and what was said to one report: outcome, message, times."""

import signal
from typing import Any

from .crew import Child


def verdict_of(report: dict[str, Any] | None, program: Child, judge: Child | None = None) -> dict[str, Any]:
    """Complete a report with the program's times; explain it where the program just vanished.

    Args:
        report: what the judge, or the program's process itself, said; None if nothing came.
        program: the program's child, ended.
        judge: the test's child, ended, where there was one.
    """
    end = program.end or {}
    times = {"cpu": end.get("cpu", 0.0), "wall": end.get("wall", 0.0), "memory": end.get("memory", 0)}
    if report is None:
        report = _judge_vanished(program, judge)
    if report["outcome"] == "gone":
        report = {**report, **_vanished(end, flooded=program.flooded)}
    return {"message": "", "calls": 0, **report, **times}


def _vanished(end: dict[str, Any], *, flooded: bool) -> dict[str, Any]:
    if flooded:
        return {"outcome": "output_limit", "message": "more bytes sent than a value may have"}
    if not end.get("ready"):
        return {"outcome": "infrastructure_error", "message": f"a child could not be set up: {end}"}
    if end["reason"] == "cpu" or -end["status"] == signal.SIGXCPU:
        return {"outcome": "timeout", "message": f"{end['cpu']:.1f} s of CPU time used"}
    if end["reason"] == "wall":
        return {"outcome": "timeout", "message": f"no end after {end['wall']:.1f} s"}
    if end["status"] < 0:
        name = signal.Signals(-end["status"]).name
        if name == "SIGKILL" and end["held"]:
            # Programs that are held can't send signals: the system did, for want of memory, or somebody else.
            return {"outcome": "infrastructure_error", "message": "the system killed the program", "killed": True}
        return {"outcome": "exception", "message": f"the program crashed: {name}"}
    return {"outcome": "exception", "message": "the program ended its process"}


def _judge_vanished(program: Child, judge: Child | None) -> dict[str, Any]:
    end = (judge.end if judge is not None else None) or {}
    if not end.get("ready"):
        return {"outcome": "infrastructure_error", "message": f"the judge could not be set up: {end}"}
    if (program.end or {}).get("reason"):
        return {"outcome": "gone"}
    if end["reason"]:
        return {"outcome": "timeout", "message": "the test's own checks take too long with this program's results"}
    return {"outcome": "infrastructure_error", "message": f"the judge ended without a verdict: {end}"}
