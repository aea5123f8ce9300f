"""What is reported of answers beyond their rewards, and the published evaluation of a set of episodes.

CorrGRPO evaluates RLLA-4K by the training reward, mapped linearly to 0 … 100 %, over the tasks whose ground
truth makes a call; format over all tasks. No answer is repaired, whatever model wrote it.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from corrgrpo_envs.intervals import Estimate, estimate, flat
from corrgrpo_envs.tools.scoring import Score

METRICS = (
    "exact",
    "all_exact",
    "function_name_score",
    "parameter_names_score",
    "parameter_values_score",
    "correctness_score",
    "format_score",
    "calls",
)


def metrics(score: Score) -> dict[str, float]:
    """Metrics of one answer; those that mean nothing where no call is wanted are left out there.

    Returns:
        `exact` (all that is judged is right, format included), `format_score` and `calls` (number of calls
        made); with calls in the ground truth also `all_exact` (the calls are right, whatever the format) and
        the shares `function_name_score`, `parameter_names_score`, `parameter_values_score` and
        `correctness_score` (ToolRL's pooled one), 0 to 1.
    """
    values = {"exact": float(score.exact), "format_score": float(score.format), "calls": float(score.calls)}
    if score.judged:
        values |= {
            "all_exact": float(score.all_exact),
            "function_name_score": score.function_name,
            "parameter_names_score": score.parameter_names,
            "parameter_values_score": score.parameter_values,
            "correctness_score": score.correctness,
        }
    return values


def summary(episodes: Iterable[Mapping[str, Any]], confidence: float = 0.95) -> dict[str, float | None]:
    """Evaluate recorded episodes as the published evaluator does, which writes these shares in percent.

    Args:
        episodes: the `info` of each episode's last step, or any mappings with its `task_id` and `metrics`.
        confidence: of the intervals, see `intervals.estimate`; several episodes of one task are a cluster.

    Returns:
        Shares from 0 to 1, each also with `_low`, `_high` and `_count` (its denominator); None over no episodes. Over
        the episodes whose task wants calls: `all_exact`, `function_name`, `parameter_names`, `parameter_values`,
        `accuracy` (the three rewards summed, mapped from -3 … 3) and `combined` (with format, from -3 … 4); over all
        of them `format` and `exact`.

    Raises:
        ValueError: if an episode lacks what is needed.
    """
    everything = [_row(episode, number) for number, episode in enumerate(episodes)]
    with_calls = [row for row in everything if "all_exact" in row[1]]

    def mean(rows: list[tuple[str, Mapping[str, float]]], value: Callable[[Mapping[str, float]], float]) -> Estimate:
        return estimate([value(metrics) for _, metrics in rows], [task for task, _ in rows], confidence)

    return flat(
        {
            "all_exact": mean(with_calls, itemgetter("all_exact")),
            "function_name": mean(with_calls, itemgetter("function_name_score")),
            "parameter_names": mean(with_calls, itemgetter("parameter_names_score")),
            "parameter_values": mean(with_calls, itemgetter("parameter_values_score")),
            "accuracy": mean(with_calls, _accuracy),
            "combined": mean(with_calls, lambda one: (6 * _accuracy(one) + one["format_score"]) / 7),
            "format": mean(everything, itemgetter("format_score")),
            "exact": mean(everything, itemgetter("exact")),
        }
    )


def _row(episode: Mapping[str, Any], number: int) -> tuple[str, Mapping[str, float]]:
    """The episode's task, its own number where it names none, and its metrics."""
    metrics = episode.get("metrics")
    if not isinstance(metrics, Mapping) or "format_score" not in metrics:
        raise ValueError(f"the episode of {episode.get('task_id')!r} lacks 'metrics' with 'format_score'")
    return str(episode.get("task_id", number)), metrics


def _accuracy(metrics: Mapping[str, float]) -> float:
    """The three content rewards summed, as a share of their range: they span 1, 2 and 3."""
    return (
        metrics["function_name_score"] + 2 * metrics["parameter_names_score"] + 3 * metrics["parameter_values_score"]
    ) / 6
