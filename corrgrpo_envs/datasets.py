"""Reading rows from files, folders and the Hugging Face hub, and telling what is wrong with one.

`read_rows` takes `.json` (a list of objects) and `.jsonl` files, both also gzipped, `.parquet` and `.arrow`
files, folders of them, and hub ids. A row knows where it was read, so that a complaint names file, row and
field.
"""

import importlib
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from types import NoneType
from typing import Any, Final, TypeVar

from corrgrpo_envs.errors import DatasetError, shown, suggestion, unknown
from corrgrpo_envs.formats import SUFFIXES, Numbered, is_readable, read_file
from corrgrpo_envs.tasks import SPLITS, drawn_split

T = TypeVar("T")

_SPLIT_OF_WORD = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
_KINDS: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    NoneType: "null",
}
# Files that accompany the data in a folder of the hub's layout.
_NOT_DATA = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
_HUB_ID = re.compile(r"(?P<name>\w[\w.-]*/[\w.-]+)(:(?P<config>[\w.-]+))?(@(?P<revision>[\w./-]+))?", re.ASCII)
_REQUIRED: Final = object()


class Row(Mapping[str, Any]):
    """One row, read-only, with the place where it was read.

    Attributes:
        source: file name, below the folder that was read; for the hub `"owner/name#split"`.
        number: counted from 1; in a `.jsonl` file the line.
    """

    __slots__ = ("_fields", "number", "source")

    def __init__(self, fields: Mapping[str, Any], source: str, number: int) -> None:
        self._fields, self.source, self.number = fields, source, number

    def __getitem__(self, field: str) -> Any:
        return self._fields[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Row({self.source!r}, {self.number}, {shown(dict(self._fields))})"

    def require(self, field: str, kind: type[T], default: Any = _REQUIRED) -> T:
        """Return a field's value if it is of the kind (`float` takes whole numbers too).

        Args:
            field: its name.
            kind: `str`, `int`, `float`, `bool`, `list` or `dict`.
            default: returned where the field is missing or null; without it that is an error.

        Raises:
            DatasetError: naming file, row and field.
        """
        value: Any = self._fields.get(field)
        if value is None and default is not _REQUIRED:
            return default  # type: ignore[no-any-return]
        expected = _KINDS.get(kind, kind.__name__)
        if field not in self._fields:
            names = ", ".join(repr(name) for name in list(self._fields)[:12]) or "none"
            raise DatasetError(
                f"{self.source}, row {self.number}: field {field!r} ({expected}) is missing; fields: {names}."
                f"{suggestion(field, self._fields)}"
            )
        if isinstance(value, bool) and kind is not bool:  # a bool is an int to Python, not to us
            raise schema_error(self.source, self.number, field, expected, value)
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind):
            raise schema_error(self.source, self.number, field, expected, value)
        return value


def schema_error(source: str, row: int, field: str, expected: str, found: object) -> DatasetError:
    """Build the error for a field whose value is not as expected.

    Args:
        source: file of the row (`Row.source`).
        row: its number (`Row.number`).
        field: name of the field; for a nested one a path such as `"tests[2].input"`.
        expected: what it must be, e.g. `"a text"`.
        found: the value.
    """
    kind = _KINDS.get(type(found), type(found).__name__)
    what = kind if found is None else f"{kind}: {shown(found)}"
    return DatasetError(f"{source}, row {row}: field {field!r} must be {expected}, found {what}")


def split_of(row: Mapping[str, Any], source: str, task_id: str) -> str:
    """Return the split of a row: that of its `split` field, else of its file's name, else drawn from its id.

    Args:
        row: its fields; `split` may be missing, null or empty.
        source: file name below the data set's folder, or `"owner/name#split"`. The file's own name counts
            before those of its folders; a name with the words of two splits says nothing.
        task_id: its id (see `drawn_split`).

    Raises:
        DatasetError: if the `split` field names no split.
    """
    return _told_split(row, source) or drawn_split(task_id)


def read_rows(dataset: str | os.PathLike[str], *, split: str | None = None) -> tuple[Row, ...]:
    """Read all rows of a file, a folder (with its subfolders) or a data set on the hub.

    Files are read once per process, until they change; nested values are shared and not to be changed.

    Args:
        dataset: a path, or a hub id `owner/name`, with a configuration `owner/name:config` and a revision
            `owner/name@revision` where wanted. What exists as a path is a path.
        split: leave out rows whose `split` field or file name tells another split; None or `"all"` keeps all.

    Raises:
        DatasetError: if it does not exist, can't be reached or read, or has no rows.
        ImportError: for a hub id without the optional package `datasets`; names the pip command.
    """
    if split is not None and split not in SPLITS:
        raise unknown("split", split, SPLITS)
    given = os.fspath(dataset)
    path = os.path.expanduser(given)
    if os.path.isdir(path):
        rows = [row for file in _data_files(path) for row in _file_rows(file, os.path.relpath(file, path))]
    elif os.path.exists(path):
        rows = list(_file_rows(path, os.path.basename(path)))
    elif is_hub_id(given) and (hub := _HUB_ID.fullmatch(given)):
        parts = _hub_rows(hub["name"], hub["config"], hub["revision"])
        rows = [Row(fields, source, number) for source, part in parts for number, fields in part]
    else:
        raise _not_found(given, path)
    if split in (None, "all"):
        return tuple(rows)
    return tuple(row for row in rows if _told_split(row, row.source) in (None, split))


