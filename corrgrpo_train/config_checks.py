"""Checks of a configuration before anything heavy starts; each failure is one line that says what to do."""

import contextlib
import importlib
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from corrgrpo_envs import RewardSpec
from corrgrpo_envs.errors import shown, unknown
from corrgrpo_train.bundles import MODES
from corrgrpo_train.config import OVERLONG, Config
from corrgrpo_train.engines import vllm_arguments
from corrgrpo_train.errors import UsageError

AUTOCASTS = ("auto", "bf16", "off")
SHARDINGS = ("none", "fsdp")
ENGINE_NAMES = ("transformers", "vllm")
SCHEDULE_NAMES = ("lockstep", "async")

_AT_LEAST = {
    "lora_rank": 0,
    "seed": 0,
    "steps": 0,
    "groups_per_step": 1,
    "group_size": 1,
    "updates_per_rollout": 1,
    "dynamic_sampling_attempts": 1,
    "overlong_share": 0,
    "overlong_length": 1,
    # Below, logits divided by it leave the range of the numbers.
    "temperature": 1e-3,
    "max_prompt_tokens": 1,
    "max_new_tokens": 1,
    "max_episode_tokens": 2,
    "learning_rate": 0,
    "weight_decay": 0,
    "beta1": 0,
    "beta2": 0,
    "warmup_steps": 0,
    "clip_low": 0,
    "clip_high": 0,
    "cispo_max_ratio": 1,
    "kl_coefficient": 0,
    "entropy_coefficient": 0,
    "importance_cap": 1,
    "aggregation_length": 1,
    "warm_start": 0,
    "warm_start_batch": 1,
    "warm_start_epochs": 1,
    "warm_start_learning_rate": 0,
    "validation_every": 0,
    "validation_tasks": 0,
    "checkpoint_every": 0,
    "keep_checkpoints": 1,
    "transcripts_per_step": 0,
    "token_budget": 1,
    "threads": 1,
    "env_workers": 1,
}
# Of generators' seeds; of threads more than any machine has cores (the tensor library crashes at too many).
_AT_MOST = {"seed": 2**63 - 1, "threads": 1024, "overlong_share": 1}
_ABOVE_ZERO = ("max_grad_norm", "lora_alpha", "env_timeout", "vllm_memory", "vllm_tolerance")
_BELOW_ONE = ("beta1", "beta2")


def validate(config: Config) -> None:
    """Check everything that can be checked without a model: values, the environment, the algorithm.

    Quick checks come first.

    Raises:
        UsageError: for the first thing that is wrong.
    """
    check_values(config)
    check_device(config)
    check_weighting(config, check_environment(config))
    check_algorithm(config)


def check_values(config: Config) -> None:
    """Check ranges and names that need nothing beyond the configuration.

    Raises:
        UsageError: for the first value that is not allowed.
    """
    for name, low in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and not low <= value < math.inf:
            raise UsageError(f"{name} must be at least {low} and finite, not {shown(value)}")
    for name, high in _AT_MOST.items():
        value = getattr(config, name)
        if value is not None and value > high:
            raise UsageError(f"{name} must be at most {high}, not {shown(value)}")
    for name in _ABOVE_ZERO:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{name} must be above 0 and finite, not {value}")
    for name in _BELOW_ONE:
        if not getattr(config, name) < 1:
            raise UsageError(f"{name} must be below 1, not {getattr(config, name)}")
    if config.clip_low > 1:
        raise UsageError(f"clip_low must be at most 1, not {config.clip_low}: ratios are never negative")
    for name, weight in config.reward_weights.items():
        if not math.isfinite(weight):
            raise UsageError(f"reward_weights.{name} must be finite, not {weight}")
    _check_names(config)
    _check_engine(config)
    _check_without_effect(config)
    _check_output(config.run_dir)
    if config.max_episode_tokens is not None and config.max_episode_tokens <= config.max_prompt_tokens:
        raise UsageError(
            f"max_episode_tokens ({config.max_episode_tokens}) must be above max_prompt_tokens "
            f"({config.max_prompt_tokens}): it counts the prompt as well"
        )
    if config.aggregation == "constant" and config.aggregation_length is None:
        raise UsageError("aggregation 'constant' needs aggregation_length, its divisor in tokens")
    if config.track is not None:
        from corrgrpo_train.trackers import TRACKERS, check_installed

        _one_of("track", config.track, TRACKERS)
        check_installed(config.track)
    if config.dynamic_sampling is not None and config.group_size < 2:
        raise UsageError("dynamic_sampling needs a group_size of at least 2: one episode never differs")
    if "reward_weights" in config.env_args:
        raise UsageError("env_args must not hold reward_weights: give them as reward_weights (--reward-weights)")


