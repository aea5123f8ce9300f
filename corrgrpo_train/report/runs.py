"""`read_run`: what a run folder holds, read with patience: damaged rows are left out and told of."""

import errno
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.report.text import visible

EMA = 0.6
"""Weight of the past in the smoothed line, that of the paper's curves."""

MOST_SETTINGS = 100_000
"""Values in a `config.yaml`; one with more is not read."""

AVERAGED = ("correlation", "constant_share")
"""Diagnostics with a number per pair or per component, of which the mean is drawn as well."""

Points = list[tuple[float, float]]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """The rows of one run.

    Attributes:
        label: name in the legend.
        rows: rows of `metrics.jsonl`, in order.
        folder: the run folder.
        notes: what of it could not be read.
        settings: `config.yaml`; empty if it cannot be read.
        versions: `versions.json`, an entry per start of the run.
        timings: rows of `timings.jsonl`.
        episodes: rows of `episodes.jsonl`: the components of all episodes of a step.
    """

    label: str
    rows: Sequence[Row]
    folder: Path = Path()
    notes: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Sequence[Row] = ()
    timings: Sequence[Row] = ()
    episodes: Sequence[Row] = ()

    def series(self, name: str, phases: Iterable[str] = ("train",)) -> Points:
        """(step, value) of a metric in the rows of these phases; missing and null values are left out."""
        wanted = set(phases)
        return series([row for row in self.rows if row.get("phase", "train") in wanted], name)

    def names(self, prefix: str, suffix: str = "") -> list[str]:
        """What stands between prefix and suffix in the metric names, in order of appearance."""
        found = (key for row in self.rows for key in row if key.startswith(prefix) and key.endswith(suffix))
        return list(dict.fromkeys(key[len(prefix) : len(key) - len(suffix)] for key in found))


def series(rows: Iterable[Row], name: str) -> Points:
    """(step, value) of the rows that have a finite number under this name."""
    return [(float(row["step"]), float(row[name])) for row in rows if is_number(row.get(name))]


def smooth(points: Points, past: float = EMA) -> Points:
    """Exponential moving average over the points, without the bias towards the first one."""
    total, weight, smoothed = 0.0, 0.0, []
    for step, value in points:
        total = past * total + (1 - past) * value
        weight = past * weight + (1 - past)
        smoothed.append((step, total / weight))
    return smoothed


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs of these folders, with labels that differ.

    Raises:
        UsageError: if none is named, or one is not a run folder or has no rows yet.
    """
    if not folders:
        raise UsageError("name at least one run folder")
    runs = [read_run(folder) for folder in folders]
    labels = told_apart([run.label for run in runs])
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def told_apart(labels: Sequence[str]) -> list[str]:
    """The labels, with their number behind those that are not the only ones of their name."""
    numbered = [f"{label} ({place + 1})" if labels.count(label) > 1 else label for place, label in enumerate(labels)]
    # A folder may have the name that another got here.
    return numbered if len(set(numbered)) == len(numbered) else [f"{n + 1}: {label}" for n, label in enumerate(labels)]


def read_run(run_dir: Path) -> Run:
    """Read a run folder; what is damaged in it is left out, with a note.

    Raises:
        UsageError: if it is not a run folder or has no rows yet.
    """
    path = run_dir / "metrics.jsonl"
    try:
        rows, notes = read_rows(path)
    except OSError as error:
        raise UsageError(f"{run_dir} is not a run folder: {path.name} cannot be read ({error.strerror})") from None
    if not rows:
        raise UsageError(f"{path} has no rows yet{': ' if notes else ''}{'; '.join(notes)}")
    more: dict[str, list[dict[str, Any]]] = {}
    for name in ("timings", "episodes"):
        try:
            more[name], told = read_rows(run_dir / f"{name}.jsonl")
            notes += told
        except FileNotFoundError:
            more[name] = []
        except OSError as error:
            more[name] = []
            notes.append(f"{name}.jsonl cannot be read: {error.strerror}")
    return Run(
        visible(run_dir.resolve().name),
        [row | _averages(row) for row in rows],
        run_dir,
        notes,
        read_settings(run_dir / "config.yaml", notes),
        _versions(run_dir / "versions.json", notes),
        more["timings"],
        more["episodes"],
    )


def read_rows(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a file with a JSON object with a `step` per line, and notes on lines that are none.

    Raises:
        OSError: if the file cannot be read.
    """
    rows: list[dict[str, Any]] = []
    broken: list[int] = []
    notes = []
    with open_file(path) as file:
        for number, line in enumerate(file, start=1):
            row = json_object(line)
            if row is not None and is_number(row.get("step")) and isinstance(row.get("phase", ""), str):
                rows.append(row)
            elif not line.endswith(b"\n"):
                notes.append(f"{path.name}: the last line is written by half and left out")
            else:
                broken.append(number)
    if broken:
        some = ", ".join(map(str, broken[:5])) + (", …" if len(broken) > 5 else "")
        are = "line {} is not a row and is left out" if len(broken) == 1 else "lines {} are no rows and are left out"
        notes.append(f"{path.name}: {are.format(some)}")
    return rows, notes


def open_file(path: Path) -> BinaryIO:
    """Open a file of a run folder: devices and pipes, which may never end, are none.

    Raises:
        OSError: if it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.open("rb")


def json_object(line: bytes) -> dict[str, Any] | None:
    """The object that the line holds; None if it holds something else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def is_number(value: object) -> bool:
    """Whether it is a number that can be drawn: no nan, and far enough from the largest for sums and axes."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _averages(row: Row) -> dict[str, float]:
    """The means of a row's diagnostics per pair or component, under names of their own; without those it lacks."""
    means = {}
    for name in AVERAGED:
        known = [value for key, value in row.items() if key.startswith(f"estimator/{name}/") and is_number(value)]
        if known:
            means[f"estimator/{name}_mean"] = sum(map(float, known)) / len(known)
    return means


def _content(path: Path) -> str:
    with open_file(path) as file:
        return file.read().decode("utf-8")


def read_settings(path: Path, notes: list[str]) -> dict[str, Any]:
    """The settings in a `config.yaml`; empty where there is none, and, with a note added, where it can't be read."""
    try:
        settings = _plain(yaml.safe_load(_content(path)), iter(range(MOST_SETTINGS)))
    except FileNotFoundError:
        return {}
    except Exception as error:  # for wrong values yaml raises KeyError, IndexError, AttributeError as well
        notes.append(f"{path.name} cannot be read: {first_line(error)}")
        return {}
    return settings if isinstance(settings, dict) else {}


def _plain(value: Any, left: Iterator[int]) -> Any:
    """The value with names that are text, which can be compared and written.

    Raises:
        ValueError: if it has more parts than are left: a few lines of YAML can stand for billions, or hold themselves.
    """
    if next(left, None) is None:
        raise ValueError(f"it has more than {MOST_SETTINGS} values")
    if isinstance(value, dict):
        return {str(key): _plain(item, left) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item, left) for item in value]
    return value


def _versions(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    try:
        entries = json.loads(_content(path))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path.name} cannot be read: {first_line(error)}")
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
