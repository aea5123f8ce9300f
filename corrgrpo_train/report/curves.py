"""Training curves of one or several runs as one picture, read from `metrics.jsonl`."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corrgrpo_train.errors import UsageError
from corrgrpo_train.report.runs import EMA, Run, read_runs, smooth
from corrgrpo_train.report.text import visible
from corrgrpo_train.tracking import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PLOTS = 60
"""Plots in one picture; the first are drawn, others when they are named."""
LONGEST_NAME = 60
"""Characters of a title or of a run's name."""

DIAGNOSTICS = {
    "correlation_sum": ("Correlation sum Q", "mean over groups"),
    "corrgrpo_to_grpo": ("CorrGRPO's advantage over GRPO's", "ratio"),
    "ratio_to_grpo": ("This method's advantage over GRPO's", "ratio"),
    "correlation_mean": ("Correlation of components", "mean over pairs"),
    "constant_share_mean": ("Constant components", "share of groups"),
    "share_without_signal": ("Groups without a signal", "share of groups"),
}
"""Estimator diagnostics that are drawn, with title and unit; those that end in `_mean` are made from several."""


@dataclass(frozen=True)
class Panel:
    """One plot.

    Attributes:
        title: what it shows.
        unit: label of the vertical axis.
        curves: label to metric of the training rows.
        validations: label to metric of the validation rows.
    """

    title: str
    unit: str
    curves: Mapping[str, str]
    validations: Mapping[str, str]


def panels(runs: Sequence[Run]) -> list[Panel]:
    """The plots for which the runs have data."""

    def found(prefix: str, suffix: str = "") -> list[str]:
        return list(dict.fromkeys(name for run in runs for name in run.names(prefix, suffix)))

    components = dict.fromkeys([*found("components/", "/mean"), *found("validation/components/")])
    plots = [Panel("Total reward", "reward", {"reward": "reward/mean"}, {"reward": "validation/reward"})]
    plots += [
        Panel(f"Component: {n}", "reward", {n: f"components/{n}/mean"}, {n: f"validation/components/{n}"})
        for n in components
    ]
    plots += [
        Panel(f"Metric: {n}", "mean", {n: f"metrics/{n}"}, {n: f"validation/metrics/{n}"})
        for n in dict.fromkeys([*found("metrics/"), *found("validation/metrics/")])
    ]
    once = {"corrgrpo_to_grpo"} if _all_corrgrpo(runs) else set()
    drawn = {name: words for name, words in DIAGNOSTICS.items() if name not in once}
    plots += [Panel(title, unit, {title: f"estimator/{name}"}, {}) for name, (title, unit) in drawn.items()]
    for title, unit, name in (
        ("Completion length", "tokens", "tokens/completion_mean"),
        ("Policy entropy", "nats per token", "policy/entropy"),
        ("Gradient norm", "", "policy/grad_norm"),
    ):
        plots.append(Panel(title, unit, {title: name}, {}))
    return [plot for plot in plots if has_data(plot, runs)]


def has_data(plot: Panel, runs: Sequence[Run]) -> bool:
    """Whether any of the runs has a number for the plot."""
    names = [*plot.curves.values(), *plot.validations.values()]
    return any(run.series(name, ("base", "warm_start", "train")) for run in runs for name in names)


def _all_corrgrpo(runs: Sequence[Run]) -> bool:
    """Whether what CorrGRPO's advantages would be is what they are, in all runs: one plot says it all then."""
    pairs = [(run.series("estimator/ratio_to_grpo"), run.series("estimator/corrgrpo_to_grpo")) for run in runs]
    return all(
        len(own) == len(corrgrpo)
        and all(math.isclose(a, b, rel_tol=1e-6) for (_, a), (_, b) in zip(own, corrgrpo, strict=True))
        for own, corrgrpo in pairs
    )


def draw_curves(*run_dirs: Path, output: Path | None = None, only: Sequence[str] = ()) -> Path:
    """Draw runs over one another.

    Training values are faint points with a smoothed line (exponential moving average), validations are
    squares joined by dashes. At step 0 a hollow square is the validation before the warm start.

    Args:
        run_dirs: run folders.
        output: the .png or .svg file to write; None: `curves.png` in the first folder.
        only: draw the plots whose titles contain one of these; empty draws all.

    Returns:
        The path of the picture.

    Raises:
        UsageError: if a folder holds no run, matplotlib is missing or the picture cannot be written.
    """
    return draw_runs(read_runs(run_dirs), output or run_dirs[0] / "curves.png", only)


