"""The reference policy of a run: the policy as it was before reinforcement learning, kept for `--resume`.

With a LoRA adapter the reference is the model without it, and nothing needs to be kept.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_model

from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.policy import Policy

FILE = "reference.safetensors"


def keep_reference(policy: Policy, run_dir: Path) -> None:
    """Make the policy of this moment the reference, and write it to the run folder, in full or not at all.

    Raises:
        UsageError: if it cannot be written.
    """
    policy.freeze_reference()
    if policy.adapter is not None:
        return
    with policy.gathered() as whole:
        if policy.processes.first:
            _write(whole, run_dir)


def _write(model: Any, run_dir: Path) -> None:
    aside = run_dir / f"{FILE}.tmp"
    try:
        save_model(model, str(aside))
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(run_dir / FILE)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise UsageError(
            f"the reference policy could not be saved in {run_dir}: {first_line(error)}; make room or fix the folder"
        ) from error


def restore_reference(policy: Policy, run_dir: Path) -> None:
    """Make what `keep_reference` wrote the reference again; the policy itself stays as it is.

    Raises:
        UsageError: if the file is missing or damaged.
    """
    if policy.adapter is not None:
        policy.freeze_reference()
        return
    try:
        policy.load_reference(load_file(str(run_dir / FILE)))
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(
            f"{run_dir / FILE}, the policy that the KL term compares with, is missing or damaged "
            f"({first_line(error)}): the run can't be continued; start a new one with another --output"
        ) from error
