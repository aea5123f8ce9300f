"""What a person sees while a run goes on: a live display on a terminal, plain lines elsewhere, a summary."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import rich.console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from corrgrpo_train.config import Config

PLAIN_LINES = 50
"""About as many progress lines a whole run writes where there is no terminal."""


@dataclass(kw_only=True)
class Summary:
    """What is told at the end of a run.

    Attributes:
        run_dir: the run folder.
        validations: column title ("before", "after warm start", "after") to validation metrics, in order;
            keys with or without the prefix `validation/`.
        seconds: how long the run took.
        headline: what must be read first, e.g. that no group had a signal; may be empty.
        best_step: the step of the best checkpoint, where there is one.
        notes: further lines.
    """

    run_dir: Path
    validations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    seconds: float = 0.0
    headline: str = ""
    best_step: int | None = None
    notes: Sequence[str] = ()


class Console:
    """Shows a run; one method per event, in the order `start`, any of the others, `finish`.

    As a context manager it leaves the terminal as it was, also after an error.
    """

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
        self._title = f"{config.env}, {config.method_name}, seed {config.seed}"
        self._quiet = config.quiet if quiet is None else quiet
        if output is None:
            output = rich.console.Console(highlight=False)
            if not output.is_terminal:
                output.width = 120
        self._output = output
        self._clock = clock
        self._total, self._first, self._begun = 0, 0, 0.0
        self._names: tuple[str, ...] = ()
        self._live: Live | None = None
        self._validations: dict[str, dict[str, float]] = {}

    def start(self, total_steps: int, names: Iterable[str], first_step: int = 0) -> None:
        """Begin.

        Args:
            total_steps: training steps of the whole run.
            names: reward component names, in order.
            first_step: steps that were done before, for a resumed run.
        """
        self._total, self._first = total_steps, first_step
        self._names, self._begun = tuple(names), self._clock()
        if self._quiet:
            return
        if self._output.is_terminal:
            self._live = Live(console=self._output, refresh_per_second=4, transient=True)
            self._live.start()
            self._show(first_step, {}, {})
        else:
            self._print(f"{self._title}: {total_steps} steps, components {', '.join(self._names)}")

    def step(self, step: int, metrics: Mapping[str, float], timings: Mapping[str, float]) -> None:
        """Show a training step.

        Args:
            step: steps done, this one included.
            metrics: the row of `metrics.jsonl`: `reward/mean`, `components/NAME/mean`, …
            timings: the row of `timings.jsonl`; `tokens_per_second` is shown.
        """
        if self._quiet:
            return
        if self._live is not None:
            self._show(step, metrics, timings)
        elif step in (self._first + 1, self._total) or step % max(1, self._total // PLAIN_LINES) == 0:
            parts = [f"step {step}/{self._total}", f"reward {number(metrics.get('reward/mean'))}"]
            parts += [f"{name} {number(metrics.get(f'components/{name}/mean'))}" for name in self._names]
            parts += [f"{number(timings.get('tokens_per_second'), 0)} tokens/s", f"ETA {self._eta(step)}"]
            self._print("  ".join(parts))

    def validation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show a validation: `reward`, `components/NAME`, `metrics/NAME`, with or without `validation/`."""
        values = _bare(metrics)
        self._validations["first" if not self._validations else "latest"] = values
        if not self._quiet:
            self._print(
                "  ".join([f"validation after step {step}"] + [f"{k} {number(v)}" for k, v in values.items()])
            )

    def note(self, text: str) -> None:
        """Show one line, whatever the mode."""
        self._print(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the live display and leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def finish(self, summary: Summary) -> None:
        """End the live display and show the summary."""
        self.stop()
        if summary.headline:
            self._print(summary.headline)
        if summary.validations:
            self._output.print(_comparison(summary.validations, "Validation"))
        for note in summary.notes:
            self._print(note)
        best = f", best checkpoint after step {summary.best_step}" if summary.best_step is not None else ""
        self._print(f"{self._title}: {duration(summary.seconds)}{best}. Run folder: {summary.run_dir}")

    # ---- inside ------------------------------------------------------------------------------------------

    def _print(self, text: str) -> None:
        self._output.print(Text(printable(text)), soft_wrap=True)

    def _eta(self, step: int) -> str:
        done = step - self._first
        if done <= 0:
            return "-"
        return duration((self._clock() - self._begun) / done * (self._total - step))

    def _show(self, step: int, metrics: Mapping[str, float], timings: Mapping[str, float]) -> None:
        assert self._live is not None
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
            speed=number(timings.get("tokens_per_second"), 0),
            eta=self._eta(step),
        )
        table = Table(box=None, pad_edge=False)
        for title in ("", "mean", "spread", *(f"{title} validation" for title in self._validations)):
            table.add_column(title, justify="left" if not title else "right")
        rows = [("reward", "reward/mean", "reward/std", "reward")]
        rows += [(n, f"components/{n}/mean", f"components/{n}/std", f"components/{n}") for n in self._names]
        for label, mean, spread, key in rows:
            cells = [number(metrics.get(mean)), number(metrics.get(spread))]
            cells += [number(values.get(key)) for values in self._validations.values()]
            table.add_row(Text(printable(label)), *cells)
        self._live.update(rich.console.Group(progress, table))


def _comparison(columns: Mapping[str, Mapping[str, float]], title: str) -> Table:
    """One row per metric, one column per validation, and the change from the first to the last."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(Text(printable(name)), justify="right")
    bare = [_bare(values) for values in columns.values()]
    if len(bare) > 1:
        table.add_column("change", justify="right")
    for key in dict.fromkeys(key for values in bare for key in values):
        cells = [number(values.get(key)) for values in bare]
        if len(bare) > 1:
            before, after = bare[0].get(key), bare[-1].get(key)
            known = before is not None and after is not None and math.isfinite(after - before)
            cells.append(f"{after - before:+.3f}" if known else "-")  # type: ignore[operator]
        table.add_row(Text(printable(key)), *cells)
    return table


def _bare(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix("validation/"): value for name, value in metrics.items()}


def number(value: float | None, digits: int = 3) -> str:
    """The value for a person; a dash where it is missing or nan."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def duration(seconds: float) -> str:
    """Seconds as `45 s`, `3 min 20 s` or `2 h 05 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def printable(text: str) -> str:
    """The text without control characters: what an environment or a model wrote cannot steer the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)