def _check_without_effect(config: Config) -> None:
    """Check that no setting was changed that the others make idle."""
    idle = [
        ("aggregation_length", config.aggregation == "constant", "aggregation 'constant'"),
        ("importance_cap", config.importance_correction != "none", "importance_correction 'truncate' or 'mask'"),
        ("dynamic_sampling_attempts", config.dynamic_sampling is not None, "dynamic_sampling"),
        ("overlong_length", config.overlong_share > 0, "overlong_share"),
        ("vllm_memory", config.engine == "vllm", "engine 'vllm'"),
        ("vllm_tolerance", config.engine == "vllm", "engine 'vllm'"),
    ]
    for name, used, needed in idle:
        if not used and getattr(config, name) != getattr(Config, name):
            raise UsageError(f"{name} has no effect without {needed}: set that, or leave {name} out")


def _check_names(config: Config) -> None:
    if config.mode is not None:
        _one_of("mode", config.mode, MODES)
    _one_of("autocast", config.autocast, AUTOCASTS)
    _one_of("sharding", config.sharding, SHARDINGS)
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", config.device):
        _one_of("device", config.device, ("auto", "cpu", "cuda", "cuda:N", "mps"))
    if not re.fullmatch(r"reward|(components|metrics)/.+", config.select_by):
        _one_of("select_by", config.select_by, ("reward", "components/NAME", "metrics/NAME"))
    check_validation_split(config.validation_split)
    for name in ("env", "method", "weighting", "model"):
        if not getattr(config, name).strip():
            raise UsageError(f"{name} must not be empty")


def _check_engine(config: Config) -> None:
    _one_of("engine", config.engine, ENGINE_NAMES)
    _one_of("schedule", config.schedule, SCHEDULE_NAMES)
    if config.engine == "vllm":
        if not vllm_arguments.installed():
            raise UsageError(vllm_arguments.MISSING)
        vllm_arguments.check_arguments(config.vllm_args)
        if config.sharding != "none":
            raise UsageError(f"engine 'vllm' needs the whole policy in one process: not sharding {config.sharding!r}")
        if config.temperature < 0.01:
            raise UsageError(f"temperature must be at least 0.01 with engine 'vllm', not {config.temperature}")
    elif config.vllm_args:
        raise UsageError("vllm_args has no effect without engine 'vllm': set that, or leave vllm_args out")
    elif config.schedule == "async":
        raise UsageError(
            f"schedule 'async' needs engine 'vllm': engine {config.engine!r} samples whole batches; use 'lockstep'"
        )


