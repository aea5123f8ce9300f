"""The page of a comparison: tables and charts in one HTML file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corrgrpo_train.benchmark import tables
from corrgrpo_train.benchmark.comparison import label_of, objectives_of, title_of
from corrgrpo_train.benchmark.measured import Measured
from corrgrpo_train.benchmark.statistics import mean_interval
from corrgrpo_train.report.figures import color
from corrgrpo_train.report.page import Chart, Page, Section, Table, View, write_page
from corrgrpo_train.report.text import plot_text

VIEW = "methods"


def write_comparison_page(comparison: Mapping[str, Any], measured: Sequence[Measured], path: Path) -> Path:
    """Write the page.

    Raises:
        UsageError: if a package is missing or the file cannot be written.
    """
    objectives = objectives_of(comparison)
    labels = list(dict.fromkeys(label_of(row, objectives) for one in comparison["conditions"] for row in one["rows"]))
    colors = {label: color(place) for place, label in enumerate(labels)}
    sections = [
        _section(comparison, condition, [one for one in measured if dict(one.cell.sweep) == condition["sweep"]], colors)
        for condition in comparison["conditions"]
    ]
    return write_page(
        path,
        Page(
            title=f"Comparison on {comparison.get('env', 'an environment')}",
            notes=[
                *tables.notes(comparison).splitlines(),
                *([comparison["command"]] if "command" in comparison else []),
            ],
            sections=sections,
            views=[View(name=VIEW, title="Methods", legend=list(colors.items()))],
        ),
    )


def _section(
    comparison: Mapping[str, Any],
    condition: Mapping[str, Any],
    cells: Sequence[Measured],
    colors: Mapping[str, str],
) -> Section:
    named = tables.tables({**comparison, "conditions": [condition]})
    labels = [label_of(row, objectives_of(comparison)) for row in condition["rows"]]
    shown = [
        Table(caption=caption, columns=table[0], rows=table[1:], folded="component" in caption)
        for caption, table in named
    ]
    names = ["reward", *(f"components/{name}" for name in comparison["components"]), "entropy"]
    charts = [_differences(comparison, condition, labels, colors)]
    charts += [_curve(name, cells, labels, colors) for name in names if all(name in cell.curves for cell in cells)]
    if len(comparison["components"]) > 1:
        charts.append(_front(comparison, condition, labels, colors))
    return Section(title=title_of(condition) or "All methods", tables=shown, charts=charts)


def _curve(name: str, cells: Sequence[Measured], labels: Sequence[str], colors: Mapping[str, str]) -> Chart:
    traces = []
    for cell, label in zip(cells, labels, strict=True):
        curve = cell.curves[name]
        bands = [mean_interval(curve.values[:, place], resamples=1000) for place in range(len(curve.steps))]
        trace: dict[str, Any] = {
            **_named(label),
            "x": list(curve.steps),
            "y": [band.mean for band in bands],
            "mode": "lines+markers" if len(curve.steps) < 30 else "lines",
            "line": {"color": colors[label], "width": 2},
        }
        if bands[0].count > 1:
            trace["error_y"] = {
                "type": "data",
                "symmetric": False,
                "array": [band.high - band.mean for band in bands],
                "arrayminus": [band.mean - band.low for band in bands],
                "thickness": 0.8,
                "width": 0,
                "color": colors[label],
            }
        traces.append(trace)
    title = name.removeprefix("components/")
    return Chart(
        title=title.capitalize() if title in ("reward", "entropy") else f"Component: {title}",
        figure={"data": traces, "layout": {"xaxis": {"title": {"text": "training step"}}}},
        unit="nats" if name == "entropy" else "reward",
    )


def _differences(
    comparison: Mapping[str, Any], condition: Mapping[str, Any], labels: Sequence[str], colors: Mapping[str, str]
) -> Chart:
    traces = []
    for row, label in zip(condition["rows"], labels, strict=True):
        one = row["differences"].get("reward/area")
        if one is None:
            continue
        ends = (
            {}
            if one["low"] is None
            else {"array": [one["high"] - one["mean"]], "arrayminus": [one["mean"] - one["low"]]}
        )
        traces.append(
            {
                **_named(label),
                "x": [one["mean"]],
                "y": [plot_text(label)],
                "mode": "markers",
                "marker": {
                    "color": colors[label],
                    "size": 9,
                    "symbol": "circle" if one["p_holm"] < tables.LEVEL else "circle-open",
                },
                "error_x": {"type": "data", "symmetric": False, **ends},
            }
        )
    return Chart(
        title=f"Reward area less that of {comparison['baseline']}",
        figure={"data": traces, "layout": {"yaxis": {"autorange": "reversed", "automargin": True}}},
        note="Mean paired difference with its interval; filled where it differs after Holm's correction.",
    )


def _front(
    comparison: Mapping[str, Any], condition: Mapping[str, Any], labels: Sequence[str], colors: Mapping[str, str]
) -> Chart:
    first, second = comparison["components"][:2]
    traces = []
    for row, label in zip(condition["rows"], labels, strict=True):
        found = [row["values"].get(f"components/{name}/final") for name in (first, second)]
        if None in found:
            continue
        traces.append(
            {
                **_named(label),
                "x": [found[0]["mean"]],
                "y": [found[1]["mean"]],
                "mode": "markers",
                "marker": {"color": colors[label], "size": 11, "symbol": "star" if row["on_front"] else "circle-open"},
            }
        )
    return Chart(
        title=f"Final {first} and {second}",
        figure={"data": traces, "layout": {"xaxis": {"title": {"text": plot_text(first)}}}},
        unit=second,
        note="Stars: on the Pareto front of all components.",
    )


def _named(label: str) -> dict[str, Any]:
    return {"type": "scatter", "name": plot_text(label), "meta": {"label": label, "view": VIEW}}
