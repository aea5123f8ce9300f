"""How fast programs are judged, against a fresh interpreter and `docker exec` for each, and what an assert costs.

    python -m benchmarks.sandbox_speed                      # the built-in problems
    python -m benchmarks.sandbox_speed --rows FILE.jsonl.gz # rows with prompt, completion, test, entry_point
    python -m benchmarks.sandbox_speed --rows FILE.jsonl.gz --bare  # against the same checks without a sandbox

Every ratio compares what was measured in this run, on the same programs and tests. The fresh interpreter is `python -I`
fed with prompt, program and test, so it has no isolation at all; blocks of both sides alternate.
"""

import argparse
import concurrent.futures
import contextlib
import gzip
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from corrgrpo_envs.code.builtin import read_problems
from corrgrpo_envs.sandbox import Check, Limits, Sandbox

LIMITS = Limits(cpu_seconds=30.0)
CORES = 2
ASSERTS = 2000
BLOCK = 8
SHORT, LONG = 0.01, 5.0  # CPU seconds


@dataclass(frozen=True)
class Job:
    """A program with its test, for the sandbox and as one script."""

    name: str
    program: str
    check: Check

    @property
    def script(self) -> str:
        """Prompt, program, test and the call of the test."""
        return f"{self.program}\n{self.check.test}\ncheck({self.check.entry_point})\n"


def jobs(path: Path | None) -> list[Job]:
    if path is None:
        rows = [problem.row() for problem in read_problems()]
    else:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    return [
        Job(
            row["task_id"],
            f"{row['prompt']}\n{row['completion']}",
            Check(row["test"], row["entry_point"], setup=row["prompt"]),
        )
        for row in rows
    ]


def per_second(act: Callable[[Job], None], work: Sequence[Job], at_once: int) -> tuple[float, float]:
    """Jobs a second with so many threads that wait for them, and CPU seconds a job, all processes together."""
    start, spent = time.perf_counter(), _tree_seconds()
    with concurrent.futures.ThreadPoolExecutor(at_once) as threads:
        list(threads.map(act, work))
    return len(work) / (time.perf_counter() - start), (_tree_seconds() - spent) / len(work)


def in_sandbox(sandbox: Sandbox) -> Callable[[Job], None]:
    def act(job: Job) -> None:
        verdict = sandbox.judge(job.program, job.check, LIMITS)
        if not verdict.passed:
            raise RuntimeError(f"{job.name}: {verdict}")

    return act


def fresh(job: Job) -> None:
    subprocess.run([sys.executable, "-I", "-"], input=job.script.encode(), check=True)


@contextlib.contextmanager
def docker_exec(image: str) -> Iterator[Callable[[Job], None]]:
    """`docker exec` of an interpreter in one container that stays."""
    flags = ["--network", "none", "--cap-drop", "ALL", "--user", "65534"]
    sleep = ["--entrypoint", "python3", image, "-c", "import time; time.sleep(3600)"]
    name = subprocess.run(["docker", "run", "-d", *flags, *sleep], check=True, capture_output=True, text=True)
    container = name.stdout.strip()

    def act(job: Job) -> None:
        command = ["docker", "exec", "-i", container, "python3", "-I", "-"]
        subprocess.run(command, input=job.script.encode(), check=True)

    try:
        yield act
    finally:
        subprocess.run(["docker", "rm", "-f", container], check=True, capture_output=True)