def is_hub_id(dataset: str) -> bool:
    """Whether a data set's name is read as a hub id: it has that form and does not exist as a path."""
    path = os.path.expanduser(dataset)
    if os.path.exists(path) or is_readable(dataset) or os.path.isdir(dataset.split("/")[0]):
        return False
    return _HUB_ID.fullmatch(dataset) is not None


def hub_file(dataset: str, name: str) -> str:
    """Download one file of a data set on the hub, or take it from the hub's own cache; return its path.

    Args:
        dataset: `owner/name` or `owner/name@revision`.
        name: the file's name.

    Raises:
        DatasetError: if it can't be had, or `dataset` names a configuration, which files do not have.
        ImportError: without the optional package; names the pip command.
    """
    hub = _HUB_ID.fullmatch(dataset)
    if hub is None or hub["config"]:
        raise DatasetError(f"files are read from a hub id 'owner/name' or 'owner/name@revision', not {shown(dataset)}")
    try:
        library = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise _no_hub(dataset) from error
    try:
        path = library.hf_hub_download(hub["name"], name, repo_type="dataset", revision=hub["revision"])
    except Exception as error:  # whatever the library and the network throw: say which file it was
        raise _hub_error(f"file {name!r} of data set {dataset!r}", error) from error
    return str(path)


def fingerprint(dataset: str) -> object:
    """A hashable value that changes when a file of the data set does, for caches of what was made of it.

    Raises:
        DatasetError: if the files can't be looked at.
    """
    path = Path(dataset).expanduser()
    try:
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in found if file.is_file())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise DatasetError(f"data set {shown(dataset)} can't be read: {reason or error}") from None


def _told_split(row: Mapping[str, Any], source: str) -> str | None:
    named = row.get("split")
    if named is None or named == "":
        return _named_split(source)
    split = _SPLIT_OF_WORD.get(named.strip().casefold()) if isinstance(named, str) else None
    if split is None:
        allowed = " or ".join(repr(name) for name in SPLITS[:-1])
        raise schema_error(source, getattr(row, "number", 0), "split", allowed, named)
    return split


@lru_cache(maxsize=1024)
def _named_split(source: str) -> str | None:
    hub_id, _, hub_split = source.rpartition("#")
    names = [hub_split] if _HUB_ID.fullmatch(hub_id) else reversed(PurePath(source).parts)
    for name in names:
        words = set(re.split(r"[^a-z]+", name.casefold())) & set(_SPLIT_OF_WORD)
        splits = {_SPLIT_OF_WORD[word] for word in words}
        if splits:
            return splits.pop() if len(splits) == 1 else None
    return None


def _data_files(folder: str) -> list[str]:
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        data = (name for name in sorted(files) if not name.startswith(".") and name not in _NOT_DATA)
        found += [os.path.join(parent, name) for name in data if is_readable(name)]
    if not found:
        raise DatasetError(f"folder {shown(folder)} has no data files ({', '.join(SUFFIXES)})")
    return found


def _file_rows(path: str, source: str) -> Iterator[Row]:
    try:
        rows = read_file(path)
    except DatasetError as error:
        raise DatasetError(f"{source}: {error}") from error
    return (Row(fields, source, number) for number, fields in rows)


@lru_cache(maxsize=16)
def _hub_rows(name: str, config: str | None, revision: str | None) -> tuple[tuple[str, Numbered], ...]:
    """Download a data set (or take it from the hub's own cache); one entry per split of the hub."""
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise _no_hub(name) from error
    try:
        splits = library.load_dataset(name, config, revision=revision)
        rows = tuple((f"{name}#{split}", tuple(enumerate(part.to_list(), 1))) for split, part in splits.items())
    except Exception as error:  # whatever the library and the network throw: say which data set it was
        raise _hub_error(f"data set {name!r}", error) from error
    if not any(part for _, part in rows):
        raise DatasetError(f"data set {name!r} on the hub has no rows")
    return rows


def _no_hub(name: str) -> ImportError:
    return ImportError(f"{name!r} is no path here, and to read it from the hub: pip install 'corrgrpo[hub]'")


def _hub_error(what: str, error: Exception) -> DatasetError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return DatasetError(
        f"{what} can't be read from the hub: {reason[:300]} (check its name and the network, "
        "or download it and give the folder's path)"
    )


def _not_found(given: str, path: str) -> DatasetError:
    message = f"data set {shown(given)} does not exist: not 'builtin', a file, a folder or a hub id 'owner/name'."
    folder, name = os.path.split(os.path.normpath(path))
    while not os.path.isdir(folder or "."):  # the first name on the path that is wrong
        folder, name = os.path.split(folder)
    near = suggestion(name, ["builtin", *sorted(os.listdir(folder or "."))])
    return DatasetError(message + near + (f" (in {shown(folder)})" if near and folder else ""))
