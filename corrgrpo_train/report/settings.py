"""What runs were made with: tables of settings and versions, and which runs are seeds of one method."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from corrgrpo_train.report.figures import Method, color
from corrgrpo_train.report.page import Cell, Section, Table
from corrgrpo_train.report.runs import Run, told_apart

_OWN = frozenset({"seed", "output", "resume", "tensorboard", "track", "track_args", "report", "quiet"})
"""Settings in which runs of one method may differ."""
_SHOWN = ("method", "objective", "env", "model", "seed")


def methods_of(runs: Sequence[Run]) -> list[Method]:
    """Runs with equal settings but for the seed; empty where no two belong together."""
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        own = {name: value for name, value in run.settings.items() if name not in _OWN}
        # Without settings nothing is known to be equal.
        kinds.setdefault(_text(own) if own else f"run {run.label}", []).append(run)
    if all(len(some) == 1 for some in kinds.values()):
        return []
    labels = _labels([some[0] for some in kinds.values()])
    return [Method(labels[place], color(place), some) for place, some in enumerate(kinds.values())]


def _labels(runs: Sequence[Run]) -> list[str]:
    """The methods' names, with the settings that tell apart those of one name."""
    names = [str(run.settings.get("method", run.label)) for run in runs]
    labels = []
    for place, run in enumerate(runs):
        same = [other for name, other in zip(names, runs, strict=True) if name == names[place]]
        differing = [key for key in _differing(same) if key not in _OWN]
        told = [f"{key} {_text(run.settings.get(key))}" for key in differing]
        labels.append(", ".join([names[place], *told]))
    return told_apart(labels)


def overview(runs: Sequence[Run]) -> list[Table]:
    """The runs with their rewards, and the settings in which they differ."""
    columns = ["run", *_SHOWN, "steps done", "validation reward, first", "last", "best"]
    rows: list[list[Cell]] = []
    for run in runs:
        rewards = [value for _, value in run.series("validation/reward", ("base", "warm_start", "train"))]
        steps = [step for step, _ in run.series("reward/mean")]
        scores: list[Cell] = [rewards[0], rewards[-1], max(rewards)] if rewards else [None, None, None]
        shown = [_text(run.settings[name]) if name in run.settings else None for name in _SHOWN]
        rows.append([run.label, *shown, max(steps, default=0.0), *scores])
    tables = [Table(columns=columns, rows=rows)]
    differing = [name for name in _differing(runs) if name not in (*_SHOWN, "output")]
    if differing:
        tables.append(_side_by_side(runs, differing, "Settings that differ"))
    return tables


def settings_section(runs: Sequence[Run]) -> Section:
    """All settings and the versions of what they were run with."""
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    tables = [_side_by_side(runs, names, "All settings (config.yaml)", folded=True)] if names else []
    last = [_flat(run.versions[-1]) if run.versions else {} for run in runs]
    packages = list(dict.fromkeys(name for versions in last for name in versions))
    if packages:
        rows = [[name, *(versions.get(name) for versions in last)] for name in packages]
        tables.append(Table(columns=["", *(run.label for run in runs)], rows=rows, caption="Versions"))
    text = [
        f"{run.label} was continued with other versions after step {entry.get('after_step')}."
        for run in runs
        for entry in run.versions[1:]
    ]
    return Section(title="Settings and versions", text=text, tables=tables)


def _side_by_side(runs: Sequence[Run], names: Sequence[str], caption: str, *, folded: bool = False) -> Table:
    rows = [[name, *(_text(run.settings[name]) if name in run.settings else None for run in runs)] for name in names]
    return Table(columns=["setting", *(run.label for run in runs)], rows=rows, caption=caption, folded=folded)


def _differing(runs: Sequence[Run]) -> list[str]:
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if len({_text(run.settings.get(name)) for run in runs}) > 1]


def _flat(versions: Mapping[str, Any]) -> dict[str, str]:
    packages = versions.get("packages")
    named = packages if isinstance(packages, dict) else {}
    heads = {key: versions[key] for key in ("python", "system") if key in versions}
    return {str(name): str(value) for name, value in {**heads, **named}.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, sort_keys=True, ensure_ascii=False)
