"""Runs of the trainer as processes, several at a time, with their progress."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from corrgrpo_train.config import Config
from corrgrpo_train.errors import UsageError

POLL = 0.5
"""Seconds between looks at the processes."""


@dataclass(frozen=True, eq=False)
class Job:
    """One run of the trainer.

    Attributes:
        label: what the user sees.
        config: settings, the run folder among them.
        folder: the run folder.
        prepare: makes ready and returns the command.
        finish: called when the run has ended well.
    """

    label: str
    config: Config
    folder: Path
    prepare: Callable[["Job"], list[str]]
    finish: Callable[[], None]

    @property
    def log(self) -> Path:
        """What the process says goes here."""
        return self.folder.parent / f"{self.folder.name}.log"


def run_jobs(jobs: Sequence[Job], at_once: int, what: str, *, show: bool = True) -> None:
    """Run all jobs.

    Processes are ended, and can be resumed, when this one is interrupted.

    Args:
        jobs: in the order in which they start.
        at_once: processes at a time.
        what: heading of the progress bar.
        show: whether to show it, on standard error.

    Raises:
        UsageError: if jobs failed, after the others have ended.
    """
    if not jobs:
        return
    waiting, running = list(jobs), dict[Job, subprocess.Popen[bytes]]()
    failed: list[Job] = []
    with _progress(what, len(jobs), show) as (advance, state), _ending_all(running):
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                running[job] = _started(job)
            time.sleep(POLL)
            for job, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[job]
                if process.returncode:
                    failed.append(job)
                else:
                    job.finish()
                advance(job.label, process.returncode)
            state("; ".join(f"{job.label}: {_reached(job)}" for job in running))
    if failed:
        raise UsageError(
            f"{len(failed)} of {len(jobs)} {what} failed, {failed[0].label} with: {_last_words(failed[0].log)} "
            f"(all it said: {failed[0].log}); what is done is kept, the same command does the rest"
        )


def _started(job: Job) -> subprocess.Popen[bytes]:
    words = job.prepare(job)
    with job.log.open("ab") as log:
        # A group of its own: an interrupt at the keyboard reaches this process alone, which then ends the others.
        return subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)


@contextmanager
def _ending_all(running: dict[Job, subprocess.Popen[bytes]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        for process in running.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _progress(what: str, count: int, show: bool) -> Iterator[tuple[Callable[[str, int], None], Callable[[str], None]]]:
    console = Console(stderr=True, quiet=not show)
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=console) as progress:
        task = progress.add_task(what, total=count, state="")
        begun = time.monotonic()

        def advance(label: str, code: int) -> None:
            progress.advance(task)
            ending = "done" if code == 0 else f"failed (status {code})"
            console.print(f"{label}: {ending} after {time.monotonic() - begun:.0f} s", highlight=False)

        yield advance, lambda state: progress.update(task, state=state)


def _reached(job: Job) -> str:
    """The latest step in the run's metrics."""
    row = _last_row(job.folder / "metrics.jsonl")
    return "starting" if row is None else f"step {row.get('step')} of {job.config.steps}"


def _last_row(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 20_000))
            lines = file.read().splitlines()
        row = json.loads(lines[-1])
    except (OSError, ValueError, IndexError):
        return None
    return row if isinstance(row, dict) else None


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return "nothing"
    words = [line for line in lines if line.strip()]
    errors = [line for line in words if "error" in line.lower()]
    return ((errors or words or ["nothing"])[-1]).removeprefix("corrgrpo_train: ")[:300]
