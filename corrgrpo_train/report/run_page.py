"""`write_report`: the page of one run or of several, section by section."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.outcome import outcome
from corrgrpo_train.report.curves import Panel, draw_runs, has_data, panels
from corrgrpo_train.report.figures import Dots, Method, color, curve_chart
from corrgrpo_train.report.groups import Group, Pair, groups_of
from corrgrpo_train.report.page import Cell, Chart, Layer, Page, Section, Table, View, write_page
from corrgrpo_train.report.pairs import correlation_matrix, pair_by_group, pair_over_time, pareto_chart
from corrgrpo_train.report.runs import EMA, Run, is_number, read_runs, series
from corrgrpo_train.report.settings import methods_of, overview, settings_section
from corrgrpo_train.report.transcripts import LIMIT, read_transcripts

MOST_PAIRS = 28
"""Pairs of components with charts of their own: those of eight components."""
MOST_GROUPS = 800
"""Groups of a run that are drawn one by one, of evenly spaced steps."""
FIRST_PAIR = ("runtime", "correctness")
"""The pair of the paper's appendix C; where a run has it, it is shown first."""

_LAYERS = (
    Layer(name="smooth", title=f"Moving average (EMA {EMA:g})"),
    Layer(name="raw", title="Raw values"),
    Layer(name="validation", title="Validation"),
    Layer(name="groups", title="Single groups"),
)
_POLICY = (
    Panel("Policy entropy", "nats per token", {"": "policy/entropy"}, {}),
    Panel("KL to the reference", "nats per token", {"": "policy/kl"}, {}),
    Panel("Completion length, mean", "tokens", {"": "tokens/completion_mean"}, {}),
    Panel("Completion length, longest", "tokens", {"": "tokens/completion_max"}, {}),
    Panel("Clipped tokens", "share", {"": "policy/clip_share"}, {}),
    Panel("Clipped tokens, ratio too low", "share", {"": "policy/clip_share_low"}, {}),
    Panel("Clipped tokens, ratio too high", "share", {"": "policy/clip_share_high"}, {}),
    Panel("Gradient norm", "largest of the step", {"": "policy/grad_norm"}, {}),
    Panel("Loss", "", {"": "loss/policy"}, {}),
    Panel("Difference from the engine's log-probabilities", "mean", {"": "policy/engine_mismatch"}, {}),
)
_DENOMINATOR = (
    Panel("GRPO's denominator", "mean over groups", {"": "estimator/grpo_denominator"}, {}),
    Panel("CorrGRPO's denominator", "mean over groups", {"": "estimator/corrgrpo_denominator"}, {}),
    Panel("This method's denominator, in effect", "mean over groups", {"": "estimator/denominator"}, {}),
    Panel("Groups with Q below the guard", "share of groups", {"": "estimator/share_below_guard"}, {}),
    Panel("Size of the advantages", "mean", {"": "estimator/advantage_mean_abs"}, {}),
)
_NOT_DRAWN = ("step", "phase", "warm_start/step")


def draw_finished(run_dir: Path) -> None:
    """Write what a run's folder holds in the end: `curves.png` and `report.html`.

    Raises:
        UsageError: if a package is missing or a file cannot be written.
    """
    runs = read_runs([run_dir])
    draw_runs(runs, run_dir / "curves.png")
    write_report(runs, run_dir / "report.html")


def write_report(runs: Sequence[Run], path: Path, only: Sequence[str] = (), transcripts: int = LIMIT) -> Path:
    """Write the page of these runs.

    Args:
        runs: at least one.
        path: the file to write.
        only: draw the charts whose titles contain one of these; empty draws all.
        transcripts: how many are on the page at most; 0: no browser of transcripts.

    Raises:
        UsageError: if no chart is left, a package is missing or the file cannot be written.
    """
    methods = methods_of(runs)
    sections = _sections(runs, methods)
    titles = dict.fromkeys(chart.title for section in sections for chart in section.charts)
    if only:
        sections = [replace(s, charts=[c for c in s.charts if any(part in c.title for part in only)]) for s in sections]
        if not any(section.charts for section in sections):
            raise UsageError(f"no chart's title contains any of {', '.join(only)}; there are: {', '.join(titles)}")
    sample = read_transcripts(runs, transcripts) if transcripts else None
    views = [View(name="runs", title="each run", legend=[(run.label, color(i)) for i, run in enumerate(runs)])]
    if methods:
        legend = [(method.label, method.color) for method in methods]
        views.append(View(name="methods", title="mean and range over seeds", legend=legend))
    page = Page(
        title=runs[0].label if len(runs) == 1 else f"{len(runs)} runs",
        sections=[section for section in sections if section.charts or section.tables],
        notes=[*_notes(runs), *(sample.notes if sample else [])],
        views=views,
        layers=[layer for layer in _LAYERS if layer.name in _layers(sections)],
        transcripts=sample.data(runs) if sample and sample.rows else None,
    )
    return write_page(path, page)


