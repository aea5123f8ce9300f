"""The command line of a comparison; every setting of the trainer passes through it."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from corrgrpo_envs.registration import full_id
from corrgrpo_train import cli as trainer_cli
from corrgrpo_train.benchmark.bandit_runs import LEARNING_RATES, BanditCell, run_on_table
from corrgrpo_train.benchmark.comparison import compare
from corrgrpo_train.benchmark.measured import Measured
from corrgrpo_train.benchmark.output import write_comparison
from corrgrpo_train.benchmark.plan import BANDIT, RESERVED, Plan, make_plan, parse_seeds, parse_sweep, swept
from corrgrpo_train.benchmark.tables import text_tables
from corrgrpo_train.benchmark.trainer_runs import run_with_trainer
from corrgrpo_train.bundles import merge
from corrgrpo_train.config import Config, read_settings, read_yaml
from corrgrpo_train.errors import UsageError
from corrgrpo_train.run_lock import RunLock

DESCRIPTION = "Train several methods on one environment, with the same seeds and tasks, and compare them."
EPILOG = (
    "Every setting of the trainer is taken as well (--steps, --learning-rate, --env-args.noise, --preset, --config, "
    "...: python -m corrgrpo_train --help). The same command continues where it was interrupted."
)
METHODS = "corrgrpo,grpo,gdpo,mo_grpo,dr_grpo,matched,shuffled"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0, 2 for wrong input or a run that failed, 130 when interrupted.

    Args:
        argv: arguments after the program's name; None takes them from `sys.argv`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.stdout.write(run(arguments))
        return 0
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on from here")
        return 130
    except (UsageError, argparse.ArgumentError) as error:
        if "--traceback" in arguments:
            raise
        _say("error: " + " ".join(str(error).split()))
        return 2
    except (OSError, BrokenExecutor) as error:
        if "--traceback" in arguments:
            raise
        where = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        _say(f"error: {' '.join(where.split())}; what is done is kept, the same command does the rest")
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)


def run(arguments: Sequence[str]) -> str:
    """Do a comparison and return its tables as text.

    Raises:
        UsageError: for wrong input.
    """
    own, rest = parser().parse_known_args(list(arguments))
    given = trainer_cli.parse([word for word in rest if word != "--traceback"])
    settings = _settings(given)
    sweeps = dict(parse_sweep(text) for text in own.sweep)
    if len(sweeps) < len(own.sweep):
        raise UsageError("sweep names one setting twice: give all its values in one --sweep")
    plan = make_plan(_names(own.methods), parse_seeds(own.seeds), _names(own.objectives), sweeps, own.baseline)
    if own.jobs < 1:
        raise UsageError(f"jobs must be at least 1, not {own.jobs}")
    folder = Path(own.output or f"runs/benchmark-{full_id(settings['env']).rpartition('/')[2]}")
    policy = own.policy or ("bandit" if full_id(settings["env"]) == BANDIT and "model" not in settings else "model")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"output {folder} cannot be made: {error.strerror}; choose another --output") from None
    lock = RunLock(folder)
    try:
        measured = POLICIES[policy](plan, given, settings, own, folder)
        comparison = compare(
            measured,
            plan.baseline,
            about={
                "command": shlex.join(["python", "-m", "corrgrpo_train.benchmark", *arguments]),
                "env": settings["env"],
                "policy": policy,
            },
        )
        paths = write_comparison(comparison, measured, folder)
    finally:
        lock.close()
    return "\n".join([text_tables(comparison), *(f"{path}" for path in paths), ""])


def parser() -> argparse.ArgumentParser:
    """The flags that are not the trainer's."""
    flags = argparse.ArgumentParser(
        prog="python -m corrgrpo_train.benchmark",
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
        exit_on_error=False,
    )
    flags.add_argument("--methods", default=METHODS, help='estimators, with commas between; "module:name" for your own')
    flags.add_argument("--baseline", help="method that the others are compared with; default: the first")
    flags.add_argument("--objectives", default="grpo", help="surrogates, with commas between")
    flags.add_argument("--seeds", default="10", help="how many, or which: 3,5,8")
    flags.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="NAME=V,V,...",
        help="a setting, or argument of the environment, and its values; several are crossed",
    )
    flags.add_argument(
        "--policy",
        choices=sorted(POLICIES),
        help="what is trained: a table of a few parameters (CorrelatedBandit alone, the default there), or a model",
    )
    flags.add_argument(
        "--optimizer", choices=sorted(LEARNING_RATES), default="sgd", help="optimiser of the policy 'bandit'"
    )
    flags.add_argument("--jobs", type=int, default=1, help="processes at a time")
    flags.add_argument("--output", metavar="FOLDER", help="default: runs/benchmark-ENV")
    flags.add_argument("--keep-policies", action="store_true", help="keep the checkpoints of finished runs")
    flags.add_argument("--quiet", action="store_true", help="show no progress")
    return flags


