"""What a run keeps in its checkpoints beside tensors, and the check that it has come back."""

from collections.abc import Callable
from typing import Any

from corrgrpo_train.checkpoint import Checkpoint, damaged
from corrgrpo_train.errors import UsageError


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
