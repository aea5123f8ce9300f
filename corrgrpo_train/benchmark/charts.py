"""The picture of a comparison: curves, differences, components and the front, a row per point of the sweep."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corrgrpo_train.benchmark.comparison import label_of, objectives_of, title_of
from corrgrpo_train.benchmark.measured import Measured
from corrgrpo_train.benchmark.statistics import mean_interval
from corrgrpo_train.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 12
"""Points of a sweep that are drawn; tables and JSON hold all."""

Rows = Sequence[Mapping[str, Any]]


def draw_comparison(comparison: Mapping[str, Any], measured: Sequence[Measured], path: Path) -> Path:
    """Draw a comparison as one PNG.

    Args:
        comparison: as `compare` returns it.
        measured: the same cells.
        path: the file to write.

    Raises:
        UsageError: if matplotlib is missing or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("the picture needs matplotlib: pip install matplotlib") from None
    conditions = comparison["conditions"][:MOST_ROWS]
    figure = Figure(figsize=(19, 3.4 * len(conditions) + 0.6), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    for place, condition in enumerate(conditions):
        cells = [one for one in measured if dict(one.cell.sweep) == condition["sweep"]]
        labels = [label_of(row, objectives_of(comparison)) for row in condition["rows"]]
        for column, draw in enumerate(PLOTS):
            axes = figure.add_subplot(len(conditions), len(PLOTS), place * len(PLOTS) + column + 1)
            draw(axes, condition["rows"], cells, labels, comparison)
            _frame(axes, title_of(condition) if column == 0 else "")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(8, max(1, len(names))), frameon=False)
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return path


def _reward(
    axes: "Axes", rows: Rows, cells: Sequence[Measured], labels: Sequence[str], comparison: Mapping[str, Any]
) -> None:
    """Mean reward over the steps, with intervals over seeds."""
    _curves(axes, cells, labels, "reward", "reward")


def _entropy(
    axes: "Axes", rows: Rows, cells: Sequence[Measured], labels: Sequence[str], comparison: Mapping[str, Any]
) -> None:
    _curves(axes, cells, labels, "entropy", "entropy, nats")


def _curves(axes: "Axes", cells: Sequence[Measured], labels: Sequence[str], name: str, title: str) -> None:
    for number, (cell, label) in enumerate(zip(cells, labels, strict=True)):
        if name not in cell.curves:
            continue
        curve = cell.curves[name]
        bands = [mean_interval(curve.values[:, place], resamples=1000) for place in range(len(curve.steps))]
        axes.plot(curve.steps, [band.mean for band in bands], color=_color(number), label=_plain(label), linewidth=1.6)
        if bands[0].count > 1:
            low, high = [band.low for band in bands], [band.high for band in bands]
            axes.fill_between(curve.steps, low, high, color=_color(number), alpha=0.15, linewidth=0)
    axes.set_ylabel(title, fontsize=8)
    axes.set_xlabel("training step", fontsize=8)


def _differences(
    axes: "Axes", rows: Rows, cells: Sequence[Measured], labels: Sequence[str], comparison: Mapping[str, Any]
) -> None:
    """Paired differences of the area under the reward curve from the baseline; filled where beyond chance."""
    for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
        one = row["differences"].get("reward/area")
        if one is None:
            continue
        if one["low"] is not None:
            axes.plot([one["low"], one["high"]], [label] * 2, color=_color(number), linewidth=1.6)
        filled = _color(number) if one["p_holm"] < 0.05 else "white"
        axes.plot([one["mean"]], [label], "o", color=_color(number), markerfacecolor=filled)
    axes.axvline(0, color="0.4", linewidth=1, linestyle=":")
    axes.set_xlabel(f"reward area less {comparison['baseline']}'s", fontsize=8)
    axes.invert_yaxis()


def _components(
    axes: "Axes", rows: Rows, cells: Sequence[Measured], labels: Sequence[str], comparison: Mapping[str, Any]
) -> None:
    """Final components with intervals."""
    width = 0.8 / max(1, len(rows))
    for number, row in enumerate(rows):
        for place, name in enumerate(comparison["components"]):
            one = row["values"].get(f"components/{name}/final")
            if one is None:
                continue
            at = place + (number - (len(rows) - 1) / 2) * width
            if one["low"] is not None:
                axes.plot([at, at], [one["low"], one["high"]], color=_color(number), linewidth=1.6)
            axes.plot([at], [one["mean"]], "o", color=_color(number), markersize=4)
    axes.set_xticks(range(len(comparison["components"])), [_plain(name) for name in comparison["components"]])
    axes.tick_params(axis="x", rotation=20 if len(comparison["components"]) > 3 else 0)
    axes.set_ylabel("final component", fontsize=8)


def _front(
    axes: "Axes", rows: Rows, cells: Sequence[Measured], labels: Sequence[str], comparison: Mapping[str, Any]
) -> None:
    """Means of the two components that differ most between methods, in their own spread; rings: on the front of all."""
    names = [f"components/{name}/final" for name in comparison["components"]]
    placed = {number: row for number, row in enumerate(rows) if all(name in row["values"] for name in names)}
    if len(names) < 2 or not placed:
        axes.set_axis_off()
        return
    means = {name: [row["values"][name]["mean"] for row in placed.values()] for name in names}
    names.sort(key=lambda name: -float(np.ptp(means[name])) / (float(np.abs(means[name]).max()) or 1.0))
    for number, row in placed.items():
        at = [[row["values"][name]["mean"]] for name in names[:2]]
        axes.plot(*at, "o", color=_color(number), markersize=5)
        if row["on_front"]:
            axes.plot(*at, "o", color=_color(number), markersize=10, markerfacecolor="none")
    first, second = (_plain(name.removeprefix("components/").removesuffix("/final")) for name in names[:2])
    axes.set_xlabel(first, fontsize=8)
    axes.set_ylabel(second, fontsize=8)


Plot = Callable[["Axes", Rows, Sequence[Measured], Sequence[str], Mapping[str, Any]], None]
PLOTS: tuple[Plot, ...] = (_reward, _differences, _components, _front, _entropy)


def _frame(axes: "Axes", title: str) -> None:
    axes.set_title(_plain(title), fontsize=10, loc="left")
    axes.tick_params(labelsize=8)
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _plain(text: str) -> str:
    """Text in which "$" starts no formula: names come from environments."""
    return text.replace("$", r"\$")


def _color(number: int) -> str:
    return f"C{number % 10}"