def _settings(given: trainer_cli.Flags) -> dict[str, Any]:
    """What preset, file and flags set, without defaults and profiles."""
    from corrgrpo_train import presets

    layers: list[Mapping[str, Any]] = []
    if given.preset is not None:
        layers.append(read_settings(presets.read(given.preset), f"preset {given.preset!r}"))
    if given.config is not None:
        layers.append(read_yaml(given.config))
    settings = merge([*layers, given.settings])
    for name, instead in (("method", "--methods"), ("objective", "--objectives"), ("seed", "--seeds")):
        if name in given.settings:
            raise UsageError(f"--{name} is for single runs: here it is {instead}")
    for name in ("mode", "resume"):
        if settings.get(name):
            raise UsageError(f"{name} is for single runs: leave it out")
    if given.print_config:
        raise UsageError("--print-config is for single runs: leave it out")
    if "env" not in settings:
        raise UsageError("name an environment, for example --env RLLA-v0 or --env CorrelatedBandit-v0")
    return settings


def _on_table(
    plan: Plan, given: trainer_cli.Flags, settings: Mapping[str, Any], own: argparse.Namespace, folder: Path
) -> list[Measured]:
    if full_id(settings["env"]) != BANDIT:
        raise UsageError(f"policy 'bandit' is for CorrelatedBandit-v0, not {settings['env']}: use --policy model")
    cells = []
    for cell in plan.cells:
        placed = {name: value for name, value in swept(settings, cell.sweep).items() if name not in RESERVED}
        cells.append(BanditCell(cell, tuple(plan.seeds), placed, own.optimizer))
    return run_on_table(cells, folder / "cells", jobs=own.jobs, show=not own.quiet)


def _on_model(
    plan: Plan, given: trainer_cli.Flags, settings: Mapping[str, Any], own: argparse.Namespace, folder: Path
) -> list[Measured]:
    if own.optimizer != "sgd":
        raise UsageError("--optimizer is for policy 'bandit': models are trained with AdamW")
    told = set[str]()
    configs = []
    for cell in plan.cells:
        placed = swept(settings, cell.sweep)
        row = []
        for seed in plan.seeds:
            config, notes = _config(placed, given.preset, cell.method, cell.objective, seed)
            config.quiet, config.threads = True, config.threads or max(1, (os.cpu_count() or 1) // own.jobs)
            row.append(config)
            for note in set(notes) - told:
                _say(note)
            told.update(notes)
        configs.append(row)
    return run_with_trainer(plan, configs, folder, jobs=own.jobs, keep_policies=own.keep_policies, show=not own.quiet)


def _config(
    settings: Mapping[str, Any], preset: str | None, method: str, objective: str, seed: int
) -> tuple[Config, list[str]]:
    """A run's settings as the trainer's command line would make them, the machine's profile included."""
    chosen = {**settings, "method": method, "objective": objective, "seed": seed, "output": "runs/.benchmark"}
    return trainer_cli.gather(trainer_cli.Flags(settings=chosen, preset=preset))


POLICIES: dict[str, Callable[..., list[Measured]]] = {"bandit": _on_table, "model": _on_model}
"""What is trained, by name."""


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _say(text: str) -> None:
    sys.stderr.write(f"corrgrpo_train.benchmark: {text}\n")