def draw_runs(runs: Sequence[Run], path: Path, only: Sequence[str] = ()) -> Path:
    """Draw runs that have been read, as `draw_curves` does.

    Args:
        runs: at least one.
        path: the .png or .svg file to write.
        only: as there.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("curves need matplotlib: pip install matplotlib") from None
    titles = [plot.title for plot in panels(runs)]
    plots = [plot for plot in panels(runs) if not only or any(part in plot.title for part in only)]
    if titles and not plots:
        raise UsageError(f"no plot's title contains any of {', '.join(only)}; there are: {', '.join(titles)}")
    if not plots:
        raise UsageError(f"{runs[0].folder} has no rewards yet: nothing to draw")
    plots = plots[:MOST_PLOTS]
    columns = min(3, len(plots))
    lines = math.ceil(len(plots) / columns)
    figure = Figure(figsize=(4.6 * columns, 2.9 * lines + 0.9), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for place, plot in enumerate(plots):
        axes = figure.add_subplot(lines, columns, place + 1)
        for number, run in enumerate(runs):
            _draw(axes, run, plot, f"C{number}")
        _label(axes, plot)
    _legend(figure, runs)
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix.lower().removeprefix(".") or "png")
    try:
        replace_file(path, picture.getvalue())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return path


def _draw(axes: "Axes", run: Run, plot: Panel, color: str) -> None:
    for name in plot.curves.values():
        points = run.series(name)
        if points:
            axes.plot(*zip(*points, strict=True), ".", color=color, alpha=0.3, markersize=5)
            axes.plot(*zip(*smooth(points), strict=True), "-", color=color, linewidth=1.8)
    for name in plot.validations.values():
        points = run.series(name, ("warm_start", "train"))
        base = run.series(name, ("base",))
        warmed = bool(run.series(name, ("warm_start",)))
        if base and not warmed:
            points, base = base + points, []
        if points:
            axes.plot(*zip(*points, strict=True), "s--", color=color, markersize=5, linewidth=1)
        if base:
            axes.plot(*zip(*base, strict=True), "s", color=color, markersize=6, markerfacecolor="none")
        if warmed:
            axes.axvline(0, color="0.4", linewidth=1, linestyle=":", zorder=0)


def _label(axes: "Axes", plot: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(_words(plot.title), fontsize=10, loc="left")
    axes.set_xlabel("training step", fontsize=8)
    axes.set_ylabel(plot.unit, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    low, high = axes.get_ylim()
    if high - low < 1e-3 * max(1.0, abs(high)):
        # A constant curve: rounding noise should not fill the plot.
        axes.set_ylim(low - 0.05, high + 0.05)


def _words(text: str) -> str:
    """A name from outside, as the picture's library has to get it, to which "$" starts a formula."""
    line = " ".join(visible(text).split())
    return (line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + "…").replace("$", r"\$")


def _legend(figure: Any, runs: Sequence[Run]) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=f"C{number}", linewidth=2.5, label=_words(run.label)) for number, run in enumerate(runs)
    ]
    grey = "0.35"
    entries.append(Line2D([], [], color=grey, marker=".", linestyle="", alpha=0.5, label="training step"))
    entries.append(Line2D([], [], color=grey, linewidth=1.8, label=f"moving average (EMA {EMA:g})"))
    phases = {row.get("phase") for run in runs for row in run.rows}
    if any(key.startswith("validation/") for run in runs for row in run.rows for key in row):
        entries.append(Line2D([], [], color=grey, marker="s", linestyle="--", linewidth=1, label="validation"))
    if "warm_start" in phases:
        hollow = Line2D([], [], color=grey, marker="s", linestyle="", markerfacecolor="none")
        hollow.set_label("before warm start")
        entries.append(hollow)
        entries.append(Line2D([], [], color="0.4", linestyle=":", label="end of warm start"))
    figure.legend(handles=entries, loc="outside lower center", ncols=min(4, len(entries)), fontsize=8, frameon=False)
