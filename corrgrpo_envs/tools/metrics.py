"""What is reported of answers beyond their rewards, and the published evaluation of a set of episodes.

CorrGRPO evaluates RLLA-4K by the training reward, mapped linearly to percent, over the tasks whose ground
truth makes a call; format over all tasks. No answer is repaired, whatever model wrote it.
"""

from collections.abc import Iterable, Mapping
from math import nan
from typing import Any

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


def summary(episodes: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Evaluate recorded episodes as the published evaluator does.

    Args:
        episodes: the `info` of each episode's last step, or any mappings with its `metrics`.

    Returns:
        `tasks` and `call_tasks`, the two denominators; in percent over the call tasks `all_exact`,
        `function_name`, `parameter_names`, `parameter_values`, `accuracy` (the three rewards summed, -3 to 3)
        and `combined` (with format, -3 to 4); over all tasks `format` and `exact`. A mean over no task is
        `nan`.
    """
    everything = [episode["metrics"] for episode in episodes]
    with_calls = [values for values in everything if "all_exact" in values]
    names = _percent(with_calls, "function_name_score")
    parameters = _percent(with_calls, "parameter_names_score")
    values = _percent(with_calls, "parameter_values_score")
    accuracy = (names + 2 * parameters + 3 * values) / 6
    return {
        "tasks": float(len(everything)),
        "call_tasks": float(len(with_calls)),
        "all_exact": _percent(with_calls, "all_exact"),
        "function_name": names,
        "parameter_names": parameters,
        "parameter_values": values,
        "accuracy": accuracy,
        "combined": (6 * accuracy + _percent(with_calls, "format_score")) / 7,
        "format": _percent(everything, "format_score"),
        "exact": _percent(everything, "exact"),
    }


def _percent(rows: list[Mapping[str, float]], name: str) -> float:
    return 100 * sum(row[name] for row in rows) / len(rows) if rows else nan
