"""Composing verl's configuration: its defaults, then ours, then what the user adds in Hydra's form."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from corrgrpo_train.errors import UsageError

MISSING = (
    "verl can't be imported: pip install -e '.[verl]' in an environment of its own (docs/verl.md); its range of "
    "transformers differs from the trainer's"
)

# What verl does not know: our own settings, and variables of Ray's processes.
_NEW = ("corrgrpo", "data.corrgrpo", "ray_kwargs.ray_init.runtime_env.env_vars")


def composed(settings: Mapping[str, Any], overrides: Sequence[str] = ()) -> Any:
    """Make verl's whole configuration, interpolations unresolved.

    Args:
        settings: what is set in verl's defaults, nested.
        overrides: in Hydra's form, e.g. `"trainer.n_gpus_per_node=4"`; they win.

    Returns:
        An OmegaConf `DictConfig`.

    Raises:
        UsageError: if verl is missing, does not have one of the settings, or refuses an override.
    """
    folder = config_folder()
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(folder), version_base=None):
            defaults = OmegaConf.to_container(compose("ppo_trainer"))
        unknown = next((path for path in _paths(settings) if not _has(defaults, path)), None)
        if unknown is not None:
            raise UsageError(f"this verl has no setting {unknown!r}; docs/verl.md names the versions that fit")
        with TemporaryDirectory() as ours:
            head = {"defaults": ["ppo_trainer", "_self_"], "hydra": {"searchpath": [f"file://{folder}"]}}
            Path(ours, "run.yaml").write_text(yaml.safe_dump({**head, **settings}), encoding="utf-8")
            with initialize_config_dir(ours, version_base=None):
                return compose("run", overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(f"verl's configuration: {' '.join(str(error).split())}") from error


def as_yaml(config: Any) -> str:
    """The configuration with everything resolved, as YAML.

    Raises:
        UsageError: if it holds an interpolation that leads nowhere.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return str(OmegaConf.to_yaml(config, resolve=True))
    except OmegaConfBaseException as error:
        raise UsageError(f"verl's configuration: {' '.join(str(error).split())}") from error


def config_folder() -> Path:
    """Where the installed verl keeps its defaults; it is found, not imported.

    Raises:
        UsageError: if verl is not installed.
    """
    found = importlib.util.find_spec("verl")
    places = [Path(place, "trainer", "config") for place in (found.submodule_search_locations or [])] if found else []
    folder = next((place for place in places if (place / "ppo_trainer.yaml").is_file()), None)
    if folder is None:
        raise UsageError(MISSING)
    return folder


def _paths(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        path = f"{prefix}{key}"
        if path in _NEW:
            continue
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{path}.")
        else:
            yield path


def _has(defaults: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(defaults, Mapping) or key not in defaults:
            return False
        defaults = defaults[key]
    return True
