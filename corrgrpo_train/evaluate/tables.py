"""Results as tables for people."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corrgrpo_train.errors import printable
from corrgrpo_train.evaluate.benchmarks import benchmark_of
from corrgrpo_train.evaluate.comparison import Difference
from corrgrpo_train.evaluate.published import PublishedTable, tables_about
from corrgrpo_train.evaluate.results import EnvironmentResult, Result

_SUFFIXES = ("_low", "_high", "_count")
_SETTINGS = ("model", "weights", "engine", "samples", "temperature", "seed", "tasks", "max_new_tokens")
_AGGREGATES = {
    "code_average": "code average (mean Pass@1 of the four)",
    "overall": "Overall (RLLA all exact and API-Bank average)",
}


def show(console: Console, result: Result, *, published: bool = True) -> None:
    """Print a result: a table of each environment, what spans several, and published results beside it."""
    for one in result.environments.values():
        console.print(_environment_table(result, one))
        for note in one.notes:
            _line(console, f"note: {note}")
    chosen = [f"{name} {result.settings[name]}" for name in _SETTINGS if result.settings.get(name) not in (None, "")]
    _line(console, f"settings: {', '.join(chosen)}")
    for name, value in result.aggregates.items():
        _line(console, f"{_AGGREGATES.get(name, name)}: {_percent(value)} %")
    if not published:
        return
    for table in tables_about(result.environments):
        console.print(_published_table(table, result))
        _line(console, f"protocol: {table.protocol}")


def show_differences(
    console: Console, names: tuple[str, str], differences: Sequence[Difference], settings: Sequence[str] = ()
) -> None:
    """Print a comparison of two results.

    Args:
        console: where to print.
        names: of the results.
        differences: what was found.
        settings: in what else the results differ, in words.
    """
    if settings:
        _line(console, f"settings that differ: {'; '.join(settings)}")
    environments = dict.fromkeys(one.environment for one in differences)
    for environment in environments:
        benchmark = benchmark_of(environment)
        table = _table(f"{environment}: {names[1]} against {names[0]}")
        for title in ("measure", "first", "second", "difference", "95 % interval", "up", "down", "tasks", "p", "test"):
            table.add_column(title, justify="left" if title in ("measure", "test") else "right")
        for one in differences:
            if one.environment != environment:
                continue
            share = not _is_plain(one.measure)
            scale, digits = (100, 1) if share else (1, 3)
            title = benchmark.titles.get(one.measure, one.measure)
            if one.measure in benchmark.lower_is_better:
                title += " ↓"
            numbers = [scale * one.first, scale * one.second]
            table.add_row(
                _cell(title),
                *(f"{number:.{digits}f}" for number in numbers),
                f"{scale * one.difference:+.{digits}f}",
                _interval(scale * one.low, scale * one.high, digits, sign="+"),
                str(one.better),
                str(one.worse),
                str(one.tasks),
                f"{one.p:.2g}",
                one.test,
            )
        console.print(table)
    _line(
        console,
        "Shares in percent, rewards and components as they are. On the tasks that both have; intervals by a bootstrap "
        "over (clusters of) tasks; p is two-sided, not corrected for the number of measures. ↓: less is better.",
    )


def _environment_table(result: Result, one: EnvironmentResult) -> Table:
    benchmark = benchmark_of(one.name)
    played = len({sample.task for sample in one.samples})
    shard = "" if result.shard == (1, 1) else f", shard {result.shard[0]}/{result.shard[1]}"
    table = _table(f"{one.name}: {result.model}, {played} tasks, {len(one.samples)} episodes{shard}")
    for title in ("measure", "value", "95 % interval", "of"):
        table.add_column(title, justify="left" if title == "measure" else "right")
    shown = [*benchmark.titles, *(name for name in one.summary if _further(name, benchmark.titles))]
    for name in shown:
        value = one.summary.get(name)
        if value is None:
            if name in one.summary and not name.startswith("pass_at_"):
                table.add_row(_cell(benchmark.titles.get(name, name)), "-", "", "0")
            continue
        low, high = one.summary.get(f"{name}_low"), one.summary.get(f"{name}_high")
        scale, digits = (1, 3) if _is_plain(name) else (100, 1)
        title = benchmark.titles.get(name, name.replace("pass_at_", "Pass@"))
        unit = "" if _is_plain(name) else " %"
        table.add_row(
            _cell(title + (" ↓" if name in benchmark.lower_is_better else "")),
            f"{scale * value:.{digits}f}{unit}",
            "" if low is None or high is None else _interval(scale * low, scale * high, digits),
            f"{one.summary.get(f'{name}_count') or 0:.0f}",
        )
    return table


def _further(name: str, titles: Mapping[str, str]) -> bool:
    """Whether a measure is shown that has no title: those of every environment, and Pass@k of any k."""
    if name in titles or name.endswith(_SUFFIXES):
        return False
    return _is_plain(name) or name.startswith("pass_at_")


def _published_table(table: PublishedTable, result: Result) -> Table:
    drawn = _table(f"Published table {table.number}: {table.title}")
    drawn.caption, drawn.caption_justify = f"source: {table.source}", "left"
    drawn.add_column("")
    for column in table.columns:
        drawn.add_column(column.title, justify="right")
    own = [
        result.environments[column.environment].summary.get(column.measure)
        if column.environment in result.environments
        else result.aggregates.get(column.measure)
        if not column.environment
        else None
        for column in table.columns
    ]
    drawn.add_row(_cell(f"here: {result.model}"), *map(_percent, own), style="bold")
    drawn.add_section()
    for row in table.rows:
        drawn.add_row(_cell(row.label), *("-" if value is None else f"{value:.2f}" for value in row.values))
    return drawn


def _table(title: str) -> Table:
    return Table(title=Text(printable(title)), title_justify="left", title_style="bold")


def _is_plain(name: str) -> bool:
    """Whether a measure is a number of its own scale and not a share."""
    return name == "reward" or name.startswith("components/")


def _percent(share: float | None) -> str:
    return "-" if share is None or math.isnan(share) else f"{100 * share:.2f}"


def _interval(low: float, high: float, digits: int, sign: str = "") -> str:
    return "" if math.isnan(low + high) else f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}"


def _cell(text: str) -> Text:
    return Text(printable(text))


def _line(console: Console, text: str) -> None:
    console.print(Text(printable(text)), soft_wrap=True)
