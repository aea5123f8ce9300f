"""What is reported of recorded API-Bank episodes: accuracy by level, their mean, and the shares of single fields."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
        Shares from 0 to 1, each also with `_low`, `_high` (Wilson's interval over the tasks, of which each may have
        several episodes) and `_count`; None over no episodes:
        `level_1`, `level_2`, `level_3`; `average`, the mean of the three (the paper's "API-Bank Avg"), None unless all
        of them occur; `pooled`, over all items; `sound_average`, as `average` without faulty rows;
        `function_name`, `parameter_names`, `parameter_values`, `format`, over all items. `faulty_count`: episodes on
        faulty rows.

    Raises:
        ValueError: if an episode lacks what is needed.
    """
    rows = [_row(episode, number) for number, episode in enumerate(episodes)]

    def share(some: Sequence[_Row], name: str = "correct") -> Estimate:
        return _share([row.values[name] for row in some], len({row.task for row in some}), confidence)

    def level_of(level: int, *, sound: bool = False) -> list[_Row]:
        return [row for row in rows if row.values["level"] == level and not (sound and row.values["faulty"])]

    def average(sound: bool) -> Estimate:
        return _average([level_of(level, sound=sound) for level in LEVELS], confidence)

    levels = {level: share(level_of(level)) for level in LEVELS}
    estimates = {f"level_{level}": one for level, one in levels.items()}
    estimates["average"] = average(sound=False)
    estimates["pooled"] = share(rows)
    estimates["sound_average"] = average(sound=True)
    estimates |= {name: share(rows, name) for name in _FIELDS}
    return {**flat(estimates), "faulty_count": sum(row.values["faulty"] for row in rows)}


def overall(all_exact: float, average: float) -> float:
    """The paper's "Overall": the mean of RLLA-4K's all-exact share and API-Bank's average, in the same unit."""
    return (all_exact + average) / 2


@dataclass(frozen=True, slots=True)
class _Row:
    """An episode's task, and its numbers by name."""

    task: str
    values: Mapping[str, float]


def _row(episode: Mapping[str, Any], number: int) -> _Row:
    components, metrics = episode.get("reward_components"), episode.get("metrics")
    if not isinstance(components, Mapping) or not isinstance(metrics, Mapping) or "level" not in metrics:
        raise ValueError(
            f"the episode of {episode.get('task_id')!r} lacks 'reward_components', or 'metrics' with 'level'"
        )
    values = {**components, "level": metrics["level"], "faulty": metrics.get("faulty", 0.0)}
    return _Row(str(episode.get("task_id", number)), values)


def _share(values: Sequence[float], tasks: int, confidence: float) -> Estimate:
    if not values:
        return macro([], confidence)
    return wilson(sum(values) / len(values), tasks, len(values), confidence)


def _average(levels: Sequence[Sequence[_Row]], confidence: float) -> Estimate:
    if not all(levels):
        return macro([], confidence)
    # Counted by tasks, of which each is one more that can vary, whatever the number of its episodes.
    parts = [
        _share([row.values["correct"] for row in rows], len({row.task for row in rows}), confidence) for rows in levels
    ]
    by_task = [replace(part, count=len({row.task for row in rows})) for part, rows in zip(parts, levels, strict=True)]
    return replace(macro(by_task, confidence), count=sum(map(len, levels)))
