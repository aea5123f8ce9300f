"""Named settings; `cpu/` and `gpu/` hold each environment's profile for a machine without and with a GPU."""

from importlib.resources import files

from corrgrpo_envs.errors import unknown
from corrgrpo_train.errors import UsageError


def names() -> list[str]:
    """Names of all presets, e.g. `"cpu/RLLA-v0"`."""
    root = files(__name__)
    found = [item.name for item in root.iterdir() if item.name.endswith(".yaml")]
    for folder in root.iterdir():
        if folder.is_dir():
            found += [f"{folder.name}/{item.name}" for item in folder.iterdir() if item.name.endswith(".yaml")]
    return sorted(name.removesuffix(".yaml") for name in found)


def read(name: str) -> str:
    """The YAML text of a preset.

    Raises:
        UsageError: if there is no such preset.
    """
    if name not in names():
        raise UsageError(str(unknown("preset", name, names())))
    return files(__name__).joinpath(*f"{name}.yaml".split("/")).read_text(encoding="utf-8")
