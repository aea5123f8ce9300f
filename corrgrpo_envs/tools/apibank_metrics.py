"""What is reported of recorded API-Bank episodes: accuracy by level, their mean, and the shares of single fields."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corrgrpo_envs.intervals import Estimate, flat, macro, wilson
from corrgrpo_envs.tools.apibank_rows import LEVELS

METRICS = (
    "correct_single",
    "correct_first",
    "correct_toolrl",
    "correct_text",
    "level",
    "faulty",
    "calls",
)

_FIELDS = ("function_name", "parameter_names", "parameter_values", "format")


def summary(episodes: Iterable[Mapping[str, Any]], confidence: float = 0.95) -> dict[str, float | None]:
    """Evaluate recorded episodes.

    Args:
        episodes: the `info` of each episode's last step, or any mappings with its `reward_components` and `metrics`.
        confidence: of the intervals.

    Returns:
        Shares from 0 to 1, each also with `_low`, `_high` (Wilson's interval) and `_count`; None over no episodes:
        `level_1`, `level_2`, `level_3`; `average`, the mean of the levels that occur (the paper's "API-Bank Avg"; None
        unless all three do); `pooled`, over all items; `sound_average`, as `average` without faulty rows;
        `function_name`, `parameter_names`, `parameter_values`, `format`, over all items. `faulty_count`: episodes on
        faulty rows.

    Raises:
        ValueError: if an episode lacks what is needed.
    """
    rows = [_row(episode) for episode in episodes]

    def share(some: Sequence[Mapping[str, float]], name: str = "correct") -> Estimate:
        return _share([row[name] for row in some], confidence)

    levels = {level: share([row for row in rows if row["level"] == level]) for level in LEVELS}
    sound = [share([row for row in rows if row["level"] == level and not row["faulty"]]) for level in LEVELS]
    estimates = {f"level_{level}": one for level, one in levels.items()}
    estimates["average"] = _average(list(levels.values()), confidence)
    estimates["pooled"] = share(rows)
    estimates["sound_average"] = _average(sound, confidence)
    estimates |= {name: share(rows, name) for name in _FIELDS}
    return {**flat(estimates), "faulty_count": sum(row["faulty"] for row in rows)}


def overall(all_exact: float, average: float) -> float:
    """The paper's "Overall": the mean of RLLA-4K's all-exact share and API-Bank's average, in the same unit."""
    return (all_exact + average) / 2


def _row(episode: Mapping[str, Any]) -> dict[str, float]:
    components, metrics = episode.get("reward_components"), episode.get("metrics")
    if not isinstance(components, Mapping) or not isinstance(metrics, Mapping) or "level" not in metrics:
        raise ValueError(
            f"the episode of {episode.get('task_id')!r} lacks 'reward_components', or 'metrics' with 'level'"
        )
    return {**components, "level": metrics["level"], "faulty": metrics.get("faulty", 0.0)}


def _share(values: Sequence[float], confidence: float) -> Estimate:
    if not values:
        return macro([], confidence)
    return wilson(sum(values) / len(values), len(values), len(values), confidence)


def _average(levels: Sequence[Estimate], confidence: float) -> Estimate:
    return macro(levels if all(level.count for level in levels) else [], confidence)
