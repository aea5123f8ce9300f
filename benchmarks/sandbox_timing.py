"""How well programs are timed while the machine is busy: pairs of known ratio, judged by `Sandbox.measure`.

    python -m benchmarks.sandbox_timing                 # a busy loop on the other core
    python -m benchmarks.sandbox_timing --hogs both     # and one on the core that is timed on

Ten kinds of work, each in pairs: equal (the same work, written once more), 10 % slower, twice slower. Printed is how
far off the measured ratios are, and how often an equal pair is judged more than 5 % apart.
"""

import argparse
import contextlib
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from corrgrpo_envs.sandbox import Check, Limits, Sandbox

KINDS = {"equal": 1.0, "10 % slower": 1.1, "twice slower": 2.0}
PORTION = 20  # calls are made of so many equal portions of work; 22 of them are 10 % more
SAMPLE = 0.006  # CPU seconds that the calls of a reference should take in one round
BAND = 0.05

WORK = {
    "loop": "s = 0\nfor i in range({n}): s += i * i % 7\nreturn s",
    "dict": "d = {{}}\nfor i in range({n}): d[i * 7 % 997] = d.get(i % 101, 0) + i\nreturn sum(d.values())",
    "text": "return len(''.join(str(i) for i in range({n})).replace('1', 'ab').split('2'))",
    "table": "t = [0] * 50\nfor i in range({n}): t = [max(p) for p in zip(t, t[1:] + [i])]\nreturn t[0]",
    "heap": "h = []\nfor i in range({n}): heapq.heappush(h, i * 31 % 97)\nreturn sum(heapq.heappop(h) for _ in h[::2])",
    "deque": "q = collections.deque(range(50))\nfor i in range({n}): q.append(q.popleft() + i)\nreturn q[0]",
    "greatest divisor": "return sum(math.gcd(i, 360360) for i in range({n}))",
    "sort": "return sorted((i * 7919 % 1000003 for i in range({n})), key=lambda x: -x)[3]",
    "objects": "class P:\n    def __init__(self, v): self.v = v\nreturn sum(P(i).v for i in range({n}))",
    "slices": "x = list(range(64))\nfor i in range({n}): x = x[1:] + x[:1]\nreturn x[0]",
}


@dataclass
class Result:
    """A measured pair."""

    expected: float
    ratio: float
    noise: float
    rounds: int


def program(body: str, n: int, portions: int, name: str = "part") -> str:
    lines = "\n".join("    " + line for line in body.format(n=n).split("\n"))
    return (
        f"import collections, heapq, math\ndef {name}():\n{lines}\n"
        f"def f():\n    for _ in range({portions}): result = {name}()\n    return result\n"
    )


def size(body: str) -> int:
    """A size at which one portion, made in this process, takes `SAMPLE / PORTION` seconds."""
    n = 4
    while True:
        names: dict[str, object] = {}
        exec(program(body, n, PORTION), names)
        start = time.process_time()
        names["f"]()  # type: ignore[operator]
        seconds = time.process_time() - start
        if seconds >= SAMPLE:
            return n
        n = max(n + 1, int(n * min(4.0, 1.2 * SAMPLE / max(seconds, 1e-6))))


@contextlib.contextmanager
def busy(cores: list[int]) -> Iterator[None]:
    """A busy loop on each of the cores."""
    loop = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-c", loop, str(core)]) for core in cores]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def measured(sandbox: Sandbox, body: str, n: int, factor: float, core: int) -> Result:
    reference = program(body, n, PORTION)
    candidate = program(body, n, round(PORTION * factor), name="portion")
    names: dict[str, object] = {}
    exec(reference, names)
    check = Check(f"def check(candidate):\n    assert candidate() == {names['f']()!r}", "f")  # type: ignore[operator]
    found = sandbox.measure(candidate, reference, check, Limits(cpu_seconds=10), core=core)
    if not found.measured:
        raise RuntimeError(f"{found.why}: {found.program}")
    return Result(factor, found.ratio, found.noise, len(found.rounds))


def shown(kind: str, results: list[Result]) -> str:
    errors = sorted(abs(math.log(one.ratio / one.expected)) for one in results)
    far = sum(error > BAND for error in errors) / len(errors)
    half = sum(one.ratio < 1 + (one.expected - 1) / 2 for one in results) / len(results)
    missed = f"{100 * half:.1f} %" if KINDS[kind] > 1 else ""
    largest = errors[math.ceil(0.95 * len(errors)) - 1]
    return (
        f"{kind:13} {len(results):6} {statistics.median(one.ratio for one in results):8.3f} "
        f"{100 * statistics.median(errors):7.1f} % {100 * largest:7.1f} % {100 * far:7.1f} % "
        f"{missed:>9} {statistics.mean(one.rounds for one in results):7.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="pairs of each kind for each of the ten sorts of work")
    parser.add_argument("--hogs", choices=("other", "both", "none"), default="other")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    core = cores[-1]
    hogs = {"other": cores[:-1], "both": cores, "none": []}[options.hogs]
    sizes = {name: size(body) for name, body in WORK.items()}
    print(
        f"Python {sys.version.split()[0]}, cores {cores}, timed on {core}, busy {hogs}, load {os.getloadavg()[0]:.1f}"
    )
    results: dict[str, list[Result]] = {kind: [] for kind in KINDS}
    start = time.perf_counter()
    sandbox = Sandbox("embedded", workers=1)
    with busy(hogs):
        for _ in range(options.repeats):
            for name, body in WORK.items():
                for kind, factor in KINDS.items():
                    results[kind].append(measured(sandbox, body, sizes[name], factor, core))
    sandbox.close()
    count = sum(map(len, results.values()))
    for line in (
        f"{'pairs':13} {'number':>6} {'ratio':>8} {'error':>9} {'95 % of':>9} {'beyond':>9} {'taken':>9} {'rounds':>7}",
        f"{'':13} {'':6} {'median':>8} {'median':>9} {'errors':>9} {'5 %':>9} {'for less':>9} {'mean':>7}",
    ):
        print(line)
    for kind, found in results.items():
        print(shown(kind, found))
    print(f"{(time.perf_counter() - start) / count:.2f} s a measurement")


if __name__ == "__main__":
    main()
