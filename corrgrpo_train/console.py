"""What a person sees while a run goes on: a live display on a terminal, plain lines elsewhere, a summary."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import rich.console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from corrgrpo_train.config import Config
from corrgrpo_train.errors import printable
from corrgrpo_train.outcome import outcome

PLAIN_LINES = 50
"""About as many progress lines a whole run writes where there is no terminal."""

COLUMNS = {"base": "before", "warm_start": "after warm start", "last": "after"}
"""Columns of the summary, by what the trainer calls these validations."""

NO_SIGNAL = (
    "No group had a signal: in none did two episodes that could be scored get different rewards, so nothing was "
    "learned. "
    "Try --warm-start, a larger --group-size or easier tasks."
)


class Console:
    """Shows a run; one method per event: `start`, any of the others, `finish`, and `close` in any case."""

    def __init__(
        self,
        config: Config,
        *,
        quiet: bool | None = None,
        output: rich.console.Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a console that shows nothing yet.

        Args:
            config: the run's configuration.
            quiet: show only notes and the summary; None takes it from the configuration.
            output: where to write; None is standard output.
            clock: seconds, for the remaining time.
        """
        self._title = f"{config.env}, {config.algorithm}, seed {config.seed}"
        self._quiet = config.quiet if quiet is None else quiet
        if output is None:
            output = rich.console.Console(highlight=False)
            if not output.is_terminal:
                output.width = 120
        self._output = output
        self._clock = clock
        self._total, self._begun = 0, self._clock()
        self._first: tuple[int, float] | None = None
        self._names: tuple[str, ...] = ()
        self._live: Live | None = None
        self._validations: dict[str, Mapping[str, float]] = {}

    def start(self, total_steps: int, names: Iterable[str] = ()) -> None:
        """Begin.

        Args:
            total_steps: training steps of the whole run.
            names: reward component names, in order; empty takes them from the first step's metrics.
        """
        self._total, self._names = total_steps, tuple(names)
        self._begun = self._clock()
        if self._quiet:
            return
        if self._output.is_terminal:
            self._live = Live(console=self._output, refresh_per_second=4, transient=True)
            self._live.start()
        else:
            self._print(f"{self._title}: {total_steps} step{'' if total_steps == 1 else 's'}")

    def step(self, step: int, metrics: Mapping[str, float], timings: Mapping[str, float]) -> None:
        """Show a training step.

        Args:
            step: steps done, this one included.
            metrics: the row of `metrics.jsonl`: `reward/mean`, `components/NAME/mean`, …
            timings: the row of `timings.jsonl`; the first `tokens_per_second…` is shown.
        """
        is_first = self._first is None
        if self._first is None:
            self._first = (step, self._clock())
        if not self._names:
            self._names = tuple(
                name.removeprefix("components/").removesuffix("/mean")
                for name in metrics
                if name.startswith("components/") and name.endswith("/mean")
            )
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(self._display(step, metrics, timings))
        elif is_first or step == self._total or step % max(1, self._total // PLAIN_LINES) == 0:
            parts = [f"step {step}/{self._total}", f"reward {number(metrics.get('reward/mean'))}"]
            parts += [f"{name} {number(metrics.get(f'components/{name}/mean'))}" for name in self._names]
            parts += [f"{speed(timings)} tokens/s", f"ETA {self._eta(step)}"]
            self._print("  ".join(parts))

    def validation(self, step: int, metrics: Mapping[str, float], phase: str = "train") -> None:
        """Show a validation.

        Args:
            step: training steps done.
            metrics: `reward`, `components/NAME`, `metrics/NAME`.
            phase: one of `tracking.PHASES`.
        """
        self._validations["first" if not self._validations else "latest"] = metrics
        if not self._quiet:
            when = {"base": "before training", "warm_start": "after the warm start"}.get(phase, f"after step {step}")
            self._print("  ".join([f"validation {when}"] + [f"{k} {number(v)}" for k, v in metrics.items()]))

    def note(self, text: str) -> None:
        """Show one line, whatever the mode."""
        self._print(text)

    def close(self) -> None:
        """End the live display and leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def finish(self, summary: Mapping[str, Any]) -> None:
        """End the live display and show the summary.

        Args:
            summary: `run_dir`; `validations`, phase to metrics, in which "last" is the last one of the run;
                `had_signal`, false if no group ever had an advantage; `best_step` of the best checkpoint. All
                but `run_dir` may be missing. What was learnt is read from the run folder.
        """
        self.close()
        if self._total and not summary.get("had_signal", True):
            self._print(NO_SIGNAL)
        validations = summary.get("validations", {})
        columns = {title: validations[phase] for phase, title in COLUMNS.items() if phase in validations}
        if columns:
            self._output.print(_comparison(columns))
        for line in outcome(Path(summary["run_dir"])):
            self._print(line)
        best = summary.get("best_step")
        best_note = "" if best is None else f", best checkpoint after step {best}"
        took = duration(self._clock() - self._begun)
        self._print(f"{self._title}: {took}{best_note}. Run folder: {summary['run_dir']}")

    # ---- inside ------------------------------------------------------------------------------------------

    def _print(self, text: str) -> None:
        self._output.print(Text(printable(text)), soft_wrap=True)

    def _eta(self, step: int) -> str:
        """Remaining time at the pace since the first step seen, what lies between steps included."""
        if step >= self._total:
            return "0 s"
        if self._first is None or step <= self._first[0]:
            return "-"
        first, then = self._first
        return duration((self._clock() - then) / (step - first) * (self._total - step))

    def _display(self, step: int, metrics: Mapping[str, float], timings: Mapping[str, float]) -> rich.console.Group:
        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]} tokens/s  ETA {task.fields[eta]}", markup=False),
            console=self._output,
        )
        progress.add_task(
            printable(self._title),
            total=self._total,
            completed=step,
            speed=speed(timings),
            eta=self._eta(step),
        )
        table = Table(box=None, pad_edge=False)
        for title in ("", "mean", "spread", *(f"{title} validation" for title in self._validations)):
            table.add_column(title, justify="right" if title else "left")
        rows = [("reward", "reward/mean", "reward/std", "reward")]
        rows += [(n, f"components/{n}/mean", f"components/{n}/std", f"components/{n}") for n in self._names]
        for label, mean, spread, key in rows:
            cells = [number(metrics.get(mean)), number(metrics.get(spread))]
            cells += [number(values.get(key)) for values in self._validations.values()]
            table.add_row(Text(printable(label)), *cells)
        return rich.console.Group(progress, table)


def _comparison(columns: Mapping[str, Mapping[str, float]]) -> Table:
    """One row per metric, one column per validation, and the change from the last but one to the last."""
    table = Table(title="Validation", title_justify="left")
    table.add_column("")
    for name in [*columns, *(["change"] if len(columns) > 1 else [])]:
        table.add_column(name, justify="right")
    values = list(columns.values())
    for key in dict.fromkeys(key for column in values for key in column):
        cells = [number(column.get(key)) for column in values]
        if len(columns) > 1:
            cells.append(number(values[-1].get(key, math.nan) - values[-2].get(key, math.nan), sign="+"))
        table.add_row(Text(printable(key)), *cells)
    return table


def speed(timings: Mapping[str, float]) -> str:
    """The first speed among the timings, in tokens per second."""
    return number(next((value for name, value in timings.items() if name.startswith("tokens_per_second")), None), 0)


def number(value: float | None, digits: int = 3, sign: str = "") -> str:
    """The value for a person; a dash where it is missing or nan."""
    return "-" if value is None or math.isnan(value) else f"{value:{sign}.{digits}f}"


def duration(seconds: float) -> str:
    """Seconds as `45 s`, `3 min 20 s` or `2 h 05 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
