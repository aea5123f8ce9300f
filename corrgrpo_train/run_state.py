"""What a run keeps in its checkpoints beside tensors, and the check that it has come back."""

from collections.abc import Callable
from typing import Any

from corrgrpo_train.checkpoint import Checkpoint, damaged, latest_checkpoint, load_checkpoint
from corrgrpo_train.config import Config, config_hash
from corrgrpo_train.errors import UsageError
from corrgrpo_train.processes import Processes


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number_or_null(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_STATE: dict[str, tuple[Callable[[Any], bool], str]] = {
    "config_hash": (lambda value: isinstance(value, str), "text"),
    "position": (_is_count, "a count"),
    "too_long": (_is_count, "a count"),
    "best": (_is_number_or_null, "a number or null"),
    "had_signal": (lambda value: isinstance(value, bool), "true or false"),
    "validations": (
        lambda value: isinstance(value, dict) and all(isinstance(results, dict) for results in value.values()),
        "a mapping of mappings",
    ),
    "weighting": (lambda value: isinstance(value, dict), "a mapping"),
}
"""What the trainer puts into a checkpoint's state: what each value must be, as a test and in words."""


def check_state(checkpoint: Checkpoint) -> None:
    """Check that a checkpoint's state is what the trainer saved, before anything of the run is touched.

    Raises:
        UsageError: naming the first value that is not.
    """
    for name, (holds, what) in _STATE.items():
        if not holds(checkpoint.state.get(name, NotImplemented)):
            raise UsageError(damaged(checkpoint, f"{name} in its state.json is not {what}"))


def checkpoint_to_resume(config: Config, processes: Processes) -> Checkpoint | None:
    """The latest checkpoint of the run folder; None if the run was ended before its first.

    Raises:
        UsageError: if it is damaged, belongs to a run with other settings, or has more steps than are asked for.
    """
    path = processes.of_first(lambda: latest_checkpoint(config.run_dir))
    if path is None:
        return None
    checkpoint = load_checkpoint(path)
    check_state(checkpoint)
    if checkpoint.state["config_hash"] != config_hash(config):
        raise UsageError(f"{config.run_dir} was made with other settings; see its config.yaml, or use another --output")
    if checkpoint.step > config.steps:
        raise UsageError(
            f"{config.run_dir} already has {checkpoint.step} steps, more than --steps {config.steps}; raise it"
        )
    return checkpoint
