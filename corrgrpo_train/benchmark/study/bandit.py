"""The study on `CorrelatedBandit`: every method at its best learning rate, all at one, and two controls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corrgrpo_envs.synthetic import CorrelatedBandit
from corrgrpo_train.benchmark.bandit_runs import BanditCell, run_on_table
from corrgrpo_train.benchmark.comparison import difference
from corrgrpo_train.benchmark.measured import Measured, Values
from corrgrpo_train.benchmark.plan import Cell
from corrgrpo_train.benchmark.statistics import holm, mean_interval
from corrgrpo_train.benchmark.study.settings import CONTROLS, LEARNING_RATES, PANELS, SEEDS, TUNED, TUNING_SEEDS, Panel

SAME = ("corrgrpo", "grpo", "gdpo", "mo_grpo", "matched", "shuffled")
"""Methods that are run at GRPO's learning rate as well."""


@dataclass(frozen=True)
class Trial:
    """One training of the table policy.

    Attributes:
        panel: the condition.
        method: the estimator.
        rate: learning rate.
        seeds: trained together.
        options: of the estimator.
    """

    panel: Panel
    method: str
    rate: float
    seeds: tuple[int, ...]
    options: tuple[tuple[str, float], ...] = ()

    @property
    def cell(self) -> BanditCell:
        """The cell to run."""
        settings = {**self.panel.settings, "learning_rate": self.rate}
        if self.options:
            settings["method_args"] = dict(self.options)
        return BanditCell(Cell(self.method), self.seeds, settings, self.panel.optimizer)


def bandit_part(folder: Path, jobs: int, *, show: bool = True, panels: Sequence[Panel] = PANELS) -> dict[str, Any]:
    """Tune, compare, and return the numbers of the page.

    What is reported is the share of the gain that was to be had: 0 for the policy before training, 100 for one that
    always pulls the arm of the largest expected total. `area` is its mean over the course of training, `final` its last
    value. `balanced` is the area where the total is not weighted: every component counts in units of its scale.
    """
    rates = tuned({(panel, method): () for panel in panels for method in TUNED}, folder, jobs, show)
    trials: dict[Trial, None] = {}
    for panel in panels:
        for method in (*TUNED, *CONTROLS):
            trials[own_trial(panel, method, rates)] = None
        for method in SAME:
            trials[Trial(panel, method, rates[panel, "grpo"], SEEDS)] = None
    runs = results(trials, folder, jobs, show, "comparison")
    found: list[dict[str, Any]] = []
    for panel in panels:
        own = {method: runs[own_trial(panel, method, rates)] for method in (*TUNED, *CONTROLS)}
        same = {method: runs[Trial(panel, method, rates[panel, "grpo"], SEEDS)] for method in SAME}
        found.append(
            {
                "condition": panel.condition.name,
                "optimizer": panel.optimizer,
                "kl": panel.kl,
                "rates": {method: rates[panel, method] for method in TUNED},
                "at_edge": [m for m in TUNED if rates[panel, m] in _ends(LEARNING_RATES[panel.optimizer])],
                "own": _compared(panel, own),
                "same": _compared(panel, same),
                "step_size": {
                    method: round(float(run.curves["step_size"].area.mean()), 4) for method, run in same.items()
                },
            }
        )
    for kind in ("own", "same"):
        for measure in MEASURES:
            correct([one[kind]["differences"][m][measure] for one in found for m in one[kind]["differences"]])
    return {"schema": 1, "seeds": len(SEEDS), "tuning_seeds": len(TUNING_SEEDS), "panels": found}


def own_trial(panel: Panel, method: str, rates: Mapping[tuple[Panel, str], float]) -> Trial:
    """A method at its own learning rate; a control at CorrGRPO's."""
    return Trial(panel, method, rates[panel, "corrgrpo" if method in CONTROLS else method], SEEDS)


