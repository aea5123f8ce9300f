"""Charts of two components at a time: correlations, means side by side, Pareto fronts."""

from collections.abc import Mapping, Sequence
from typing import Any

from corrgrpo_train.report.figures import color, scatter, short, steps
from corrgrpo_train.report.groups import Group, Pair
from corrgrpo_train.report.page import Chart
from corrgrpo_train.report.runs import Run, smooth
from corrgrpo_train.report.text import plot_text

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
SCALE = [[0, "#dd8568"], [0.5, "#eceff2"], [1, "#74a8e0"]]
"""Correlations from -1 to 1."""


def correlation_matrix(run: Run, names: Sequence[str]) -> Chart | None:
    """The components' correlations, mean over the last third of the steps; None if none is defined."""
    values: list[list[float | None]] = [[1.0 if i == j else None for j in names] for i in names]
    for i, first in enumerate(names):
        for j, second in enumerate(names):
            points = run.series(f"estimator/correlation/{first}/{second}")
            last = points[-max(1, len(points) // 3) :]
            if last:
                values[i][j] = values[j][i] = short(sum(value for _, value in last) / len(last))
    if not any(value is not None for i, row in enumerate(values) for value in row[:i]):
        return None
    labels = [plot_text(name) for name in names]
    trace = {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "z": values,
        "zmin": -1,
        "zmax": 1,
        "colorscale": SCALE,
        "text": [["" if value is None else f"{value:.2f}" for value in row] for row in values],
        "texttemplate": "%{text}",
        "textfont": {"color": "#1c232b"},
        "xgap": 2,
        "ygap": 2,
        "showscale": False,
        "hovertemplate": "%{y}, %{x}: %{z:.3f}<extra></extra>",
        "meta": {"label": run.label},
    }
    layout = {"yaxis": {"autorange": "reversed", "showgrid": False}, "xaxis": {"showgrid": False}}
    return Chart(
        title=f"Correlations: {run.label}", unit="last third of the steps", figure={"data": [trace], "layout": layout}
    )


def pair_over_time(pair: Pair, runs: Sequence[Run]) -> Chart:
    """The means of two components and their correlation over the steps, as in the paper's appendix C."""
    traces = []
    for place, run in enumerate(runs):
        lines = {
            f"mean of {pair[0]}": (f"components/{pair[0]}/mean", "solid", "y"),
            f"mean of {pair[1]}": (f"components/{pair[1]}/mean", "dash", "y"),
            "correlation": (f"estimator/correlation/{pair[0]}/{pair[1]}", "dot", "y2"),
        }
        for words, (name, dash, axis) in lines.items():
            points = smooth(run.series(name))
            if points:
                trace = scatter(points, run.label, None, "smooth", "lines")
                trace |= {"name": plot_text(f"{run.label}: {words}"), "showlegend": True, "yaxis": axis}
                traces.append(trace | {"line": {"color": color(place), "dash": dash, "width": 2}})
    layout = steps() | {
        "yaxis": {"title": {"text": "mean (solid, dashed)"}},
        "yaxis2": {
            "overlaying": "y",
            "side": "right",
            "range": [-1.05, 1.05],
            "showgrid": False,
            "zeroline": False,
            "title": {"text": "correlation (dotted)", "font": {"size": 12}},
            "automargin": True,
        },
    }
    return Chart(
        title=f"{pair[0]} and {pair[1]} over time",
        unit="moving average",
        choice=_choice(pair),
        figure={"data": traces, "layout": layout},
    )


def pair_by_group(pair: Pair, groups: Mapping[str, Sequence[Group]]) -> Chart | None:
    """The means of two components in each group, coloured by their correlation; equal ones are one larger dot.

    Args:
        pair: names of components.
        groups: of each run, by its label.
    """
    traces: list[dict[str, Any]] = []
    for place, (label, some) in enumerate(groups.items()):
        cells: dict[tuple[float, float], list[float]] = {}
        for group in some:
            if pair in group.correlations:
                where = (short(group.means[pair[0]]), short(group.means[pair[1]]))
                cells.setdefault(where, []).append(group.correlations[pair])
        if not cells:
            continue
        marker = {
            "color": [short(sum(values) / len(values)) for values in cells.values()],
            "cmin": -1,
            "cmax": 1,
            "colorscale": SCALE,
            "symbol": SYMBOLS[place % len(SYMBOLS)],
            "showscale": not traces,
            "colorbar": {"thickness": 10, "title": {"text": "correlation"}},
            "size": [min(26.0, 7 * len(values) ** 0.5) for values in cells.values()],
            "line": {"width": 1, "color": "#7b8794"},
            "opacity": 0.85,
        }
        trace = scatter(list(cells), label, None, "groups", "markers", thin=False)
        counts = [len(values) for values in cells.values()]
        hover = "%{x}, %{y}: correlation %{marker.color:.2f}, groups: %{customdata}<extra></extra>"
        extra = {"marker": marker, "customdata": counts, "hovertemplate": hover, "showlegend": True}
        traces.append(trace | extra)
    layout = {
        "xaxis": {"title": {"text": f"group mean of {plot_text(pair[0])}"}},
        "yaxis": {"title": {"text": f"group mean of {plot_text(pair[1])}"}},
    }
    if not traces:
        return None
    return Chart(
        title=f"{pair[0]} and {pair[1]} by group",
        choice=_choice(pair),
        figure={"data": traces, "layout": layout},
        note="Groups in which both vary; larger dots are several groups with the same means.",
    )


def pareto_chart(
    pair: Pair,
    points: Mapping[str, Sequence[tuple[str, float, float]]],
    signs: tuple[int, int] = (1, 1),
    view: str | None = None,
) -> Chart:
    """Points of two measures; the page greys those that are worse on both and joins the others.

    Args:
        pair: what the axes are.
        points: text, horizontal and vertical value, by legend entry; colours go by place.
        signs: for each axis 1 if more is better, -1 if less is.
        view: the page's view in which they are shown; None: in all.
    """
    traces = []
    for place, (label, some) in enumerate(points.items()):
        if not some:
            continue
        trace = scatter([(x, y) for _, x, y in some], label, view, None, "markers", thin=False)
        marker = {"size": 10, "color": color(place), "symbol": SYMBOLS[place % len(SYMBOLS)]}
        hover = "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>"
        texts = [plot_text(text) for text, _, _ in some]
        traces.append(trace | {"marker": marker, "text": texts, "hovertemplate": hover, "showlegend": True})
    axes = [
        {"title": {"text": plot_text(name) + (" (less is better)" if sign < 0 else "")}}
        for name, sign in zip(pair, signs, strict=True)
    ]
    layout = {"xaxis": axes[0], "yaxis": axes[1], "meta": {"pareto": list(signs)}}
    return Chart(title=_choice(pair), choice=_choice(pair), figure={"data": traces, "layout": layout}, wide=True)


def _choice(pair: Pair) -> str:
    return f"{pair[0]} and {pair[1]}"
