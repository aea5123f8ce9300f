"""Cells as runs of the table policy on `CorrelatedBandit`: all seeds of a cell at once, cells cached."""

import json
import math
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from corrgrpo_envs.errors import unknown
from corrgrpo_envs.synthetic import CorrelatedBandit
from corrgrpo_train.advantages import ESTIMATORS
from corrgrpo_train.bandit_policy import train_bandit
from corrgrpo_train.benchmark.fingerprint import fingerprint
from corrgrpo_train.benchmark.measured import Curve, Measured
from corrgrpo_train.benchmark.plan import Cell
from corrgrpo_train.config_checks import import_registering
from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.objectives import OBJECTIVES, options_of
from corrgrpo_train.setting_types import typed
from corrgrpo_train.tracking import replace_file

SETTINGS = frozenset(
    {
        "steps",
        "groups_per_step",
        "group_size",
        "updates_per_rollout",
        "learning_rate",
        "kl_coefficient",
        "method_args",
        "env_args",
        "reward_weights",
        "clip_low",
        "clip_high",
        "cispo_max_ratio",
    }
)
"""Settings of the trainer that the table policy has as well."""

LEARNING_RATES = {"sgd": 8.0, "adamw": 0.05}
"""Taken where none is given."""


@dataclass(frozen=True)
class BanditCell:
    """A cell with its settings.

    Attributes:
        cell: method, objective and place in the sweep.
        seeds: trained together.
        settings: those of the trainer that were given, `env` left out.
        optimizer: "sgd" or "adamw".
    """

    cell: Cell
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str = "sgd"

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `train_bandit`.

        Raises:
            UsageError: for a setting that the table policy does not have.
        """
        given = dict(self.settings)
        for name in given:
            if name not in SETTINGS:
                raise UsageError(
                    f"{name} has no effect with the policy of a few parameters: leave it out, or train a model "
                    "(--policy model)"
                )
        own = options_of(self.cell.objective) if self.cell.objective in OBJECTIVES else {}
        objective = {name: given.pop(name) for name in ("clip_low", "clip_high", "cispo_max_ratio") if name in given}
        objective = {name: value for name, value in objective.items() if name in own}
        weights = given.pop("reward_weights", {})
        env_args = {**given.pop("env_args", {}), **({"reward_weights": weights} if weights else {})}
        given.setdefault("learning_rate", LEARNING_RATES.get(self.optimizer, 0.0))
        return {
            "method": self.cell.method_name,
            "objective": self.cell.objective,
            "seeds": list(self.seeds),
            "optimizer": self.optimizer,
            "objective_args": objective,
            "env_args": env_args,
            **given,
        }


def run_on_table(
    cells: Sequence[BanditCell], folder: Path | None, *, jobs: int = 1, show: bool = True, what: str = "cells"
) -> list[Measured]:
    """Train every cell; those that are in the folder already are read.

    Args:
        cells: what to train.
        folder: where results are kept; None keeps none.
        jobs: processes at a time, each with one thread. With 1 this process does all.
        show: show the progress on standard error.
        what: heading of the progress bar.

    Raises:
        UsageError: for wrong settings, before anything is trained.
    """
    files: list[Path | None] = []
    found: dict[int, Measured] = {}
    for place, one in enumerate(cells):
        import_registering("method", one.cell.method)
        known = one.cell.method_name in ESTIMATORS
        path = _file(one, folder) if folder is not None and known else None
        saved = None if path is None else _read(path)
        if saved is None:
            _check(one)
        else:
            found[place] = saved
        files.append(path)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    missing = [place for place in range(len(cells)) if place not in found]
    with _progress(what, len(cells), len(cells) - len(missing), show) as advance:
        for place, measured in _trained({place: cells[place] for place in missing}, jobs):
            path = files[place]
            found[place] = measured
            if path is not None:
                replace_file(path, json.dumps(measured.to_json()).encode())
            advance()
    return [found[place] for place in range(len(cells))]


def train_cell(one: BanditCell) -> Measured:
    """Train a cell's seeds, on one thread.

    A policy that has diverged, its numbers being none any more, is measured up to there.

    Raises:
        UsageError: if the estimator fails.
    """
    import_registering("method", one.cell.method)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = train_bandit(**one.arguments)
    except Exception as error:  # an estimator is a user's code: it may break only later
        raise UsageError(f"{one.cell.label}: {_told(error)}") from error
    finally:
        torch.set_num_threads(threads)
    bandit = CorrelatedBandit(**{"split": "all", **one.arguments["env_args"]})
    diverged = (~run.reward.isfinite()).any(dim=0).tolist()
    known = diverged.index(True) if True in diverged else len(run.steps)
    steps = tuple(float(step) for step in run.steps[:known])
    found = {
        "reward": run.reward,
        **{f"components/{name}": run.components[..., k] for k, name in enumerate(bandit.reward_spec.names)},
        "metrics/best_arm": run.best_arm,
        # The first policy is uniform, so the divergence from it is what the entropy has lost.
        "entropy": math.log(len(bandit.arms)) - run.kl,
        "kl": run.kl,
        "step_size": run.step_size,
    }
    curves = {name: Curve(steps, values[:, :known].double().numpy()) for name, values in found.items()}
    # No step was taken before the first measurement.
    sizes = curves.pop("step_size")
    if known > 1:
        curves["step_size"] = Curve(steps[1:], sizes.values[:, 1:])
    weights = {component.name: component.weight for component in bandit.reward_spec}
    return Measured(one.cell, one.seeds, curves, weights)


def _trained(cells: Mapping[int, BanditCell], jobs: int) -> Iterator[tuple[int, Measured]]:
    if jobs == 1 or len(cells) < 2:
        for place, one in cells.items():
            yield place, train_cell(one)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_ignore_interrupts) as pool:
        futures = {pool.submit(train_cell, one): place for place, one in cells.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _ignore_interrupts() -> None:
    """An interrupt at the keyboard reaches all processes: the first alone answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _check(one: BanditCell) -> None:
    """Train nothing, so that whatever is wrong with the settings is said now."""
    arguments = {**one.arguments, "seeds": list(one.seeds[:1])}
    for name in ("steps", "groups_per_step", "group_size", "updates_per_rollout"):
        value = arguments.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} must be a whole number of at least 1, not {value!r}")
    for name in ("learning_rate", "kl_coefficient"):
        value = typed(name, arguments.get(name, 0.0), float)
        if not 0 <= value < math.inf:
            raise UsageError(f"{name} must be at least 0 and finite, not {value}")
    if one.cell.method_name not in ESTIMATORS:
        raise UsageError(str(unknown("method", one.cell.method_name, ESTIMATORS)))
    try:
        train_bandit(**{**arguments, "steps": 1})
    except Exception as error:  # an estimator is a user's code: it may raise anything
        raise UsageError(f"{one.cell.label}: {_told(error)}") from error


def _told(error: Exception) -> str:
    """The error in one line, with its type where the text alone would not say what happened."""
    line = first_line(error)
    return line if isinstance(error, ValueError) else f"{type(error).__name__}: {line} (--traceback shows where)"


def _file(one: BanditCell, folder: Path) -> Path:
    mark = fingerprint(one.arguments, one.cell.method_name)
    return folder / f"{one.cell.file_name}-{mark}.json"


def _read(path: Path) -> Measured | None:
    """What was measured earlier; None where there is nothing, or a file that a crash has damaged."""
    try:
        return Measured.from_json(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return None


@contextmanager
def _progress(what: str, count: int, done: int, show: bool) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, quiet=not show)) as progress:
        task = progress.add_task(what, total=count, completed=done)
        yield lambda: progress.advance(task)
