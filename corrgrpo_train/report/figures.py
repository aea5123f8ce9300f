"""Curves of runs and methods as Plotly figures, plain dicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corrgrpo_train.report.curves import Panel
from corrgrpo_train.report.page import Chart
from corrgrpo_train.report.runs import Points, Run, smooth
from corrgrpo_train.report.text import plot_text

PALETTE = (
    *("#2f7ed8", "#e07b39", "#1a9e77", "#c44ec4", "#b58900", "#d6455d", "#13a4b4", "#8b6fd6", "#7a9a2f", "#7b8794"),
)
"""Told apart, and readable, on white and on dark grey."""
DASHES = ("solid", "dash", "dot", "dashdot")
LONGEST = 600
"""Points of a curve that are drawn; of a longer one every second, third, ..."""

Trace = dict[str, Any]
Dots = Mapping[str, Points]


@dataclass(frozen=True)
class Method:
    """Runs that differ in nothing but their seed.

    Attributes:
        label: for the legend.
        color: CSS colour.
        runs: the runs.
    """

    label: str
    color: str
    runs: Sequence[Run]


def color(place: int) -> str:
    """The colour of the run or method at this place."""
    return PALETTE[place % len(PALETTE)]


def curve_chart(panel: Panel, runs: Sequence[Run], methods: Sequence[Method], dots: Dots | None = None) -> Chart:
    """A measure over the steps: values, their moving average, validations, means over seeds.

    Args:
        panel: what is drawn.
        runs: each in the colour of its place.
        methods: drawn in the view `methods`, as mean and range over their runs.
        dots: (step, value) of single groups by the run's label.
    """
    traces: list[Trace] = []
    for place, run in enumerate(runs):
        if dots and dots.get(run.label):
            points = dots[run.label]
            traces.append(scatter(points, run.label, "runs", "groups", "markers") | {"marker": _dot(color(place))})
        for name in panel.curves.values():
            traces += _training(run.series(name), run.label, place)
        for name in panel.validations.values():
            traces += _validation(run, name, place)
    for method in methods:
        for name in panel.curves.values():
            traces += _range([smooth(run.series(name)) for run in method.runs], method, "smooth", "lines")
        for name in panel.validations.values():
            phases = ("warm_start", "train") if any(run.series(name, ("warm_start",)) for run in method.runs) else ()
            lines = [run.series(name, phases or ("base", "train")) for run in method.runs]
            traces += _range(lines, method, "validation", "lines+markers")
    return Chart(title=panel.title, unit=panel.unit, figure={"data": traces, "layout": steps()})


def steps() -> dict[str, Any]:
    """The layout of a chart over the training steps."""
    return {"xaxis": {"title": {"text": "training step"}, "rangemode": "tozero"}}


def _training(points: Points, label: str, place: int) -> list[Trace]:
    if not points:
        return []
    raw = scatter(points, label, "runs", "raw", "markers") | {"marker": _dot(color(place), size=4)}
    line = scatter(smooth(points), label, "runs", "smooth", "lines") | {"line": _line(place)}
    return [raw, line | {"showlegend": True}]


def _validation(run: Run, name: str, place: int) -> list[Trace]:
    before, points = run.series(name, ("base",)), run.series(name, ("warm_start", "train"))
    if not run.series(name, ("warm_start",)):
        before, points = [], before + points
    marker = {"symbol": "square", "size": 7, "color": color(place)}
    line = {"color": color(place), "width": 1, "dash": "dot"}
    label = f"{plot_text(run.label)}, validation"
    drawn = []
    if points:
        trace = scatter(points, run.label, "runs", "validation", "lines+markers")
        drawn.append(trace | {"name": label, "marker": marker, "line": line, "showlegend": True})
    if before:
        trace = scatter(before, run.label, "runs", "validation", "markers")
        drawn.append(trace | {"name": f"{label} before the warm start", "marker": marker | {"symbol": "square-open"}})
    return drawn


def _range(lines: Sequence[Points], method: Method, layer: str, mode: str) -> list[Trace]:
    """Mean over the seeds at the steps that all have, and the area between the least and the largest."""
    known = [dict(points) for points in lines if points]
    steps = sorted(set.intersection(*map(set, known))) if known else []
    if not steps:
        return []
    columns = [[points[step] for points in known] for step in steps]
    seeds = f"{plot_text(method.label)} ({len(known)} seed{'s' if len(known) > 1 else ''})"
    if layer == "validation":
        seeds += ", validation"
    mean = [(step, sum(values) / len(values)) for step, values in zip(steps, columns, strict=True)]
    line = {"color": method.color, "width": 2} | ({"width": 1, "dash": "dot"} if layer == "validation" else {})
    trace = scatter(mean, method.label, "methods", layer, mode)
    traces = [
        trace
        | {
            "name": seeds,
            "line": line,
            "marker": {"symbol": "square", "size": 7, "color": method.color},
            "showlegend": True,
        }
    ]
    if len(known) > 1:
        highest = [(step, max(values)) for step, values in zip(steps, columns, strict=True)]
        lowest = [(step, min(values)) for step, values in zip(steps, columns, strict=True)]
        outline = thinned(highest) + thinned(lowest)[::-1]
        area = scatter(outline, method.label, "methods", layer, "lines", thin=False)
        area |= {
            "fill": "toself",
            "line": {"width": 0},
            "hoverinfo": "skip",
            "opacity": 0.1 if layer == "validation" else 0.22,
        }
        traces.insert(0, {**area, "fillcolor": method.color})
    return traces


def scatter(
    points: Sequence[tuple[float, float]],
    label: str,
    view: str | None,
    layer: str | None,
    mode: str,
    *,
    thin: bool = True,
) -> Trace:
    """A trace of points with what the page switches it by: legend entry, view and layer; None: always shown."""
    drawn = thinned(points) if thin else points
    meta = {"label": label, "view": view, "layer": layer}
    return {
        "type": "scatter",
        "mode": mode,
        "name": plot_text(label),
        "showlegend": False,
        "x": [short(x) for x, _ in drawn],
        "y": [short(y) for _, y in drawn],
        "hovertemplate": "%{fullData.name}<br>step %{x}: %{y:.4g}<extra></extra>",
        "meta": {name: value for name, value in meta.items() if value is not None},
    }


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most about `LONGEST` evenly spaced points, the last among them."""
    stride = -(-len(points) // LONGEST) or 1
    return list(points[::-1][::stride])[::-1]


def short(value: float) -> float:
    """The number with five digits: more cannot be seen, and make the page larger."""
    return float(f"{value:.5g}")


def _dot(own: str, size: int = 5) -> dict[str, Any]:
    return {"size": size, "color": own, "opacity": 0.45}


def _line(place: int) -> dict[str, Any]:
    return {"color": color(place), "width": 2, "dash": DASHES[place // len(PALETTE) % len(DASHES)]}