def tuned(
    wanted: Mapping[tuple[Panel, str], tuple[tuple[str, float], ...]], folder: Path, jobs: int, show: bool
) -> dict[tuple[Panel, str], float]:
    """For each panel and method (to its options) the learning rate with the largest mean area on the tuning seeds."""
    trials = {
        key: [Trial(key[0], key[1], rate, TUNING_SEEDS, options) for rate in LEARNING_RATES[key[0].optimizer]]
        for key, options in wanted.items()
    }
    runs = results([trial for some in trials.values() for trial in some], folder, jobs, show, "learning rates")
    return {
        key: max(some, key=lambda trial: float(gained(trial.panel, runs[trial], "area").mean())).rate
        for key, some in trials.items()
    }


def results(trials: Iterable[Trial], folder: Path, jobs: int, show: bool, what: str) -> dict[Trial, Measured]:
    """Run the trials, or read them."""
    distinct = list(dict.fromkeys(trials))
    measured = run_on_table([trial.cell for trial in distinct], folder, jobs=jobs, show=show, what=what)
    return dict(zip(distinct, measured, strict=True))


def gained(panel: Panel, run: Measured, which: str) -> Values:
    """Share of the gain that was to be had, in percent, one per seed; `which` is "area" or "final"."""
    curve = run.curves["reward"]
    start = curve.first
    share: Values = 100 * (getattr(curve, which) - start) / (best_reward(panel) - start)
    return share


def best_reward(panel: Panel) -> float:
    """Mean over tasks of the largest expected total of an arm."""
    bandit = _bandit(panel)
    return _best(bandit, np.array([component.weight for component in bandit.reward_spec]))


def balanced(panel: Panel, run: Measured) -> Values:
    """The area as in `gained`, of the sum of components in units of their scales."""
    bandit = _bandit(panel)
    weights = 1 / np.array(bandit.scales)
    names = [f"components/{component.name}" for component in bandit.reward_spec]
    start, area = (
        np.stack([getattr(run.curves[name], which) for name in names], axis=-1) @ weights for which in ("first", "area")
    )
    share: Values = 100 * (area - start) / (_best(bandit, weights) - start)
    return share


def _bandit(panel: Panel) -> CorrelatedBandit:
    cell = Trial(panel, "corrgrpo", 1.0, (0,)).cell
    return CorrelatedBandit(**{"split": "all", **cell.arguments["env_args"]})


def _best(bandit: CorrelatedBandit, weights: Values) -> float:
    levels = np.array([task.data for task in bandit.tasks])
    return float((bandit.means(levels) @ weights).max(axis=1).mean())


MEASURES: dict[str, Callable[[Panel, Measured], Values]] = {
    "area": lambda panel, run: gained(panel, run, "area"),
    "final": lambda panel, run: gained(panel, run, "final"),
    "balanced": balanced,
}
"""What is reported, by name."""


def correct(differences: Sequence[dict[str, Any]]) -> None:
    """Put Holm's adjusted p beside each p."""
    for one, adjusted in zip(differences, holm([one["p"] for one in differences]), strict=True):
        one["p_holm"] = adjusted


def _compared(panel: Panel, runs: Mapping[str, Measured]) -> dict[str, Any]:
    values = {method: {w: measure(panel, run) for w, measure in MEASURES.items()} for method, run in runs.items()}
    return {
        "values": {m: {w: rounded(mean_interval(v).to_json()) for w, v in some.items()} for m, some in values.items()},
        # CorrGRPO less the other: above 0 where CorrGRPO is better.
        "differences": {
            method: {w: rounded(difference(values["corrgrpo"][w], some[w])) for w in some}
            for method, some in values.items()
            if method != "corrgrpo"
        },
        "less_grpo": {
            method: {w: rounded(difference(some[w], values["grpo"][w])) for w in some}
            for method, some in values.items()
            if method != "grpo"
        },
    }


def rounded(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Percentages to four decimals; probabilities as they are."""
    return {
        name: round(value, 4) if isinstance(value, float) and not name.startswith("p") else value
        for name, value in numbers.items()
    }


def _ends(rates: Sequence[float]) -> tuple[float, float]:
    return rates[0], rates[-1]