def _check_output(run_dir: Path) -> None:
    """Check that the run folder can be made, before a model is loaded for it."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.stat(run_dir)
        nearest = next(path for path in (run_dir, *run_dir.absolute().parents) if path.exists())
        if not nearest.is_dir():
            reason = f"{nearest} is a file"
        elif not os.access(nearest, os.W_OK | os.X_OK):
            reason = f"{nearest} may not be written by this user"
        else:
            return
    except (OSError, ValueError) as error:  # too long, or characters that no path can hold
        reason = getattr(error, "strerror", None) or str(error)
    raise UsageError(f"output {shown(str(run_dir))} cannot be a run folder: {reason}; choose another --output")


def check_validation_split(split: str) -> None:
    """Check that no test task is among those by which checkpoints are selected.

    Raises:
        UsageError: if the split is `"test"` or `"all"`.
    """
    if split in ("test", "all"):
        raise UsageError(
            f"validation_split must not be {split!r}: nothing is selected on test tasks; take 'validation' or 'train'"
        )


def _one_of(what: str, value: str, allowed: Iterable[str]) -> None:
    names = list(allowed)
    if value not in names:
        raise UsageError(str(unknown(what, value, names)))


def check_device(config: Config) -> None:
    """Check that this machine has the device.

    Raises:
        UsageError: if it has not.
    """
    from corrgrpo_train.device import chosen_device
    from corrgrpo_train.models.load import usable_device
    from corrgrpo_train.torchrun import own_device

    usable_device(own_device(chosen_device(config.device)))


def check_environment(config: Config) -> list[str]:
    """Make the environment once, as training will, and close it.

    Returns:
        The names of its reward components; none where it does not tell them before the first step.

    Raises:
        UsageError: if the id is unknown or its package missing, or the constructor refuses its arguments; if it says
            which components it has and dynamic sampling is to look at another one.
    """
    from corrgrpo_train.rollout.dynamic_sampling import REWARD
    from corrgrpo_train.rollout.environment import EpisodeRunner

    runner = EpisodeRunner(config.env, config.env_arguments)
    spec = getattr(runner.env.unwrapped, "reward_spec", None)
    runner.close()
    if not isinstance(spec, RewardSpec):
        return []
    names = [*spec.names, *([OVERLONG] if config.overlong_share else [])]
    if config.dynamic_sampling is not None:
        _one_of("dynamic_sampling", config.dynamic_sampling, [REWARD, *names])
    return names


def check_weighting(config: Config, components: Sequence[str]) -> None:
    """Check the name and options of the weighting, and that the run offers what it needs.

    Args:
        config: the run's settings.
        components: names of the environment's components; empty if not known yet.

    Raises:
        UsageError: for the first thing that is wrong.
    """
    from corrgrpo_train.weighting import WEIGHTINGS, make_rule
    from corrgrpo_train.weighting.weighting import check_components

    import_registering("weighting", config.weighting)
    _one_of("weighting", config.weighting_name, WEIGHTINGS)
    try:
        rule = make_rule(config.weighting_name, config.weighting_args)
    except (TypeError, ValueError) as error:
        raise UsageError(f"weighting_args: {error}") from None
    if components:
        check_components(rule, components)
    if rule.needs_validation and not config.validation_tasks:
        raise UsageError(f"weighting {config.weighting!r} learns from validations: give --validation-tasks 1 or more")
    if rule.needs_gradients and config.sharding != "none":
        raise UsageError(f"weighting {config.weighting!r} needs the whole model in one process: use --sharding none")


def import_registering(what: str, name: str) -> None:
    """Import the module before the colon, which registers the name after it."""
    module = name.rpartition(":")[0]
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UsageError(f"{what} {name!r}: {error}") from error


def check_algorithm(config: Config) -> None:
    """Check the names of estimator, objective and aggregation, and the estimator's options.

    Raises:
        UsageError: if one is unknown, or the module that should register the estimator cannot be imported.
    """
    from corrgrpo_train.advantages import ESTIMATORS, estimate
    from corrgrpo_train.objectives import AGGREGATIONS, IMPORTANCE_CORRECTIONS, OBJECTIVES

    import_registering("method", config.method)
    _one_of("method", config.method_name, ESTIMATORS)
    _one_of("objective", config.objective, OBJECTIVES)
    _check_objective_options(config)
    _one_of("aggregation", config.aggregation, AGGREGATIONS)
    _one_of("importance_correction", config.importance_correction, IMPORTANCE_CORRECTIONS)
    try:
        ESTIMATORS[config.method_name].check_options(config.method_args)
        if config.method_args:
            # Values are checked by the estimator itself: better now than after a warm start and a rollout.
            estimate(config.method_name, [[0.0], [1.0]], [0, 0], [1.0], lengths=[1, 1], **config.method_args)
    except ValueError as error:
        raise UsageError(f"method_args: {error}") from None


def _check_objective_options(config: Config) -> None:
    """Check that no option was changed that only other objectives have."""
    from corrgrpo_train.objectives import OBJECTIVES, options_of

    own = options_of(config.objective)
    for other in OBJECTIVES:
        for name in options_of(other):
            if name not in own and getattr(config, name) != getattr(Config, name):
                having = " or ".join(repr(key) for key in OBJECTIVES if name in options_of(key))
                raise UsageError(
                    f"{name} has no effect with objective {config.objective!r}: it belongs to {having}; leave it out "
                    "or take another --objective"
                )
