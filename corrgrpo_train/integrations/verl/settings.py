"""From our settings to verl's: the one place where they are matched."""

from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import yaml

from corrgrpo_train.config import Config
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl import configs
from corrgrpo_train.integrations.verl.names import REGISTRATION, verl_name
from corrgrpo_train.rollout.dynamic_sampling import REWARD

CARRIED = (
    "env",
    "env_args",
    "reward_weights",
    "method_args",
    "seed",
    "steps",
    "groups_per_step",
    "max_new_tokens",
    "overlong_share",
    "overlong_length",
    "env_timeout",
)
"""Settings that our parts read while verl runs; they stand under `corrgrpo`."""

REFUSED = {
    "weighting": "weights that change during a run are not carried to verl",
    "warm_start": "start from a model that has had its warm start",
    "importance_correction": "set algorithm.rollout_correction.rollout_is=token after --",
    "vllm_args": "set actor_rollout_ref.rollout.engine_kwargs.vllm after --",
    "track_args": "set trainer.project_name and the like after --",
}
"""Settings that would silently do nothing, with what to do instead."""

LOSS_MODES = {"grpo": "vanilla", "dapo": "vanilla", "cispo": "cispo"}
"""Objective to verl's policy loss."""
AGGREGATIONS = {"sequence": "seq-mean-token-mean", "token": "token-mean", "constant": "seq-mean-token-sum-norm"}
"""Aggregation to verl's."""

_FILL_UP = 128
"""Tokens of the rows with which verl fills a batch up."""


def verl_settings(config: Config) -> dict[str, Any]:
    """Everything that verl must be told, nested as its configuration is.

    The order of precedence, lowest first: `configs/base.yaml`, the task's file there, our settings.

    Raises:
        UsageError: for a setting that verl has no counterpart of, or that does not divide as verl needs it.
    """
    _check(config)
    task = config.env_id.removeprefix("corrgrpo/")
    merged: dict[str, Any] = {}
    for part in (_file("base"), _file(task), _ours(config)):
        _merge(merged, part)
    return merged


def _ours(config: Config) -> dict[str, Any]:
    module = config.method.rpartition(":")[0]
    modules = ",".join([module, REGISTRATION] if module else [REGISTRATION])
    loggers = ["console", *(["tensorboard"] if config.tensorboard else []), *([config.track] if config.track else [])]
    return {
        "corrgrpo": {name: value for name, value in asdict(config).items() if name in CARRIED},
        "actor_rollout_ref": {"actor": _actor(config), "rollout": _rollout(config), "model": _model(config)},
        "algorithm": {
            "adv_estimator": verl_name(config.method_name),
            "use_kl_in_reward": False,
            "filter_groups": _filter_groups(config),
        },
        "data": {
            "train_files": "train",
            # verl reads validation's data even where it never validates: then one task is enough.
            "val_files": config.validation_split if config.validation_tasks else "train",
            "val_max_samples": config.validation_tasks or 1,
            "train_batch_size": config.groups_per_step,
            "max_prompt_length": config.max_prompt_tokens,
            "max_response_length": response_length(config),
            "seed": config.seed,
        },
        "trainer": {
            "project_name": "corrgrpo",
            "experiment_name": config.run_dir.name,
            # Workers of a cluster that runs already stand in another folder.
            "default_local_dir": str(config.run_dir.absolute() / "checkpoints"),
            "resume_mode": "auto" if config.resume else "disable",
            "logger": loggers,
            # The number of steps decides; an epoch has one at least.
            "total_epochs": max(1, config.steps),
            "total_training_steps": config.steps,
            "save_freq": config.checkpoint_every or config.steps,
            "max_actor_ckpt_to_keep": config.keep_checkpoints,
            "test_freq": (config.validation_every or config.steps) if config.validation_tasks else -1,
            "val_before_train": config.validation_tasks > 0,
        },
        # verl imports these modules in every process, on every node.
        "ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": {"VERL_USE_EXTERNAL_MODULES": modules}}}},
    }


def _actor(config: Config) -> dict[str, Any]:
    cispo = config.objective == "cispo"
    return {
        "ppo_mini_batch_size": config.groups_per_step // config.updates_per_rollout,
        "ppo_max_token_len_per_gpu": max(config.token_budget, longest_sequence(config)),
        "policy_loss": {"loss_mode": LOSS_MODES[config.objective]},
        # CISPO here has an upper bound only: a ratio is never below 1 - 1.
        "clip_ratio_low": 1.0 if cispo else config.clip_low,
        "clip_ratio_high": (config.cispo_max_ratio or 5.0) - 1.0 if cispo else config.clip_high,
        "loss_agg_mode": AGGREGATIONS[config.aggregation],
        "loss_scale_factor": config.aggregation_length if config.aggregation == "constant" else None,
        "use_kl_loss": config.kl_coefficient > 0,
        "kl_loss_coef": config.kl_coefficient,
        "kl_loss_type": "low_var_kl",
        "entropy_coeff": config.entropy_coefficient,
        "grad_clip": config.max_grad_norm,
        "optim": {
            "lr": config.learning_rate,
            "weight_decay": config.weight_decay,
            "betas": [config.beta1, config.beta2],
            "lr_warmup_steps": config.warmup_steps,
            "clip_grad": config.max_grad_norm,
        },
    }


def _rollout(config: Config) -> dict[str, Any]:
    return {"n": config.group_size, "temperature": config.temperature, "seed": config.seed}


def _model(config: Config) -> dict[str, Any]:
    targets = config.lora_targets
    return {
        "path": config.model,
        "lora_rank": config.lora_rank,
        "lora_alpha": config.lora_alpha if config.lora_alpha is not None else 2 * config.lora_rank,
        "target_modules": targets.split(",") if "," in targets else targets,
    }


def _filter_groups(config: Config) -> dict[str, Any]:
    name = config.dynamic_sampling
    metric = name if name in (None, REWARD) else f"components/{name}"
    return {"enable": name is not None, "metric": metric or "reward"}


def response_length(config: Config) -> int:
    """Tokens after the first prompt, all turns and tool outputs together: verl's bound of an episode."""
    if config.max_episode_tokens is None:
        return config.max_new_tokens
    return config.max_episode_tokens - config.max_prompt_tokens


def longest_sequence(config: Config) -> int:
    """Tokens of the longest sequence that can occur: verl has no micro-batch for one above its budget."""
    return max(config.max_prompt_tokens + response_length(config), _FILL_UP)


def _check(config: Config) -> None:
    defaults = Config(env=config.env)
    for name, instead in REFUSED.items():
        if getattr(config, name) != getattr(defaults, name):
            raise UsageError(f"{name} has no effect under verl: {instead}")
    if config.model in ("default", "tiny"):
        raise UsageError(f"model {config.model!r} is not one that verl can load: give --model a hub id or a folder")
    if config.groups_per_step % config.updates_per_rollout:
        raise UsageError(
            f"groups_per_step ({config.groups_per_step}) must be a multiple of updates_per_rollout "
            f"({config.updates_per_rollout}): verl's parts of a rollout are equal"
        )
    if config.steps < 1:
        raise UsageError("steps must be at least 1 under verl")


def _file(name: str) -> dict[str, Any]:
    file = files(configs).joinpath(f"{name}.yaml")
    if not file.is_file():
        return {}
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(settings, dict)
    return settings


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, Mapping) and key != "corrgrpo":
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value