def _sections(runs: Sequence[Run], methods: Sequence[Method]) -> list[Section]:
    groups = {run.label: groups_of(run, MOST_GROUPS) for run in runs}
    reward = [panel for panel in panels(runs) if panel.title.startswith(("Total reward", "Component: ", "Metric: "))]
    diagnostics = [p for p in panels(runs) if any(name.startswith("estimator/") for name in p.curves.values())]
    names = _found(runs, "components/", "/mean")
    pairs = _pairs(names)

    def charts(wanted: Iterable[Panel], dots: Mapping[str, Dots] | None = None) -> list[Chart]:
        drawn = [panel for panel in wanted if has_data(panel, runs)]
        return [curve_chart(panel, runs, methods, (dots or {}).get(panel.title)) for panel in drawn]

    constant = [
        Panel(f"Constant: {name}", "share of groups", {"": f"estimator/constant_share/{name}"}, {}) for name in names
    ]
    total = {label: [(float(g.step), g.correlation_sum) for g in some] for label, some in groups.items()}
    told = _outcomes(runs)
    denominator = [p for p in diagnostics if p.title != "Correlation of components"]
    sections = [
        Section(title="Overview", text=told if len(runs) == 1 else [], tables=[*overview(runs), *_folded(told, runs)]),
        Section(title="Rewards", charts=charts(reward)),
        _correlations(runs, names, pairs, groups, charts),
        Section(
            title="Denominator",
            text=["Q is the sum of all correlations of the components; CorrGRPO divides by its root."],
            charts=charts([*denominator, *constant, *_DENOMINATOR], {"Correlation sum Q": total}),
        ),
        _side_by_side(runs, pairs, groups),
        _pareto(runs, methods, names),
        Section(title="Policy", charts=[*charts(_POLICY), *_warm_start(runs, methods)]),
        _weights(runs, charts),
        _time(runs, methods),
    ]
    drawn = {name for panel in [*reward, *diagnostics, *constant, *_POLICY, *_DENOMINATOR] for name in _names(panel)}
    elsewhere = ("estimator/correlation/", "weights/", "warm_start/")
    rest = [key for key in _keys(runs) if key not in drawn and not key.startswith(elsewhere)]
    return [*sections, _rest(runs, rest, charts), settings_section(runs)]


def _rest(runs: Sequence[Run], keys: Sequence[str], charts: Any) -> Section:
    """Whatever else was logged: with a chart where it changes, in a table where it never does."""
    phases = ("base", "warm_start", "train")
    values = {key: [{value for _, value in run.series(key, phases)} for run in runs] for key in keys}
    varying = [key for key in keys if any(len(some) > 1 for some in values[key])]
    wanted = [
        Panel(key, "", {}, {"": key}) if key.startswith("validation/") else Panel(key, "", {"": key}, {})
        for key in varying
    ]
    rows: list[list[Cell]] = [
        [key, *(next(iter(some), None) for some in values[key])]
        for key in keys
        if key not in varying and any(values[key])
    ]
    table = Table(columns=["", *(run.label for run in runs)], rows=rows, caption="What never changed", folded=True)
    return Section(title="Everything else", tables=[table] if rows else [], charts=charts(wanted))


def _folded(lines: Sequence[str], runs: Sequence[Run]) -> list[Table]:
    if len(runs) == 1 or not lines:
        return []
    rows = [[line] for line in lines]
    return [Table(columns=["run: what was learnt, and what not"], rows=rows, caption="What changed", folded=True)]


def _correlations(
    runs: Sequence[Run], names: Sequence[str], pairs: Sequence[Pair], groups: Mapping[str, Sequence[Group]], charts: Any
) -> Section:
    matrices = [correlation_matrix(run, names) for run in runs]
    wanted, dots = [], {}
    for first, second in pairs:
        title = f"Correlation: {first}, {second}"
        wanted.append(Panel(title, "mean over groups", {"": f"estimator/correlation/{first}/{second}"}, {}))
        dots[title] = {
            label: [(float(g.step), g.correlations[first, second]) for g in some if (first, second) in g.correlations]
            for label, some in groups.items()
        }
    mean = [panel for panel in panels(runs) if panel.title == "Correlation of components"]
    left_out = math.comb(len(names), 2) - len(pairs)
    return Section(
        title="Correlation of components",
        text=[
            "Pearson correlation within a group, mean over the groups in which both components vary.",
            *([f"{left_out} more pairs have no chart of their own here."] if left_out else []),
        ],
        charts=[*(m for m in matrices if m is not None), *charts([*mean, *wanted], dots)],
    )


def _side_by_side(runs: Sequence[Run], pairs: Sequence[Pair], groups: Mapping[str, Sequence[Group]]) -> Section:
    charts = []
    for pair in pairs:
        over_time = pair_over_time(pair, runs)
        if over_time.figure["data"]:
            charts.append(over_time)
        if (by_group := pair_by_group(pair, groups)) is not None:
            charts.append(by_group)
    text = ["As in appendix C of the paper, which follows whether programs run and whether they pass."]
    return Section(title="Two components side by side", text=text, charts=charts, choice="Components")


