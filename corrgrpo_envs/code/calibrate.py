"""Measures how long the references of a data set take on this machine, for `efficiency="stored"`.

    python -m corrgrpo_envs.code.calibrate --dataset builtin --output runtimes.json

Each reference is judged a few times as answers are, one program at a time; its time is the mean of the CPU times, as in
CorrGRPO's calibration. The file is written aside and renamed every few tasks: a second call goes on where one was
stopped. It names the machine, and no call mixes the times of two.
"""

import argparse
import hashlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from corrgrpo_envs.code.problems import REFERENCES, CodeProblem
from corrgrpo_envs.code.sources import problems
from corrgrpo_envs.datasets import read_rows
from corrgrpo_envs.errors import DatasetError, shown
from corrgrpo_envs.sandbox import HOSTS, Limits, Outcome, Sandbox, SandboxError
from corrgrpo_envs.tasks import Task

RUNS = 4
_SAVED_EVERY = 20  # tasks

Times = dict[str, dict[str, Any]]  # rows by task id


def calibrate(
    tasks: Iterable[Task[CodeProblem]],
    reference: Callable[[CodeProblem], str | None],
    sandbox: Sandbox,
    *,
    limits: Limits,
    runs: int = RUNS,
    done: Mapping[str, Mapping[str, Any]] | None = None,
    save: Callable[[Times], None] | None = None,
) -> Times:
    """Measure the references of tasks.

    Args:
        tasks: the tasks.
        reference: gives a task's reference program, or None.
        sandbox: where they run.
        limits: of each run; the environment's.
        runs: runs of each reference; all must pass.
        done: rows of an earlier call; a row is kept if program, test and number of runs are the same.
        save: called with all rows now and then, and at the end.

    Returns:
        For each task id a row: `task_id`, `status` (`ok`, `missing_reference`, or the outcome of a run that did not
        pass), `run_times_seconds`, `reference_runtime_seconds` (None unless `ok`), `runs_requested`, `measured` (a
        digest of program, test and limits), `machine`.

    Raises:
        SandboxError: if no sandbox can be started.
    """
    here = machine(sandbox)
    rows: Times = {task_id: dict(row) for task_id, row in (done or {}).items()}
    fresh = 0
    for task in tasks:
        program = reference(task.data)
        digest = _digest(task.data, program, limits)
        old = rows.get(task.id, {})
        if (old.get("measured"), old.get("runs_requested"), old.get("machine")) == (digest, runs, here):
            continue
        status, times = _measured(sandbox, task.data, program, limits, runs)
        rows[task.id] = {
            "task_id": task.id,
            "status": status,
            "runs_requested": runs,
            "run_times_seconds": times,
            "reference_runtime_seconds": statistics.fmean(times) if status == "ok" else None,
            "measured": digest,
            "machine": here,
        }
        fresh += 1
        if save is not None and fresh % _SAVED_EVERY == 0:
            save(rows)
    if save is not None:
        save(rows)
    return rows


def machine(sandbox: Sandbox) -> str:
    """What times depend on: processor, interpreter, where programs run and how they are held."""
    isolation = sandbox.isolation()
    return f"{_processor()}; Python {isolation.python}; {isolation.host}, {isolation.level}"


def read_times(path: Path) -> Times:
    """Read the rows that an earlier call wrote; none if there is no file.

    Raises:
        DatasetError: for a file that this module did not write.
    """
    if not path.exists():
        return {}
    rows: Times = {}
    for row in read_rows(path):
        row.require("machine", str)
        rows[row.require("task_id", str)] = dict(row)
    return rows


def write_times(path: Path, rows: Times) -> None:
    """Write rows aside and rename: the file is whole at any moment."""
    lines = [json.dumps(row) for row in rows.values()]
    text = "\n".join(lines) + "\n" if path.suffix == ".jsonl" else "[\n" + ",\n".join(lines) + "\n]\n"
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; 1 with a line on the error stream for wrong input or without a sandbox."""
    parser = argparse.ArgumentParser(
        prog="python -m corrgrpo_envs.code.calibrate", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--dataset", default="builtin", help="builtin, a file or folder of LeetCodeDataset, a hub id")
    parser.add_argument("--output", type=Path, required=True, help="file to write or go on with: .json or .jsonl")
    parser.add_argument("--reference", choices=sorted(REFERENCES), default="completion")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each reference (default {RUNS})")
    parser.add_argument("--time-limit", type=float, default=5.0, help="CPU seconds of a run (default 5)")
    parser.add_argument("--memory-limit", type=int, default=1024, help="MiB of a run (default 1024)")
    parser.add_argument("--sandbox", choices=HOSTS, default="auto")
    options = parser.parse_args(arguments)
    try:
        rows = _run(options)
    except (ValueError, OSError, SandboxError) as error:
        message = str(error).replace("cpu_seconds", "--time-limit").replace("memory_mb", "--memory-limit")
        sys.stderr.write(f"error: {' '.join(message.split())}\n")
        return 1
    usable = sum(row["status"] == "ok" for row in rows.values())
    sys.stdout.write(f"{options.output}: {len(rows)} tasks, {usable} with a time\n")
    for status in sorted({row["status"] for row in rows.values()} - {"ok"}):
        names = [task_id for task_id, row in rows.items() if row["status"] == status]
        more = "" if len(names) <= 10 else f" and {len(names) - 10} more"
        sys.stdout.write(f"{status}: {', '.join(names[:10])}{more}\n")
    return 0


def _run(options: argparse.Namespace) -> Times:
    output: Path = options.output
    if options.runs < 1:
        raise ValueError(f"--runs must be at least 1, not {options.runs}")
    if output.suffix not in (".json", ".jsonl"):
        raise ValueError(f"--output must end in .json or .jsonl, not {shown(output.name)}")
    if not output.resolve().parent.is_dir():
        raise ValueError(f"--output: there is no folder {output.resolve().parent}; make it first")
    tasks = problems(options.dataset)
    sandbox = Sandbox(options.sandbox, workers=1)
    try:
        done = read_times(output)
        for row in done.values():
            if row["machine"] != machine(sandbox):
                raise DatasetError(
                    f"{output} has times of another machine ({row['machine']}); this one is {machine(sandbox)}: "
                    "name another file"
                )
        return calibrate(
            tasks,
            REFERENCES[options.reference],
            sandbox,
            limits=Limits(cpu_seconds=options.time_limit, memory_mb=options.memory_limit),
            runs=options.runs,
            done=done,
            save=lambda rows: write_times(output, rows),
        )
    finally:
        sandbox.close()


def _measured(
    sandbox: Sandbox, problem: CodeProblem, program: str | None, limits: Limits, runs: int
) -> tuple[str, list[float]]:
    if program is None:
        return "missing_reference", []
    times: list[float] = []
    for _ in range(runs):
        verdict = sandbox.judge(problem.program(program), problem.check, limits)
        if verdict.outcome is not Outcome.PASSED:
            return verdict.outcome.value, times
        times.append(verdict.cpu_seconds)
    return "ok", times


def _digest(problem: CodeProblem, program: str | None, limits: Limits) -> str:
    parts = [problem.header, program, problem.test, problem.entry_point, limits.plain()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
