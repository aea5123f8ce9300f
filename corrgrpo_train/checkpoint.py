"""Checkpoints that a run killed at any moment can be resumed from: `save_checkpoint`, `load_checkpoint`.

One checkpoint is a folder, complete or absent:

    checkpoints/step_000100/policy/        a Hugging Face folder
                            optimizer.pt   the optimiser's tensors
                            state.json     schema version, step, whether it was the best, the trainer's counters
                            COMPLETE       the names and sizes of all files, written last

It is written aside as `.tmp-step_000100`, flushed to the disk, and renamed. Whatever else a crash leaves
starts with a dot, is never read, and is cleared by the next save or resume. Which checkpoint is the best is
read from the folders themselves, so no second file can disagree with them.

The marker holds sizes and no hashes. It is written when every file is on the disk, so a crash cannot leave a
file of the right size and other content, and copies that were cut short have another size; hashes would read
gigabytes once more at every save. What disks or people change in place is met where it is read: the formats
are checked, and weights must be finite.
"""

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError

from corrgrpo_train.errors import UsageError, first_line

SCHEMA = 1
POLICY, OPTIMIZER, STATE, COMPLETE = "policy", "optimizer.pt", "state.json", "COMPLETE"
ASIDE, REPLACED = ".tmp-", ".old-"
STEP = re.compile(r"step_(\d+)")


class Saveable(Protocol):
    """A model or tokenizer of the transformers kind."""

    def save_pretrained(self, save_directory: str) -> Any:
        """Write a Hugging Face folder."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run continues from.

    Attributes:
        step: number of finished training steps.
        policy_dir: Hugging Face folder of the policy and its tokenizer.
        optimizer_state: what `save_checkpoint` was given, tensors on the CPU.
        state: the trainer's counters as given; tuples have become lists.
        best: whether it was the best by validation when it was saved.
    """

    step: int
    policy_dir: Path
    optimizer_state: dict[str, Any]
    state: dict[str, Any]
    best: bool


