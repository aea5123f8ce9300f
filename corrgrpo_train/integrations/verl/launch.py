"""The command line: settings as for `python -m corrgrpo_train`, and after `--` verl's own."""

import os
import sys
from collections.abc import Sequence
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
        if flags.print_config:
            sys.stdout.write(as_yaml(whole))
            return 0
        check_algorithm(config)
        check_environment(config)
        _check_folder(config)
        _check_device(whole)
        launch(whole)
        return 0
    except UsageError as error:
        if "--traceback" in own:
            raise
        sys.stderr.write(f"corrgrpo_train.integrations.verl: error: {error}\n")
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
    """Start verl's trainer in a Ray cluster, new or running, and wait for its end."""
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    from corrgrpo_train.integrations.verl import registration  # noqa: F401  (registers, before verl checks names)

    auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    run_ppo(config, task_runner_class=TaskRunnerV1)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _check_folder(config: Config) -> None:
    """Nothing that was saved is written over: verl numbers its checkpoints from 1 again."""
    folder = config.run_dir / "checkpoints"
    if not config.resume and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{config.run_dir} already holds a run: continue it with --resume, or choose another --output")


def _check_device(config: Any) -> None:
    import torch

    elsewhere = "RAY_ADDRESS" in os.environ or config.ray_kwargs.ray_init.get("address") is not None
    if config.trainer.device == "cuda" and not torch.cuda.is_available() and not elsewhere:
        raise UsageError(
            "there is no GPU here, and verl trains on GPUs: --print-config shows what would be run; for a Ray cluster "
            "that runs elsewhere add -- +ray_kwargs.ray_init.address=ADDRESS"
        )
