"""What a person sees while an evaluation goes on: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from corrgrpo_train.console import duration
from corrgrpo_train.errors import printable
from corrgrpo_train.evaluate.sample import Sample

PLAIN_LINES = 20
"""About as many lines an environment writes where there is no terminal."""


class Display:
    """Shows an evaluation; `close` in any case."""

    def __init__(self, console: Console, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """Show nothing yet.

        Args:
            console: where to write.
            quiet: show notes only.
            clock: seconds.
        """
        self._console, self._quiet, self._clock = console, quiet, clock
        self._bars: Bars | None = None
        self._name, self._done, self._total, self._begun = "", 0, 0, 0.0
        self._first, self._rewards, self._unscored, self._shown = 0, 0.0, 0, 0

    def begin(self, name: str, done: int, total: int) -> None:
        """Begin an environment, of whose episodes some are there already."""
        self.close()
        self._name, self._done, self._total, self._begun = name, done, total, self._clock()
        self._first, self._rewards, self._unscored, self._shown = done, 0.0, 0, 0
        there = f", {done} are there already" if done else ""
        if not self._quiet:
            self.note(f"{name}: {total} episodes{there}")
        if self._quiet or done == total or not self._console.is_terminal:
            return
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("mean reward {task.fields[reward]}  unscored {task.fields[unscored]}", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._bars.add_task(printable(name), total=total, completed=done, reward="-", unscored=0)
        self._bars.start()

    def advance(self, samples: Sequence[Sample]) -> None:
        """Show finished episodes."""
        self._done += len(samples)
        self._unscored += sum(not sample.scored for sample in samples)
        self._rewards += sum(sample.reward for sample in samples if sample.scored)
        scored = self._done - self._first - self._unscored
        reward = f"{self._rewards / scored:.3f}" if scored else "-"
        if self._bars is not None:
            self._bars.update(self._bars.task_ids[0], completed=self._done, reward=reward, unscored=self._unscored)
        elif not self._quiet and self._due():
            seconds = self._clock() - self._begun
            left = seconds / (self._done - self._first) * (self._total - self._done)
            self.note(
                f"{self._name}: {self._done}/{self._total}  mean reward {reward}  unscored {self._unscored}  "
                f"{duration(left)} left"
            )

    def note(self, text: str) -> None:
        """Show one line, whatever the mode."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def close(self) -> None:
        """End the bar and leave the terminal as it was."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _due(self) -> bool:
        part = self._done * PLAIN_LINES // max(1, self._total)
        if part == self._shown and self._done < self._total:
            return False
        self._shown = part
        return True