def save_checkpoint(
    run_dir: Path,
    step: int,
    *,
    model: Saveable,
    tokenizer: Saveable,
    optimizer_state: dict[str, Any],
    state: dict[str, Any],
    best: bool,
    keep: int,
) -> Path:
    """Save one checkpoint, then delete those that are neither among the newest `keep` nor the best.

    Args:
        run_dir: folder of the run; the checkpoint goes to `checkpoints/step_<step>` below it.
        step: number of finished training steps. An existing checkpoint of this step is replaced.
        model: written to `policy/`, with the tokenizer.
        tokenizer: see `model`.
        optimizer_state: nested dicts, lists and tuples of tensors, numbers, text and None, and nothing else: it is
            read back without running pickled code.
        state: counters and settings that JSON can hold; floats, nan and infinities included, come back exactly.
        best: whether validation found this the best checkpoint so far.
        keep: how many of the newest to keep, at least 1; the best is kept besides.

    Returns:
        The checkpoint's folder.

    Raises:
        UsageError: the disk is full or cannot be written; earlier checkpoints are as they were.
        TypeError: `optimizer_state` or `state` holds something that could not be read back.
        ValueError: `step` or `keep` is out of range.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step must be at least 0 and keep at least 1, not {step} and {keep}")
    require_plain(optimizer_state, "optimizer_state")
    text = json.dumps({"schema": SCHEMA, "step": step, "best": best, "state": state}, indent=1)
    folder = checkpoints_dir(run_dir) / f"step_{step:06d}"
    aside = folder.with_name(ASIDE + folder.name)
    try:
        clean_leftovers(run_dir)
        (aside / POLICY).mkdir(parents=True)
        model.save_pretrained(str(aside / POLICY))
        tokenizer.save_pretrained(str(aside / POLICY))
        torch.save(optimizer_state, aside / OPTIMIZER)
        (aside / STATE).write_text(text + "\n", encoding="utf-8")
        (aside / COMPLETE).write_text(json.dumps(sizes(aside), indent=1) + "\n", encoding="utf-8")
        for path in (*aside.rglob("*"), aside):
            flush(path)
        publish(aside, folder)
        rotate(run_dir, keep)
    except (OSError, RuntimeError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(aside)
        raise UsageError(
            f"the checkpoint of step {step} could not be saved in {folder.parent}: {reason(error)}; "
            "earlier checkpoints are intact: make room or fix the folder, then resume"
        ) from error
    return folder


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint back, checking that every file is there in full.

    Raises:
        UsageError: it is missing, incomplete, damaged, or of another schema version; names the previous good one.
    """
    problem = defect(path)
    if problem is None:
        try:
            content = json.loads((path / STATE).read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA:
                problem = f"has schema version {content['schema']!r}, this program reads {SCHEMA}"
            elif content["step"] != step_of(path):
                problem = f"is damaged ({STATE} is of step {content['step']!r})"
            else:
                optimizer_state = torch.load(path / OPTIMIZER, map_location="cpu", weights_only=True)
                return Checkpoint(
                    step=int(content["step"]),
                    policy_dir=path / POLICY,
                    optimizer_state=optimizer_state,
                    state=dict(content["state"]),
                    best=bool(content["best"]),
                )
        except Exception as error:  # torch.load raises half a dozen kinds on a damaged file
            problem = f"is damaged ({reason(error)})"
    raise UsageError(f"checkpoint {path} {problem}; {suggestion(path)}")


def damaged(checkpoint: Checkpoint, why: str) -> str:
    """Say that a checkpoint that could be read can't be continued from, and what to do."""
    path = checkpoint.policy_dir.parent
    return f"checkpoint {path} is damaged ({why}); {suggestion(path)}"


def latest_checkpoint(run_dir: Path, *, clean: bool = True) -> Path | None:
    """Return the newest complete checkpoint of a run, or None.

    Args:
        run_dir: folder of the run.
        clean: also clear what a crash left behind. Only the process that owns the run may do so: pass False to
            look at a run that may still be going on.
    """
    if clean:
        clean_leftovers(run_dir)
    found = complete_checkpoints(run_dir)
    return found[-1] if found else None


def best_checkpoint(run_dir: Path) -> Path | None:
    """Return the checkpoint that validation found best, or None: the newest that was the best when saved."""
    return next((path for path in reversed(complete_checkpoints(run_dir)) if was_best(path)), None)


def checkpoints_dir(run_dir: Path) -> Path:
    """Return the folder that holds a run's checkpoints."""
    return run_dir / "checkpoints"


def complete_checkpoints(run_dir: Path) -> list[Path]:
    """Return the folders that carry the COMPLETE marker, oldest first."""
    found = [path for path in checkpoints_dir(run_dir).glob("step_*") if (path / COMPLETE).is_file()]
    return sorted((path for path in found if step_of(path) >= 0), key=step_of)


def step_of(path: Path) -> int:
    """Return the step in a checkpoint folder's name, or -1."""
    match = STEP.fullmatch(path.name)
    return int(match[1]) if match else -1


def was_best(path: Path) -> bool:
    """Whether the checkpoint was the best when it was saved; a damaged one was not."""
    try:
        return bool(json.loads((path / STATE).read_text(encoding="utf-8"))["best"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def rotate(run_dir: Path, keep: int) -> None:
    """Delete complete checkpoints except the newest `keep` and the best."""
    found = complete_checkpoints(run_dir)
    best = best_checkpoint(run_dir)
    for path in found[:-keep]:
        if path != best:
            remove(path)


def remove(path: Path) -> None:
    """Delete a checkpoint; at no moment does a half-deleted one look complete."""
    aside = path.with_name(ASIDE + path.name)
    os.rename(path, aside)
    shutil.rmtree(aside)


def publish(aside: Path, folder: Path) -> None:
    """Rename `aside` to `folder`; what was there survives until the new one is in its place."""
    replaced = folder.with_name(REPLACED + folder.name)
    if folder.exists():
        os.rename(folder, replaced)
    os.rename(aside, folder)
    flush(folder.parent)
    if replaced.exists():
        shutil.rmtree(replaced)


def clean_leftovers(run_dir: Path) -> None:
    """Clear what a crash left; a replaced checkpoint whose successor never arrived comes back."""
    for path in checkpoints_dir(run_dir).glob(REPLACED + "*"):
        folder = path.with_name(path.name.removeprefix(REPLACED))
        if folder.exists() or not (path / COMPLETE).is_file():
            # Marker first: half deleted, it must not come back.
            (path / COMPLETE).unlink(missing_ok=True)
            shutil.rmtree(path)
        else:
            os.rename(path, folder)
    for path in checkpoints_dir(run_dir).glob(ASIDE + "*"):
        shutil.rmtree(path)


def sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of every file below `folder`, by relative name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def flush(path: Path) -> None:
    """Force a file's or a folder's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def defect(path: Path) -> str | None:
    """Say what is wrong with a checkpoint's files, or None."""
    if not path.is_dir():
        return "does not exist"
    try:
        expected = json.loads((path / COMPLETE).read_text(encoding="utf-8"))
        found = sizes(path)
        for name, size in expected.items():
            if found.get(name) != size:
                return f"is damaged ({name} has {found.get(name, 0)} of {size} bytes)"
    except FileNotFoundError:
        return f"is incomplete (no {COMPLETE} marker)"
    except (OSError, ValueError, AttributeError) as error:
        return f"is damaged ({reason(error)})"
    return None


def suggestion(path: Path) -> str:
    """Name the newest undamaged checkpoint before `path`."""
    earlier = [other for other in complete_checkpoints(path.parent.parent) if step_of(other) < step_of(path)]
    good = next((other for other in reversed(earlier) if defect(other) is None), None)
    return (
        f"delete it, and --resume takes the one before: {good}"
        if good
        else "there is no earlier one: start the run again"
    )


def require_plain(value: Any, name: str) -> None:
    """Raise `TypeError`, naming the place, for what could not be read back without running pickled code."""
    if value is not None and type(value) not in (bool, int, float, str, dict, list, tuple):
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{name} is a {type(value).__name__}: only tensors, numbers, text, dicts and lists are saved"
            )
        return
    for key, item in children(value):
        require_plain(item, f"{name}[{key!r}]")


def children(value: Any) -> Iterator[tuple[Any, Any]]:
    """Iterate over the keys (or positions) and items of a container; over nothing for anything else."""
    if isinstance(value, dict):
        for key in value:
            require_plain(key, "a key")
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)


def reason(error: BaseException) -> str:
    """Return one line that says why."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left" in str(error):
        return "no space left on the disk"
    if "unexpected pos" in str(error):  # the tensor library's words for a write that was cut short
        return "a file could not be written in full: the disk may be full"
    return first_line(error)
