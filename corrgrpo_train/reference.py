"""The reference policy of a run: the policy as it was before reinforcement learning, kept for `--resume`.

With a LoRA adapter the reference is the model without it, and nothing needs to be kept.
"""

import contextlib
import os
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

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
    aside = run_dir / f"{FILE}.tmp"
    try:
        save_model(policy.model, str(aside))
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
    current = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    try:
        load_model(policy.model, str(run_dir / FILE), device=str(policy.device))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UsageError(
            f"{run_dir / FILE}, the policy that the KL term compares with, is missing or damaged "
            f"({first_line(error)}): the run can't be continued; start a new one with another --output"
        ) from error
    policy.freeze_reference()
    policy.model.load_state_dict(current)
