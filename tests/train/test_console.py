"""What a person sees: plain lines, the live display, the summary."""

import io
import math

import pytest
import rich.console

from corrgrpo_train.config import Config
from corrgrpo_train.console import Console, duration, number
from corrgrpo_train.errors import printable


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def console(terminal: bool = False, **changes: object) -> tuple[Console, io.StringIO, Clock]:
    text, clock = io.StringIO(), Clock()
    output = rich.console.Console(file=text, force_terminal=terminal, width=150, highlight=False, color_system=None)
    return Console(Config(**{"env": "RLLA-v0", **changes}), output=output, clock=clock), text, clock


def metrics(step: int) -> dict[str, float]:
    return {"reward/mean": step / 4, "components/format/mean": 0.5, "components/na[red]me/mean": math.nan}


TIMINGS = {"seconds/rollout": 2.0, "tokens_per_second/rollout": 123.4, "tokens_per_second/update": 9.0}


def test_plain_lines() -> None:
    shown, text, clock = console()
    shown.start(4)
    shown.validation(0, {"reward": 0.125, "metrics/exact": math.nan}, "base")
    for step in range(1, 5):
        clock.now += 30
        shown.step(step, metrics(step), TIMINGS)
    assert text.getvalue().splitlines() == [
        "RLLA-v0, corrgrpo, seed 0: 4 steps",
        "validation before training  reward 0.125  metrics/exact -",
        "step 1/4  reward 0.250  format 0.500  na[red]me -  123 tokens/s  ETA -",
        "step 2/4  reward 0.500  format 0.500  na[red]me -  123 tokens/s  ETA 1 min 00 s",
        "step 3/4  reward 0.750  format 0.500  na[red]me -  123 tokens/s  ETA 30 s",
        "step 4/4  reward 1.000  format 0.500  na[red]me -  123 tokens/s  ETA 0 s",
    ]


def test_a_long_run_writes_few_lines() -> None:
    shown, text, _ = console()
    shown.start(1000)
    for step in range(1, 1001):
        shown.step(step, metrics(step), TIMINGS)
    lines = text.getvalue().splitlines()[1:]
    assert len(lines) == 51
    assert lines[0].startswith("step 1/")
    assert lines[-1].startswith("step 1000/")


def test_a_resumed_run_shows_its_first_step_and_its_own_pace() -> None:
    shown, text, clock = console()
    shown.start(1000)
    shown.step(501, metrics(1), TIMINGS)
    clock.now += 9 * 10
    shown.step(510, metrics(1), TIMINGS)
    clock.now += 10 * 10
    shown.step(520, metrics(1), TIMINGS)
    lines = text.getvalue().splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["501/1000", "520/1000"]
    assert lines[1].endswith("ETA 1 h 20 min")


def test_quiet_shows_notes_and_the_summary_only() -> None:
    shown, text, _ = console(quiet=True)
    shown.start(4)
    shown.validation(0, {"reward": 0.125}, "base")
    shown.step(1, metrics(1), TIMINGS)
    shown.note("look out")
    shown.finish({"run_dir": "runs/x"})
    assert text.getvalue().splitlines() == ["look out", "RLLA-v0, corrgrpo, seed 0: 0 s. Run folder: runs/x"]


def test_the_summary_compares_validations() -> None:
    shown, text, clock = console()
    shown.start(4)
    clock.now = 75
    base = {"reward": -0.5, "components/format": 0.25, "metrics/exact": math.nan}
    warm = {"reward": 0.25, "components/format": 0.5, "metrics/exact": 0.5}
    last = {"reward": 1.0, "components/format": 0.125, "metrics/exact": 0.75}
    phases = {"base": base, "warm_start": warm, "train": warm, "last": last}
    shown.finish({"run_dir": "runs/x", "validations": phases, "had_signal": True, "best_step": 3})
    lines = [line.strip("│").split() for line in text.getvalue().splitlines()]
    assert ["reward", "│", "-0.500", "│", "0.250", "│", "1.000", "│", "+0.750"] in lines
    assert ["components/format", "│", "0.250", "│", "0.500", "│", "0.125", "│", "-0.375"] in lines
    assert ["metrics/exact", "│", "-", "│", "0.500", "│", "0.750", "│", "+0.250"] in lines
    assert text.getvalue().splitlines()[-1] == (
        "RLLA-v0, corrgrpo, seed 0: 1 min 15 s, best checkpoint after step 3. Run folder: runs/x"
    )


def test_a_run_without_signal_says_so_first() -> None:
    shown, text, _ = console(quiet=True)
    shown.start(4)
    shown.finish({"run_dir": "runs/x", "had_signal": False, "validations": {"last": {"reward": 1.0}}})
    assert text.getvalue().startswith("No group had a signal")
    assert "--warm-start" in text.getvalue().splitlines()[0]


def test_the_live_display() -> None:
    shown, text, clock = console(terminal=True)
    shown.start(4)
    try:
        shown.validation(0, {"reward": 0.125, "components/format": 0.75}, "base")
        shown.step(1, metrics(1), TIMINGS)
        clock.now = 20
        shown.step(3, metrics(3), TIMINGS)
        live = shown._live
        assert live is not None
        live.refresh()
    finally:
        shown.close()
    seen = text.getvalue()
    for words in ("3/4", "123 tokens/s  ETA 10 s", "first validation", "na[red]me", "0.750", "0.125"):
        assert words in seen
    shown.close()


def test_text_of_others_cannot_steer_the_terminal() -> None:
    shown, text, _ = console()
    shown.note("a\x1b[2J\r\nb [bold]c\u202e")
    assert text.getvalue() == "a?[2J??b [bold]c?\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-3, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers() -> None:
    assert [number(None), number(math.nan), number(2), number(0.25, 1), number(1, sign="+")] == [
        "-",
        "-",
        "2.000",
        "0.2",
        "+1.000",
    ]


def test_printable_keeps_other_scripts() -> None:
    assert printable("你好 é ✓") == "你好 é ✓"
