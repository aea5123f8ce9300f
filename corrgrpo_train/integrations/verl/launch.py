"""The command line: settings as for `python -m corrgrpo_train`, and after `--` verl's own."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corrgrpo_train import presets
from corrgrpo_train.bundles import merge
from corrgrpo_train.cli import Flags, parse, parser
from corrgrpo_train.config import Config, complete, read_settings, read_yaml
from corrgrpo_train.config_checks import check_algorithm, check_environment, check_values
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl.compose import as_yaml, composed
from corrgrpo_train.integrations.verl.settings import verl_settings

USAGE = """usage: python -m corrgrpo_train.integrations.verl [--preset NAME] [--config FILE] [--SETTING VALUE ...]
                                                  [--print-config] [--traceback] [-- KEY=VALUE ...]

Train with verl. Settings are those of python -m corrgrpo_train, listed below; after -- stand verl's own, in
Hydra's form, and win: trainer.n_gpus_per_node=4. --print-config prints verl's whole configuration and stops.
"""

_TRACKER = "latest_checkpointed_iteration.txt"
"""Where verl notes its latest checkpoint."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 for wrong input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    own, overrides = _split(arguments)
    if {"-h", "--help"} & set(own):
        sys.stdout.write(f"{USAGE}\n{parser().format_help()}")
        return 0
    try:
        flags = parse(own)
        config = gather(flags)
        whole = composed(verl_settings(config), overrides)
        check_algorithm(config)
        check_environment(config)
        if flags.print_config:
            sys.stdout.write(as_yaml(whole))
            return 0
        _check_folder(whole.trainer)
        _check_device(whole)
        launch(whole)
        return 0
    except (UsageError, RecursionError) as error:
        if "--traceback" in own:
            raise
        line = str(error) if isinstance(error, UsageError) else "a value is nested too deeply"
        sys.stderr.write(f"corrgrpo_train.integrations.verl: error: {line}\n")
        return 2


def gather(flags: Flags) -> Config:
    """Merge preset, file and flags, later ones winning; no profile of this machine is taken.

    Raises:
        UsageError: if a layer can't be read, or a value is wrong.
    """
    layers: list[dict[str, Any]] = []
    if flags.preset is not None:
        layers.append(read_settings(presets.read(flags.preset), f"preset {flags.preset!r}"))
    if flags.config is not None:
        layers.append(read_yaml(flags.config))
    config = complete(merge([*layers, flags.settings]), "the command line")
    check_values(config)
    return config


def launch(config: Any) -> None:
    """Start verl's trainer in a Ray cluster, new or running, and wait for its end.

    Raises:
        UsageError: if verl's own checks of the configuration fail, or one is raised in another process.
    """
    from ray.exceptions import RayTaskError
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    from corrgrpo_train.integrations.verl import registration  # noqa: F401  (registers, before verl checks names)

    auto_set_device(config)
    reference, critic = need_reference_policy(config), need_critic(config)
    try:
        validate_config(config=config, use_reference_policy=reference, use_critic=critic)
    except (AssertionError, ValueError) as error:
        raise UsageError(f"verl's configuration: {error}") from error
    try:
        run_ppo(config, task_runner_class=TaskRunnerV1)
    except RayTaskError as error:  # the report of all that happened there, around what was raised
        cause: BaseException = error
        while isinstance(cause, RayTaskError):
            cause = cause.cause
        if not isinstance(cause, UsageError):
            raise
        raise cause from error


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _check_folder(trainer: Any) -> None:
    """Nothing that was saved is written over: verl numbers its checkpoints from 1 where it does not continue.

    Args:
        trainer: verl's settings of that name, in which what stands after `--` has won.
    """
    folder, mode = Path(trainer.default_local_dir), trainer.resume_mode
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if mode == "disable":
        raise UsageError(f"{folder} already holds a run: continue it with --resume, or choose another --output")
    continued = _latest(folder) if mode == "auto" else Path(trainer.resume_from_path or "")
    if continued is None or continued.absolute().parent != folder.absolute():
        raise UsageError(f"{folder} holds files, but not the checkpoint to continue: choose another --output")


def _latest(folder: Path) -> Path | None:
    """The checkpoint that verl continues; None where it would begin anew."""
    try:
        latest = folder / f"global_step_{int((folder / _TRACKER).read_text(encoding='utf-8'))}"
    except (OSError, ValueError):
        return None
    return latest if latest.is_dir() else None


def _check_device(config: Any) -> None:
    import torch

    elsewhere = "RAY_ADDRESS" in os.environ or config.ray_kwargs.ray_init.get("address") is not None
    if config.trainer.device == "cuda" and not torch.cuda.is_available() and not elsewhere:
        raise UsageError(
            "there is no GPU here, and verl trains on GPUs: --print-config shows what would be run; for a Ray cluster "
            "that runs elsewhere add -- +ray_kwargs.ray_init.address=ADDRESS"
        )
