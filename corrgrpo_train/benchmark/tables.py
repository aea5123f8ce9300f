"""Tables of a comparison, for terminals and for Markdown pages."""

from collections.abc import Mapping, Sequence
from typing import Any

from corrgrpo_train.benchmark.comparison import label_of, objectives_of, title_of

LEVEL = 0.05
"""A difference is marked below this probability, Holm's correction included."""

Table = list[list[str]]
"""Rows of cells, the head first."""


def text_tables(comparison: Mapping[str, Any]) -> str:
    """All tables as text, columns aligned."""
    return "\n".join(f"{title}\n{aligned(table)}" for title, table in tables(comparison)) + "\n" + notes(comparison)


def tables(comparison: Mapping[str, Any]) -> list[tuple[str, Table]]:
    """Title and table: values and differences of every condition, first of the reward, then of its components."""
    groups = {"": overall(comparison), "components, ": by_component(comparison)}
    level, baseline = f"{comparison['confidence']:.0%}", comparison["baseline"]
    found = []
    for condition in comparison["conditions"]:
        where = title_of(condition) or comparison.get("env", "all methods")
        for kind, measures in groups.items():
            found.append((f"{where}: {kind}mean [{level} interval]", _values(comparison, condition, measures)))
            found.append((f"{where}: {kind}difference from {baseline}", _differences(comparison, condition, measures)))
    return found


def notes(comparison: Mapping[str, Any]) -> str:
    """What a reader must know to read the tables."""
    count = len(comparison["seeds"])
    lines = [
        f"{count} seeds, paired. area: mean over the course of training. * differs at {LEVEL:.0%} after Holm's "
        "correction over all differences of the same quantity.",
        "hypervolume: share of the box between the worst and the best seen here. front: on the Pareto front of mean "
        "final components, and in what share of resamples.",
    ]
    if count < 6:
        lines.append(f"With {count} seeds no difference can reach {LEVEL:.0%}: intervals are Student's, and wide.")
    missing = {
        label_of(row, objectives_of(comparison)): None
        for condition in comparison["conditions"]
        for row in condition["rows"]
        if "reward/final" not in row["values"]
    }
    if missing:
        lines.append(
            f"–: nothing was measured at the last step, for training diverged or nothing could be scored: "
            f"{', '.join(missing)}. Such runs are not compared."
        )
    return "\n".join(lines) + "\n"


def overall(comparison: Mapping[str, Any]) -> list[str]:
    """The quantities of the first table."""
    wanted = ("reward/final", "reward/area", "entropy/final", "hypervolume/final")
    return [name for name in wanted if name in comparison["measures"]]


def by_component(comparison: Mapping[str, Any]) -> list[str]:
    """The quantities of the second table: components, and the environment's own metrics."""
    wanted = [f"components/{name}/{what}" for name in comparison["components"] for what in ("final", "area")]
    wanted += [name for name in comparison["measures"] if name.startswith("metrics/") and name.endswith("/final")]
    return [name for name in wanted if name in comparison["measures"]]


def heading(measure: str) -> str:
    """A quantity's name over its column."""
    name, _, what = measure.rpartition("/")
    name = name.removeprefix("components/").removeprefix("metrics/")
    return name if name == "hypervolume" else f"{name} {what}"


def interval(one: Mapping[str, Any] | None, mark: str = "") -> str:
    """`1.23 [1.10, 1.36]`."""
    if one is None or one["mean"] is None:
        return "–"
    digits = _digits(one)
    ends = "" if one["low"] is None else f" [{one['low']:.{digits}f}, {one['high']:.{digits}f}]"
    return f"{one['mean']:.{digits}f}{mark}{ends}"


def _digits(one: Mapping[str, Any]) -> int:
    width = 1.0 if one["low"] is None else one["high"] - one["low"]
    return 2 if width >= 0.1 else 3 if width >= 0.01 else 4


def star(one: Mapping[str, Any]) -> str:
    """The mark of a difference beyond chance."""
    return "*" if one["p_holm"] < LEVEL else ""


def _values(comparison: Mapping[str, Any], condition: Mapping[str, Any], measures: Sequence[str]) -> Table:
    objectives = objectives_of(comparison)
    table = [["method", *map(heading, measures), "front"]]
    for row in condition["rows"]:
        front = "–" if row["on_front"] is None else f"{'yes' if row['on_front'] else 'no'} ({row['front_share']:.0%})"
        table.append([label_of(row, objectives), *(interval(row["values"].get(name)) for name in measures), front])
    return table


def _differences(comparison: Mapping[str, Any], condition: Mapping[str, Any], measures: Sequence[str]) -> Table:
    objectives = objectives_of(comparison)
    table = [["method", *map(heading, measures), "p of reward area"]]
    for row in condition["rows"]:
        if row["differences"]:
            found = [row["differences"].get(name) for name in measures]
            cells = ["–" if one is None else interval(one, star(one)) for one in found]
            area = row["differences"].get("reward/area")
            table.append([label_of(row, objectives), *cells, "–" if area is None else f"{area['p_holm']:.2g}"])
    return table


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Columns padded with blanks."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join(lines) + "\n"


def markdown(table: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    head, *rows = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table]
    return "\n".join([head, f"|{' --- |' * len(table[0])}", *rows]) + "\n"
