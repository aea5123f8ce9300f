"""Where dialogues come from: the built-in set, files and folders, the hub."""

from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from corrgrpo_envs.datasets import fingerprint, read_rows
from corrgrpo_envs.tasks import Task, with_validation
from corrgrpo_envs.tools.builtin import read_builtin
from corrgrpo_envs.tools.dialogues import Dialogue, without_overlap
from corrgrpo_envs.tools.upstream import read_upstream

Dialogues = tuple[Task[Dialogue], ...]


def dialogues(dataset: str, held_out: str | None = None) -> Dialogues:
    """Read all dialogues of a data set, with a validation split, and without leaks between splits.

    Args:
        dataset: `"builtin"`; a folder in the built-in layout; a file or folder of published rows; or a hub
            id.
        held_out: another data set; dialogues whose prompt occurs in it are dropped.

    Raises:
        DatasetError: naming file and row, if something cannot be read or a ground truth cannot be scored.
    """
    return _kept(dataset, fingerprint(dataset), held_out, None if held_out is None else fingerprint(held_out))


@lru_cache(maxsize=8)
def _kept(dataset: str, state: object, held_out: str | None, held_out_state: object) -> Dialogues:
    other = () if held_out is None else _read(held_out, held_out_state)
    return with_validation(without_overlap(_read(dataset, state), other))


@lru_cache(maxsize=8)
def _read(dataset: str, state: object) -> Dialogues:
    folder = _builtin_folder(dataset)
    if folder is not None:
        return tuple(read_builtin(folder))
    return tuple(read_upstream(row) for row in read_rows(dataset))


def _builtin_folder(dataset: str) -> Traversable | None:
    if dataset == "builtin":
        return files("envs_assets") / "rlla"
    folder = Path(dataset).expanduser()
    return folder if (folder / "tools.json").is_file() else None
