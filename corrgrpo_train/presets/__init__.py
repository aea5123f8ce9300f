"""Named settings.

`cpu/` and `gpu/` hold each environment's profile for a machine without and with a GPU, `paper/` the published settings
of each task, with the paper's other experiments on it in a folder of the task's name.
"""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from corrgrpo_envs.errors import unknown
from corrgrpo_train.errors import UsageError


def names() -> list[str]:
    """Names of all presets, e.g. `"cpu/RLLA-v0"` or `"paper/LeetCode-v0/dapo"`."""
    return sorted(_below(files(__name__), ""))


def _below(folder: Traversable, prefix: str) -> Iterator[str]:
    for item in folder.iterdir():
        if item.name.endswith(".yaml"):
            yield prefix + item.name.removesuffix(".yaml")
        elif item.is_dir():
            yield from _below(item, f"{prefix}{item.name}/")


def read(name: str) -> str:
    """The YAML text of a preset.

    Raises:
        UsageError: if there is no such preset.
    """
    if name not in names():
        raise UsageError(str(unknown("preset", name, names())))
    return files(__name__).joinpath(*f"{name}.yaml".split("/")).read_text(encoding="utf-8")
