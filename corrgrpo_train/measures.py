"""What is measured of a set of episodes: means, spreads, and flat names for the log."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from corrgrpo_train.advantages import Estimate
from corrgrpo_train.rollout.episode import Episode

_PER_COMPONENT = frozenset({"constant_share"})
# Labels say nothing in a log; means and spreads of components stand under `components/`.
_NOT_LOGGED = frozenset({"group", "group_size", "component_mean", "component_std"})


def step_metrics(
    episodes: Sequence[Episode], names: Sequence[str], result: Estimate | None, learned: Mapping[str, float]
) -> dict[str, float]:
    """Everything that is logged of a step, under flat names."""
    means = summary(episodes)
    metrics: dict[str, float] = {
        "reward/mean": means["reward"],
        "reward/std": spread([e.reward for e in episodes]),
    }
    for name in names:
        values = [episode.components.get(name, math.nan) for episode in episodes]
        metrics[f"components/{name}/mean"], metrics[f"components/{name}/std"] = mean(values), spread(values)
    metrics.update({name: value for name, value in means.items() if name.startswith("metrics/")})
    if result is not None:
        metrics.update(flat_diagnostics(result.diagnostics, names))
    metrics.update(learned)
    lengths = [float(episode.tokens.completion_length) for episode in episodes]
    metrics["tokens/completion_mean"], metrics["tokens/completion_max"] = mean(lengths), max(lengths)
    metrics["tokens/prompt_mean"] = mean([float(episode.tokens.prompt_length) for episode in episodes])
    metrics["episodes/failed"] = means["failed"]
    metrics["episodes/truncated"] = float(sum(episode.truncated for episode in episodes))
    for episode in episodes:
        key = f"episodes/status/{episode.status or 'none'}"
        metrics[key] = metrics.get(key, 0.0) + 1.0
    return metrics


def flat_diagnostics(diagnostics: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """An estimator's diagnostics as numbers, under the names of `corrgrpo_train.advantages.diagnostics`.

    Numbers stay as they are; per-group vectors become their mean over the groups where they are defined,
    per-component ones and correlations get the components' names.
    """
    flat: dict[str, float] = {}
    for name, value in diagnostics.items():
        if name in _NOT_LOGGED:
            continue
        tensor, key = torch.as_tensor(value, dtype=torch.float64), f"estimator/{name}"
        if tensor.ndim == 0:
            flat[key] = float(tensor)
        elif tensor.ndim == 2:
            for i, first in enumerate(names):
                flat.update({f"{key}/{first}/{names[j]}": float(tensor[i, j]) for j in range(i + 1, len(names))})
        elif name in _PER_COMPONENT:
            flat.update({f"{key}/{component}": float(v) for component, v in zip(names, tensor, strict=True)})
        else:
            flat[key] = mean(tensor[tensor.isfinite()].tolist())
    return flat


def spread(values: Sequence[float]) -> float:
    """Standard deviation (divisor n − 1) of the values that are not `nan`; 0 for a single one."""
    known = torch.tensor([value for value in values if not math.isnan(value)], dtype=torch.float64)
    return float(known.std()) if len(known) > 1 else 0.0


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over episodes, leaving out what is `nan` (not scored, or not defined for a task).

    Keys: `reward`, `components/NAME`, `metrics/NAME`, `failed` (a count).
    """
    columns: dict[str, list[float]] = {"reward": []}
    for episode in episodes:
        columns["reward"].append(episode.reward)
        for name, value in episode.components.items():
            columns.setdefault(f"components/{name}", []).append(value)
        for name, value in episode.metrics.items():
            columns.setdefault(f"metrics/{name}", []).append(value)
    means = {name: mean(values) for name, values in columns.items()}
    return {**means, "failed": float(sum(not episode.valid for episode in episodes))}


def mean(values: Sequence[float]) -> float:
    """Mean of the values that are not `nan`; `nan` if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
