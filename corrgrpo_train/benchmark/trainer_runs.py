"""Cells as runs of the whole trainer: one process and one run folder per cell and seed, cached and resumed."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from corrgrpo_train.benchmark.fingerprint import fingerprint
from corrgrpo_train.benchmark.measured import Measured, Points, stacked
from corrgrpo_train.benchmark.plan import Plan
from corrgrpo_train.benchmark.processes import Job, run_jobs
from corrgrpo_train.checkpoint import latest_checkpoint
from corrgrpo_train.config import Config, results_of, to_yaml
from corrgrpo_train.config_checks import validate
from corrgrpo_train.report.runs import Run, read_run
from corrgrpo_train.run_lock import RunLock
from corrgrpo_train.tracking import replace_file

RESULT = "result.json"

START_SETTINGS = (
    "env",
    "env_args",
    "model",
    "max_prompt_tokens",
    "max_new_tokens",
    "max_episode_tokens",
    "max_grad_norm",
    "token_budget",
    "gradient_checkpointing",
    "shared_prompts",
    "autocast",
    "device",
    "threads",
    "seed",
    "warm_start",
    "warm_start_batch",
    "warm_start_epochs",
    "warm_start_learning_rate",
)
"""All that a warm start depends on: runs that agree in these begin with the same policy."""


def run_with_trainer(
    plan: Plan,
    configs: Sequence[Sequence[Config]],
    folder: Path,
    *,
    jobs: int = 1,
    keep_policies: bool = False,
    show: bool = True,
) -> list[Measured]:
    """Train every cell with every seed and read what was measured.

    A warm start is done once per seed and shared by all methods, which it is the same for. Runs that are in the
    folder already are read, those that were interrupted are resumed. Each run's checkpoints are deleted when it is
    done, unless they are to be kept: they are gigabytes, and what is compared is in its metrics.

    Args:
        plan: cells and seeds.
        configs: settings by cell and seed; the run folder is chosen here.
        folder: where the run folders go, in `runs/` and `starts/`.
        jobs: processes at a time.
        keep_policies: keep checkpoints of finished runs.
        show: show the progress.

    Raises:
        UsageError: for settings that can't work, before anything is started; if a run failed, after the others have
            ended, with its last words.
    """
    for per_seed in configs:
        validate(replace(per_seed[0], output=str(folder / "runs" / "new")))
    starts: dict[str, Job] = {}
    runs: list[list[Job]] = []
    for cell, per_seed in zip(plan.cells, configs, strict=True):
        row = []
        for seed, config in zip(plan.seeds, per_seed, strict=True):
            mark = fingerprint({**results_of(config), "steps": config.steps}, config.method_name)
            name = f"{cell.file_name}-s{seed}-{mark}"
            if config.warm_start and not config.lora_rank:
                start = _start_job(config, folder)
                starts[start.folder.name] = start
                config = replace(config, warm_start=0, model=str(_policy(start.folder)))
            row.append(_job(f"{cell.label} seed {seed}", config, folder / "runs" / name, keep_policies))
        runs.append(row)
    missing = {job.config.model for row in runs for job in row if not _is_done(job.folder)}
    needed = [job for job in starts.values() if str(_policy(job.folder)) in missing]
    run_jobs([job for job in needed if not _policy(job.folder).is_dir()], jobs, "warm starts", show=show)
    # Seed by seed: what is done after an interruption can be compared.
    by_seed = [job for jobs_of_seed in zip(*runs, strict=True) for job in jobs_of_seed]
    run_jobs([job for job in by_seed if not _is_done(job.folder)], jobs, "runs", show=show)
    return [_measured(plan, place, row) for place, row in enumerate(runs)]


def _start_job(config: Config, folder: Path) -> Job:
    chosen = {name: value for name, value in asdict(config).items() if name in START_SETTINGS}
    mark = fingerprint(chosen)
    start = Config(**chosen, steps=0, validation_tasks=0, tensorboard=False, quiet=True)
    return _job(f"warm start, seed {config.seed}", start, folder / "starts" / f"s{config.seed}-{mark}", True)


def _policy(start: Path) -> Path:
    """Where the checkpoint before the first step has its policy."""
    return (start / "checkpoints" / "step_000000" / "policy").absolute()


def _job(label: str, config: Config, folder: Path, keep: bool) -> Job:
    config = replace(config, output=str(folder), resume=False, report=False)  # one page compares them all
    finish: Callable[[], None] = (lambda: None) if config.steps == 0 else (lambda: _finish(folder, keep))
    return Job(label, config, folder, _prepare, finish)


def _prepare(job: Job) -> list[str]:
    """Write the settings beside the run folder and say how the run is started or resumed."""
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    settings = job.folder.parent / f"{job.folder.name}.yaml"
    settings.write_text(to_yaml(job.config), encoding="utf-8")
    words = [sys.executable, "-m", "corrgrpo_train", "--config", str(settings)]
    if not job.folder.exists():
        return words
    # A run outlives a comparison that was killed: what it still writes is not touched.
    lock = RunLock(job.folder)
    try:
        if latest_checkpoint(job.folder) is not None:
            return [*words, "--resume"]
        shutil.rmtree(job.folder)  # ended before its first checkpoint: nothing in it is worth keeping
        return words
    finally:
        lock.close()


def _finish(folder: Path, keep: bool) -> None:
    run = read_run(folder)
    data = {"curves": _curves(run), "weights": _weights(run)}
    replace_file(folder / RESULT, json.dumps(data).encode())
    if not keep:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _is_done(folder: Path) -> bool:
    return _result(folder) is not None


def _result(folder: Path) -> dict[str, Any] | None:
    """What a finished run gave; None where it is not finished, or a crash has damaged the file."""
    try:
        saved = json.loads((folder / RESULT).read_bytes())
        return {"curves": dict(saved["curves"]), "weights": dict(saved["weights"])}
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None


def _curves(run: Run) -> dict[str, Points]:
    """Held-out results from before the first step on; where none were held out, sampled ones."""
    phases = ("warm_start", "train") if run.series("validation/reward", ("warm_start",)) else ("base", "train")
    held_out: dict[str, Points] = {name: run.series(f"validation/{name}", phases) for name in run.names("validation/")}
    sampled: dict[str, Points] = {"reward": run.series("reward/mean")}
    sampled |= {
        f"components/{name}": run.series(f"components/{name}/mean") for name in run.names("components/", "/mean")
    }
    sampled |= {f"metrics/{name}": run.series(f"metrics/{name}") for name in run.names("metrics/")}
    curves: dict[str, Points] = held_out or sampled
    curves = {name: points for name, points in curves.items() if name != "failed"}
    return curves | {
        "sampled_reward": sampled["reward"],
        "entropy": run.series("policy/entropy"),
        "step_size": run.series("estimator/advantage_mean_abs"),
        "share_without_signal": run.series("estimator/share_without_signal"),
    }


def _weights(run: Run) -> dict[str, float]:
    points = {name: run.series(f"weights/base/{name}") for name in run.names("weights/base/")}
    return {name: values[-1][1] for name, values in points.items() if values}


def _measured(plan: Plan, place: int, jobs: Sequence[Job]) -> Measured:
    saved = [result for job in jobs if (result := _result(job.folder)) is not None]
    curves = stacked([one["curves"] for one in saved])
    return Measured(plan.cells[place], tuple(plan.seeds), curves, saved[0]["weights"])