def _pareto(runs: Sequence[Run], methods: Sequence[Method], names: Sequence[str]) -> Section:
    charts = []
    for pair in _pairs(names):
        points = {}
        for run in runs:
            measured = [
                dict(run.series(f"validation/components/{name}", ("base", "warm_start", "train"))) for name in pair
            ]
            points[run.label] = [
                (f"{run.label}, step {step:g}", measured[0][step], measured[1][step])
                for step in sorted(measured[0].keys() & measured[1].keys())
            ]
        signs = (_sign(runs, pair[0]), _sign(runs, pair[1]))
        if not any(points.values()):
            continue
        chart = pareto_chart(pair, points, signs, "runs" if methods else None)
        by_method = {method.label: [p for run in method.runs for p in points[run.label]] for method in methods}
        more = pareto_chart(pair, by_method, signs, "methods").figure["data"]
        charts.append(replace(chart, figure={**chart.figure, "data": [*chart.figure["data"], *more]}))
    text = ["A point per validation. Grey: another point shown is at least as good on both axes and better on one."]
    return Section(title="Pareto front", text=text, charts=charts, choice="Components")


def _weights(runs: Sequence[Run], charts: Any) -> Section:
    names = _found(runs, "weights/effective/")
    changed = any(
        run.series(f"weights/effective/{name}") != run.series(f"weights/base/{name}") for run in runs for name in names
    )
    if not changed:
        return Section(title="Weights")
    wanted = [Panel(f"Effective weight: {name}", "", {"": f"weights/effective/{name}"}, {}) for name in names]
    wanted += [Panel(f"Base weight: {name}", "", {"": f"weights/base/{name}"}, {}) for name in names]
    known = ("weights/effective/", "weights/base/")
    keys = [key for key in _keys(runs) if key.startswith("weights/") and not key.startswith(known)]
    wanted += [Panel(f"Weighting: {key.removeprefix('weights/')}", "", {"": key}, {}) for key in keys]
    wanted.append(Panel("Total under the effective weights", "reward", {"": "reward/effective_mean"}, {}))
    return Section(title="Weights", charts=charts(wanted))


def _warm_start(runs: Sequence[Run], methods: Sequence[Method]) -> list[Chart]:
    """The loss by the warm start's own steps."""
    warm = {
        run.label: replace(
            run,
            rows=[
                {"step": row["warm_start/step"], "loss": row.get("warm_start/loss")}
                for row in run.rows
                if is_number(row.get("warm_start/step"))
            ],
        )
        for run in runs
    }
    return _charts_of(warm, methods, [Panel("Loss of the warm start", "nats per token", {"": "loss"}, {})])


def _time(runs: Sequence[Run], methods: Sequence[Method]) -> Section:
    timed = {run.label: replace(run, rows=run.timings) for run in runs}
    keys = [key for key in _keys(timed.values()) if key not in _NOT_DRAWN]
    wanted = [Panel(key, "", {"": key}, {}) for key in keys]
    return Section(title="Time", charts=_charts_of(timed, methods, wanted))


def _charts_of(runs: Mapping[str, Run], methods: Sequence[Method], wanted: Iterable[Panel]) -> list[Chart]:
    """Charts of runs with other rows, for the methods as well."""
    same = [replace(method, runs=[runs[run.label] for run in method.runs]) for method in methods]
    own = list(runs.values())
    return [curve_chart(panel, own, same) for panel in wanted if has_data(panel, own)]


def _outcomes(runs: Sequence[Run]) -> list[str]:
    lines = []
    for run in runs:
        start = "" if len(runs) == 1 else f"{run.label}: "
        try:
            lines += [start + line for line in outcome(run.folder)]
        except (ValueError, TypeError, LookupError, OSError) as error:
            lines.append(f"{start}what changed cannot be told: {first_line(error)}")
    return lines


def _notes(runs: Sequence[Run]) -> list[str]:
    notes = []
    for run in runs:
        silent = [value for _, value in run.series("estimator/share_without_signal")]
        if silent and min(silent) == 1:
            notes.append(f"{run.label}: no group ever had a signal, so that nothing could be learnt from rewards.")
    return notes + [f"{run.label}: {note}" for run in runs for note in run.notes]


def _pairs(names: Sequence[str]) -> list[Pair]:
    pairs = list(combinations(names, 2))
    pairs.sort(key=lambda pair: pair != FIRST_PAIR)
    return pairs[:MOST_PAIRS]


def _sign(runs: Sequence[Run], name: str) -> int:
    weights = [value for run in runs for _, value in series(run.rows, f"weights/base/{name}")]
    return -1 if weights and weights[0] < 0 else 1


def _layers(sections: Sequence[Section]) -> set[str]:
    traces = (t for section in sections for chart in section.charts for t in chart.figure["data"])
    return {trace["meta"].get("layer") for trace in traces}


def _names(panel: Panel) -> list[str]:
    return [*panel.curves.values(), *panel.validations.values()]


def _keys(runs: Iterable[Run]) -> list[str]:
    return [
        key for key in dict.fromkeys(key for run in runs for row in run.rows for key in row) if key not in _NOT_DRAWN
    ]


def _found(runs: Sequence[Run], prefix: str, suffix: str = "") -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.names(prefix, suffix)))
