"""The study of CorrGRPO's guard: the smallest sum of correlations that it divides by."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from corrgrpo_train.benchmark.comparison import difference
from corrgrpo_train.benchmark.statistics import mean_interval
from corrgrpo_train.benchmark.study.bandit import Trial, correct, gained, results, rounded
from corrgrpo_train.benchmark.study.settings import (
    GUARD_CONDITIONS,
    GUARDS,
    LEARNING_RATES,
    SEEDS,
    TUNING_SEEDS,
    Panel,
)

DEFAULT = 0.1


def guard_part(folder: Path, jobs: int, *, show: bool = True) -> dict[str, Any]:
    """Compare guards, each at its best learning rate, and all at the best one of the default.

    A learning rate that suits one prompt in a thousand badly is not noticed by the mean of a tuned method; the second
    comparison says what happens to somebody who did not tune.
    """
    panels = [Panel(condition, optimizer) for optimizer in LEARNING_RATES for condition in GUARD_CONDITIONS]
    grid = {
        (panel, guard): [_trial(panel, guard, rate, TUNING_SEEDS) for rate in LEARNING_RATES[panel.optimizer]]
        for panel in panels
        for guard in GUARDS
    }
    runs = results([trial for some in grid.values() for trial in some], folder, jobs, show, "guard: learning rates")
    rates = {
        key: max(some, key=lambda trial: float(gained(trial.panel, runs[trial], "area").mean())).rate
        for key, some in grid.items()
    }
    kinds: dict[str, Callable[[Panel, float], float]] = {
        "own": lambda panel, guard: rates[panel, guard],
        "same": lambda panel, _: rates[panel, DEFAULT],
    }
    trials = [
        _trial(panel, guard, rate(panel, guard), SEEDS)
        for panel in panels
        for guard in GUARDS
        for rate in kinds.values()
    ]
    final = results(trials, folder, jobs, show, "guard: comparison")
    found = []
    for panel in panels:
        entry: dict[str, Any] = {"condition": panel.condition.name, "optimizer": panel.optimizer}
        for kind, rate in kinds.items():
            areas = {
                guard: gained(panel, final[_trial(panel, guard, rate(panel, guard), SEEDS)], "area") for guard in GUARDS
            }
            entry[kind] = {
                f"{guard:g}": {
                    "rate": rate(panel, guard),
                    "area": rounded(mean_interval(area).to_json()),
                    "less_default": rounded(difference(area, areas[DEFAULT])) if guard != DEFAULT else None,
                }
                for guard, area in areas.items()
            }
        found.append(entry)
    for kind in kinds:
        correct([one["less_default"] for e in found for one in e[kind].values() if one["less_default"] is not None])
    return {"schema": 1, "seeds": len(SEEDS), "default": DEFAULT, "panels": found}


def _trial(panel: Panel, guard: float, rate: float, seeds: tuple[int, ...]) -> Trial:
    return Trial(panel, "corrgrpo", rate, seeds, (("min_correlation_sum", guard),))