def compared(sides: dict[tuple[str, int], tuple[Callable[[Job], None], Sequence[Job]]], rounds: int) -> None:
    """Measure every side in each round and print medians; the first side is what the others are compared with."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {key: [] for key in sides}
    for act, work in sides.values():  # not measured: workers start, files are read
        per_second(act, work[:4], CORES)
    for _ in range(rounds):
        for (name, at_once), (act, work) in sides.items():
            found[name, at_once].append(per_second(act, work, at_once))
    rates = {key: statistics.median(rate for rate, _ in pairs) for key, pairs in found.items()}
    costs = {key: statistics.median(cost for _, cost in pairs) for key, pairs in found.items()}
    base = next(iter(sides))
    print(f"{'':24} {'at once':>8} {'per second':>11} {'times':>7} {'CPU ms each':>12} {'times less':>11}")
    for key in sides:
        inside = "docker" not in key[0]  # the work in containers is not this process's
        cpu = f"{1e3 * costs[key]:12.1f} {costs[base] / costs[key]:11.2f}" if inside else ""
        print(f"{key[0]:24} {key[1]:8} {rates[key]:11.1f} {rates[key] / rates[base]:7.2f} {cpu}")


def speed(work: Sequence[Job], image: str | None, rounds: int) -> None:
    print(f"{len(work)} programs, each with its own test; median of {rounds} rounds")
    some = work[:: max(1, len(work) // 24)]
    with contextlib.ExitStack() as stack:
        one, two = (Sandbox("embedded", workers=count) for count in (1, CORES))
        sides: dict[tuple[str, int], tuple[Callable[[Job], None], Sequence[Job]]] = {
            ("fresh python -I", 1): (fresh, some),
            ("fresh python -I", CORES): (fresh, some),
            ("sandbox, embedded", 1): (in_sandbox(one), work),
            ("sandbox, embedded", CORES): (in_sandbox(two), work),
        }
        if image is not None:
            contained = Sandbox("docker", workers=CORES, image=image)
            stack.callback(contained.close)
            act = stack.enter_context(docker_exec(image))
            sides["docker exec python -I", CORES] = (act, some[:12])
            sides["sandbox, docker", CORES] = (in_sandbox(contained), work)
        compared(sides, rounds)
        one.close()
        two.close()


def group(work: Sequence[Job], rounds: int, size: int = 8) -> None:
    """As in training: several programs of one problem in a row, whose test is compiled once."""
    repeated = [job for job in work[:: max(1, len(work) // 24)] for _ in range(size)]
    print(f"\ngroups of {size} programs of one problem")
    sandbox = Sandbox("embedded", workers=CORES)
    compared(
        {
            ("fresh python -I", CORES): (fresh, repeated[::4]),
            ("sandbox, embedded", CORES): (in_sandbox(sandbox), repeated),
        },
        rounds,
    )
    sandbox.close()


def asserts() -> None:
    """Cost of one more assert in a test."""
    check = "def check(candidate):\n    for n in range(%d):\n        assert candidate([n, 2, 3], k=n) == n"
    program = "def f(xs, k): return k"
    sandbox = Sandbox("embedded", workers=1)
    costs = []
    for _ in range(5):
        seconds = []
        for count in (1, ASSERTS):
            start = time.perf_counter()
            if not sandbox.judge(program, Check(check % count, "f"), LIMITS).passed:
                raise RuntimeError("the program should pass")
            seconds.append(time.perf_counter() - start)
        costs.append((seconds[1] - seconds[0]) / (ASSERTS - 1))
    print(f"\none more assert (short arguments): {1e6 * statistics.median(costs):.0f} us")
    sandbox.close()


def bare(work: Sequence[Job]) -> None:
    """CPU time of judging everything, against that of the same checks in an interpreter that is there already."""
    judged = unjudged = calls = 0.0
    long = []
    sandbox = Sandbox("embedded", workers=1)
    sandbox.isolation()
    for first in range(0, len(work), BLOCK):
        block = work[first : first + BLOCK]
        before = _tree_seconds()
        for job in block:
            verdict = sandbox.judge(job.program, job.check, LIMITS)
            calls += verdict.calls
            long += [job.name] if verdict.cpu_seconds > LONG else []
            if not verdict.passed:
                print(f"{job.name}: {verdict}")
        judged += _tree_seconds() - before
        unjudged += sum(map(_bare_seconds, block))
    sandbox.close()
    print(f"{len(work)} programs, {calls:.0f} calls; CPU time: judged {judged:.1f} s, bare {unjudged:.1f} s")
    print(f"{len(long)} need more than {LONG:.0f} s: {', '.join(long)}")
    print(f"ratio {judged / unjudged:.3f}; a program costs {1e3 * (judged - unjudged) / len(work):.1f} ms more")


def short(work: Sequence[Job]) -> Sequence[Job]:
    """The programs whose own work is short: with the others, all sides spend their time on the same."""
    kept = [job for job in work if _bare_seconds(job) <= SHORT]
    print(f"{len(kept)} of {len(work)} programs take {1e3 * SHORT:.0f} ms or less by themselves, tests included")
    return kept


def _bare_seconds(job: Job) -> float:
    """CPU seconds of a forked copy of this process that runs program and check."""
    child = os.fork()
    if child == 0:
        try:
            exec(compile(job.script, job.name, "exec"), {"__name__": "solution"})
            os._exit(0)
        finally:
            os._exit(1)
    _, status, usage = os.wait4(child, 0)
    if status:
        print(f"{job.name}: fails without the sandbox")
    return usage.ru_utime + usage.ru_stime


def _tree_seconds() -> float:
    """CPU seconds of this process and of all that it started, ended ones included."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ticks = 0
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended: its parent's children count it
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + ticks / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):  # processes and threads end while they are listed
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(OSError):
                children = (task / "children").read_text().split()
                found += [number for child in children for number in (int(child), *_descendants(int(child)))]
    return found


def image_of(name: str) -> str | None:
    """The image if an engine has it."""
    try:
        importlib.import_module("docker").from_env().images.get(name)
    except Exception as error:
        print(f"docker: skipped ({type(error).__name__}); see tests/docker/engine.sh")
        return None
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=Path, help="rows of a LeetCodeDataset file instead of the built-in problems")
    parser.add_argument("--every", type=int, default=1, help="take every n-th row")
    parser.add_argument("--start", type=int, default=0, help="begin with this row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("speed", "groups", "asserts"), help="one part alone")
    parser.add_argument("--short", action="store_true", help="leave out programs that compute for long themselves")
    parser.add_argument("--bare", action="store_true", help="CPU time against the same checks without a sandbox")
    parser.add_argument("--image", default="corrgrpo-sandbox:test", help="image for the docker comparison")
    options = parser.parse_args()
    work = jobs(options.rows)[options.start :: options.every]
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if options.short:
        work = short(work)
    if options.bare:
        bare(work)
        return
    if options.only in (None, "speed"):
        speed(work, image_of(options.image), options.rounds)
    if options.only in (None, "groups"):
        group(work, options.rounds)
    if options.only in (None, "asserts"):
        asserts()


if __name__ == "__main__":
    main()
