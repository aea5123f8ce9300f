"""What this integration takes for granted of TRL's inside, and the checks that say so when it changes.

TRL computes advantages in the middle of a long private method; there is no hook. `MultiRewardGRPOTrainer` overrides two
private methods, and reads what is listed here. A version outside `SUPPORTED` is refused: the list may still hold
there while the meaning has changed, which only `tests/train/integrations` can tell.
"""

import inspect
from typing import Any

from packaging.specifiers import SpecifierSet

from corrgrpo_train.errors import UsageError

SUPPORTED = SpecifierSet(">=1.16,<1.17")
"""The versions of TRL that the tests ran with; the extra `trl` has the same."""

PARAMETERS = {
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
    "_generate_and_score_completions": ("self", "inputs"),
}
"""The overridden methods and their parameters."""

ATTRIBUTES = (
    "_logs",
    "_metrics",
    "_tokenizer",
    "accelerator",
    "environment_factories",
    "eos_token_ids",
    "model",
    "multi_objective_aggregation",
    "num_generations",
    "num_generations_eval",
    "reward_func_names",
    "reward_funcs",
    "reward_weights",
    "scale_rewards",
    "state",
)
"""What a trainer holds after its constructor."""


def check_version(version: str) -> None:
    """Check that the version is one that was tested.

    Raises:
        UsageError: if not.
    """
    if not SUPPORTED.contains(version, prereleases=True):
        raise UsageError(
            f"TRL {version} is not supported: this integration overrides private methods of TRL, and was tested with "
            f"{SUPPORTED} only; pip install 'corrgrpo[train,trl]'"
        )


def check_class(trainer: type) -> None:
    """Check the methods of TRL's `GRPOTrainer` that are overridden.

    Raises:
        UsageError: for the first one that is missing or takes other arguments.
    """
    for name, expected in PARAMETERS.items():
        method = getattr(trainer, name, None)
        found = None if method is None else tuple(inspect.signature(method).parameters)
        if found != expected:
            raise UsageError(
                f"TRL's GRPOTrainer.{name} has changed: {found} where {expected} is expected; "
                f"install a version in {SUPPORTED}"
            )


def check_trainer(trainer: Any) -> None:
    """Check what a constructed trainer holds.

    Raises:
        UsageError: for the first attribute that is missing.
    """
    names = [*ATTRIBUTES, *(("_env_tools", "_standalone_tools") if trainer.environment_factories else ())]
    for name in names:
        if not hasattr(trainer, name):
            raise UsageError(f"TRL's GRPOTrainer has no {name!r} any more; install a version in {SUPPORTED}")
    if "advantages" not in trainer._logs or set(trainer._metrics) != {"train", "eval"}:
        raise UsageError(f"TRL's GRPOTrainer keeps its logs differently; install a version in {SUPPORTED}")


def check_batch(output: Any, rows: int) -> None:
    """Check what TRL made of a batch of `rows` completions of this process.

    Raises:
        UsageError: if the advantages are not one number for each of them.
    """
    advantages = output.get("advantages")
    if advantages is None or tuple(advantages.shape) != (rows,):
        found = None if advantages is None else tuple(advantages.shape)
        raise UsageError(
            f"TRL's advantages have the shape {found} where ({rows},) is expected; install a version in {SUPPORTED}"
        )
