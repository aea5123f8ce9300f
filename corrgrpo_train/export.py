"""`python -m corrgrpo_train.export`: a trained policy as a plain Hugging Face folder.

An adapter is added into the weights of its model, so that any program can load the folder. It is written aside and
renamed: it is there in full or not at all. A folder that is there already is left alone.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from safetensors import SafetensorError
from transformers.utils import logging

from corrgrpo_envs.errors import unknown
from corrgrpo_train.checkpoint import (
    COMPLETE,
    best_checkpoint,
    complete_checkpoints,
    flush,
    latest_checkpoint,
    load_checkpoint,
    reason,
    step_of,
)
from corrgrpo_train.errors import UsageError
from corrgrpo_train.models import load_policy_model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def export(source: Path, folder: Path, *, which: str = "best", dtype: str = "float32") -> Path:
    """Write the policy of a run or a checkpoint to a folder.

    Args:
        source: a run folder or one checkpoint in it.
        folder: where the policy goes; must not exist, or be empty.
        which: of a run: "best" by validation, "latest", or the number of a step.
        dtype: float type of the weights, a key of `DTYPES`.

    Returns:
        The checkpoint that was exported.

    Raises:
        UsageError: if there is no such checkpoint, it is damaged, the folder is taken, or cannot be written.
    """
    if dtype not in DTYPES:
        raise UsageError(str(unknown("dtype", dtype, DTYPES)))
    taken = UsageError(f"{folder} already exists and is left alone: name another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise taken
    chosen = _chosen(source, which)
    loaded = load_policy_model(str(load_checkpoint(chosen).policy_dir))
    aside = None
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        aside = folder.absolute().with_name(f".export-{folder.name}-{os.getpid()}")
        aside.mkdir()
        loaded.model.to(DTYPES[dtype])  # type: ignore[arg-type]
        loaded.model.save_pretrained(aside)
        loaded.tokenizer.save_pretrained(aside)
        for path in (*aside.rglob("*"), aside):
            flush(path)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise taken
        os.rename(aside, folder)  # refuses a folder that has been filled in the meantime
        flush(folder.absolute().parent)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UsageError(f"{folder} cannot be written: {reason(error)}; nothing is left of it") from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
    return chosen


def _chosen(source: Path, which: str) -> Path:
    """The checkpoint that is meant."""
    if (source / COMPLETE).is_file() or step_of(source) >= 0:
        return source
    found = complete_checkpoints(source)
    if not found:
        raise UsageError(f"{source} is neither a run with a checkpoint nor a checkpoint (checkpoints/step_000010)")
    if which == "latest":
        return latest_checkpoint(source, clean=False) or found[-1]
    if which == "best":
        best = best_checkpoint(source)
        if best is None:
            raise UsageError(f"no checkpoint of {source} was found best by a validation: take --which latest")
        return best
    steps = {str(step_of(path)): path for path in found}
    if which not in steps:
        raise UsageError(str(unknown("checkpoint", which, ["best", "latest", *steps])))
    return steps[which]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, or 2 for wrong input."""
    parser = argparse.ArgumentParser(
        prog="python -m corrgrpo_train.export", description="Write a trained policy as a plain Hugging Face folder."
    )
    parser.add_argument("source", type=Path, help="a run folder, or one checkpoint in it")
    parser.add_argument("folder", type=Path, help="where to write; never written over")
    parser.add_argument("--which", default="best", help="of a run: best (default), latest, or the number of a step")
    parser.add_argument("--dtype", default="float32", help="float type of the weights: " + ", ".join(DTYPES))
    chosen = parser.parse_args(arguments)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        checkpoint = export(chosen.source, chosen.folder, which=chosen.which, dtype=chosen.dtype)
    except UsageError as error:
        Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(
            f"corrgrpo_train.export: error: {error}"
        )
        return 2
    Console(soft_wrap=True, highlight=False, markup=False).print(f"{checkpoint} is exported to {chosen.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
