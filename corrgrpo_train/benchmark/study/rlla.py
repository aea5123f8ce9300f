"""The study on tool calls: short runs of a small language model, through the benchmark's command line."""

import json
import shlex
from pathlib import Path
from typing import Any

from corrgrpo_train.benchmark import cli

METHODS = "corrgrpo,grpo,matched,gdpo,mo_grpo,shuffled"
SEEDS = 3
STEPS = 10
SETTINGS = (
    *("--env", "RLLA-v0"),
    # Settings that the machine's profile would choose are given: the same on every machine.
    *("--model", "default", "--device", "cpu", "--env-args.distractors", "0", "--env-args.kinds", '["single"]'),
    *("--groups-per-step", "4", "--group-size", "4", "--learning-rate", "3e-5"),
    *("--max-prompt-tokens", "256", "--max-new-tokens", "72", "--token-budget", "2048"),
    *("--warm-start", "48", "--warm-start-learning-rate", "5e-5"),
    *("--validation-every", "0", "--validation-tasks", "32", "--checkpoint-every", "3"),
    *("--no-tensorboard", "--transcripts-per-step", "0", "--threads", "1"),
)
"""One thread per run: results differ in their last bits with the number of threads, and two runs fit on two cores."""


def rlla_part(
    folder: Path, jobs: int, *, show: bool = True, methods: str = METHODS, seeds: int = SEEDS, steps: int = STEPS
) -> dict[str, Any]:
    """Train the model under every method and return the comparison."""
    quiet = [] if show else ["--quiet"]
    settings = [*SETTINGS, "--methods", methods, "--seeds", str(seeds), "--steps", str(steps)]
    cli.run([*settings, "--jobs", str(jobs), "--output", str(folder), *quiet])
    comparison: dict[str, Any] = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    # How many processes, and where: neither has a part in the results.
    comparison["command"] = shlex.join(["python", "-m", "corrgrpo_train.benchmark", *settings])
    return comparison
