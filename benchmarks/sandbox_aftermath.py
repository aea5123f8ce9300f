"""Whether an attack slows down the job after it: an honest program's times before and right after each attack.

    python -m benchmarks.sandbox_aftermath                  # beside this process
    python -m benchmarks.sandbox_aftermath --host docker    # in a container; see tests/docker/engine.sh

The attacks are those of the tests. Before and after each of them, one honest program is judged; "before" follows
another honest job. Compared are the medians over all attacks, in wall time of the call and in CPU time of the program.
"""

import argparse
import importlib
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corrgrpo_envs.sandbox import Limits, Outcome, Sandbox

TESTS = Path(__file__).resolve().parents[1] / "tests" / "envs" / "sandbox"
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=3.0, memory_mb=512, value_bytes=4 << 20)
AMPLE = Limits(cpu_seconds=3.0, wall_seconds=10.0, memory_mb=512, value_bytes=4 << 20)


@dataclass(frozen=True)
class Job:
    """Milliseconds of an honest job: wall time of the call, CPU time of the program."""

    wall: float
    cpu: float


def honest(sandbox: Sandbox, program: str, check: Any) -> Job:
    start = time.perf_counter()
    verdict = sandbox.judge(program, check, LIMITS)
    wall = time.perf_counter() - start
    if not verdict.passed:
        raise RuntimeError(f"an honest program fails: {verdict}")
    return Job(1e3 * wall, 1e3 * verdict.cpu_seconds)


def shown(name: str, before: list[Job], after: list[Job]) -> str:
    cells = [
        statistics.median(getattr(job, clock) for job in jobs) for clock in ("wall", "cpu") for jobs in (before, after)
    ]
    return f"{name:34} {len(after):6} {cells[0]:8.1f} {cells[1]:8.1f} {cells[2]:8.1f} {cells[3]:8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", choices=("embedded", "docker"), default="embedded")
    parser.add_argument("--image", default="corrgrpo-sandbox:test", help="image of the docker host")
    parser.add_argument("--repeats", type=int, default=3, help="times that each attack is made")
    parser.add_argument("--worst", type=int, default=5, help="attacks to name: those with the slowest job after them")
    options = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    suite, tricks = importlib.import_module("sandbox_attacks"), importlib.import_module("sandbox_tricks")
    program, check = suite.HONEST["plain"], suite.HONEST_CHECK
    sandbox = Sandbox(options.host, workers=1, image=options.image)
    for _ in range(20):
        honest(sandbox, program, check)
    before: dict[str, list[Job]] = {}
    after: dict[str, list[Job]] = {}
    ends: dict[str, str] = {}
    for _ in range(options.repeats):
        for name, (attack, outcomes) in {**suite.ATTACKS, **tricks.TRICKS}.items():
            honest(sandbox, program, check)
            before.setdefault(name, []).append(honest(sandbox, program, check))
            verdict = sandbox.judge(attack, suite.CHECK, AMPLE if Outcome.MEMORY_LIMIT in outcomes else LIMITS)
            ends[name] = verdict.outcome.value
            after.setdefault(name, []).append(honest(sandbox, program, check))
    sandbox.close()
    print(f"{options.host}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'ms, median':34} {'jobs':>6} {'wall':>8} {'':8} {'CPU':>8}")
    print(f"{'attacks that end as':34} {'':6} {'before':>8} {'after':>8} {'before':>8} {'after':>8}")
    for end in sorted(set(ends.values())):
        names = [name for name in ends if ends[name] == end]
        print(shown(end, *([job for name in names for job in jobs[name]] for jobs in (before, after))))
    print(shown("all", *([job for found in jobs.values() for job in found] for jobs in (before, after))))
    worst = sorted(after, key=lambda name: statistics.median(job.wall for job in after[name]))[-options.worst :]
    for name in reversed(worst):
        print(shown(name, before[name], after[name]))


if __name__ == "__main__":
    main()
