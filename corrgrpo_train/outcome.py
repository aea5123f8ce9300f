"""What a run taught its policy and what it did not, in plain words, read from its run folder."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from corrgrpo_train.report.runs import is_number, json_object, read_settings

LEVEL = 0.05
"""A change on held-out tasks is called one below this probability of the sign test."""

_BEFORE = {"warm_start": "the warm start", "base": "before training"}

Scores = Mapping[str, Mapping[str, float]]
"""`reward` and components by task."""


def outcome(run_dir: Path) -> list[str]:
    """A few lines: share of groups with a signal, training rewards early and late, and changes on held-out tasks.

    Held-out tasks (the run's validation split, which may be its training split) are compared one by one, those of the
    last validation with those after the warm start and before training. Empty for a run without a training step.
    """
    rows = [row for row in _lines(run_dir / "metrics.jsonl") if row.get("phase", "train") == "train"]
    steps = [row for row in rows if "reward/mean" in row]
    if not steps:
        return []
    lines = [_training(steps)]
    last, tasks = _validation(run_dir, "train"), _validated_on(run_dir)
    for phase, words in _BEFORE.items():
        first = _validation(run_dir, phase)
        if first and last:
            lines.append(f"{tasks} since {words}: {_changes(first, last)}.")
    return lines


def sign_test(better: int, worse: int) -> float:
    """Two-sided probability of a split at least as uneven, if either were as likely.

    On pass or fail of the same tasks: McNemar's exact test.
    """
    count = better + worse
    tail = sum(math.comb(count, k) for k in range(min(better, worse) + 1)) / (1 << count)
    return min(1.0, 2 * tail)


def _training(steps: Sequence[Mapping[str, Any]]) -> str:
    """The share of groups with a signal, and the sampled rewards of the first and the last third of the steps."""
    part = max(1, len(steps) // 3)
    keys = ["reward/mean", *(key for key in steps[0] if re.fullmatch("components/.*/mean", key))]
    moved = []
    for key in keys:
        name = key.removeprefix("components/").removesuffix("/mean")
        moved.append(f"{name} {_mean(steps[:part], key):.2f} to {_mean(steps[-part:], key):.2f}")
    # A step without this number had no group that could be scored.
    silent = _mean(steps, "estimator/share_without_signal")
    signal = "none" if math.isnan(silent) else f"{1 - silent:.0%}"
    which = "step" if part == 1 else f"{part} steps"
    return f"Groups with a signal: {signal}. Sampled in training, first {which} to last: {', '.join(moved)}."


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    values = [float(row[name]) for row in rows if is_number(row.get(name))]
    return sum(values) / len(values) if values else math.nan


def _changes(first: Scores, last: Scores) -> str:
    differences: dict[str, list[float]] = {}
    for task in first:
        for name, value in first[task].items():
            if name in last.get(task, {}):
                differences.setdefault(name, []).append(last[task][name] - value)
    return "; ".join(_change(name, some) for name, some in differences.items())


def _change(name: str, differences: Sequence[float]) -> str:
    better, worse = sum(d > 1e-9 for d in differences), sum(d < -1e-9 for d in differences)
    if not better + worse:
        return f"{name} unchanged on all {len(differences)}"
    chance = sign_test(better, worse)
    word = "no change beyond chance" if chance >= LEVEL else "rose" if better > worse else "fell"
    return f"{name} {word} (better on {better}, worse on {worse} of {len(differences)}; p = {chance:.2g})"


def _validated_on(run_dir: Path) -> str:
    split = read_settings(run_dir / "config.yaml", []).get("validation_split", "validation")
    return "Tasks that were trained on," if split == "train" else "Held-out tasks"


def _validation(run_dir: Path, phase: str) -> dict[str, dict[str, float]]:
    """Scores of the last validation of a phase, by task; tasks that were not scored are left out."""
    files = sorted((run_dir / "transcripts").glob(f"validation_{phase}_*.jsonl"))
    scores = {}
    for row in _lines(files[-1]) if files else ():
        components = row.get("components")
        values = {"reward": row.get("reward"), **(components if isinstance(components, dict) else {})}
        known = {name: float(value) for name, value in values.items() if is_number(value)}
        if known:
            scores[str(row.get("task_id"))] = known
    return scores


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        yield from (row for row in map(json_object, file) if row is not None)
