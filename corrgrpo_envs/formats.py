"""File formats of rows: `.json`, `.jsonl` (both also `.gz`), `.parquet` and `.arrow`.

A reader takes a path and returns numbered objects, or raises a `DatasetError` whose message says what is
wrong with the file (the caller puts its name in front).
"""

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeAlias

from corrgrpo_envs.errors import DatasetError, shown

Numbered: TypeAlias = tuple[tuple[int, dict[str, Any]], ...]


def is_readable(path: str) -> bool:
    """Whether the file's name ends with one of `SUFFIXES`."""
    return _reader(path) is not None


def read_file(path: str) -> Numbered:
    """Return the rows of a file with their numbers, from 1 (in `.jsonl` the lines).

    A file is read once per process, until it changes: the objects are shared and not to be changed.

    Raises:
        DatasetError: if it has no rows, isn't what its name says, or can't be read.
    """
    if not is_readable(path):
        raise DatasetError(f"this kind of file can't be read; allowed: {', '.join(SUFFIXES)}")
    try:
        state = os.stat(path)
        if state.st_size == 0:
            raise DatasetError("the file is empty")
        rows = _read(os.path.abspath(path), state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise DatasetError(f"can't be read: {error.strerror or _first_line(error)}") from error
    if not rows:
        raise DatasetError("the file has no rows")
    return rows


@lru_cache(maxsize=256)
def _read(path: str, mtime_ns: int, size: int) -> Numbered:
    reader = _reader(path)
    assert reader is not None
    return reader(path)


def _reader(path: str) -> Callable[[str], Numbered] | None:
    name = os.path.basename(path).lower()
    return next((reader for suffix, reader in _READERS.items() if name.endswith(suffix)), None)


def _text(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read()
    if path.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except EOFError as error:
            raise DatasetError("the gzip file is cut off: copy it again") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DatasetError(f"not a sound gzip file: {error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"not UTF-8 text: byte 0x{data[error.start]:02x} at position {error.start}; save it as UTF-8"
        ) from error


def _parsed(text: str, place: str = "") -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = place or f"line {error.lineno}, "
        raise DatasetError(f"{at}column {error.colno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise DatasetError(f"{place}not usable JSON: nested too deeply") from error
    except ValueError as error:  # a whole number of thousands of digits
        raise DatasetError(f"{place}not usable JSON: {error}") from error


def _objects(numbered: Iterable[tuple[int, Any]]) -> Numbered:
    rows = tuple(numbered)
    for number, row in rows:
        if not isinstance(row, dict):
            raise DatasetError(f"row {number}: must be an object, found {shown(row)}")
    return rows


def _json(path: str) -> Numbered:
    text = _text(path)
    try:
        rows = _parsed(text)
    except DatasetError:
        # JSON lines are often called .json: then the second line is "extra data".
        first, _, more = text.lstrip().partition("\n")
        if first.startswith("{") and first.rstrip().endswith("}") and more.strip():
            return _lines(text)
        raise
    if not isinstance(rows, list):
        raise DatasetError(f"must be a list of objects, found {shown(rows)}")
    return _objects(enumerate(rows, 1))


def _lines(text: str) -> Numbered:
    # Not splitlines(): it also cuts at characters that JSON texts may hold, such as U+2028.
    lines = enumerate(text.split("\n"), 1)
    return _objects((n, _parsed(line, f"line {n}, ")) for n, line in lines if line.strip())


def _jsonl(path: str) -> Numbered:
    return _lines(_text(path))


def _parquet(path: str) -> Numbered:
    import pyarrow
    from pyarrow import parquet

    try:
        with open(path, "rb") as file:
            return _objects(enumerate(parquet.read_table(file).to_pylist(), 1))
    except pyarrow.ArrowException as error:
        raise DatasetError(f"not a sound Parquet file: {_first_line(error)}") from error


def _arrow(path: str) -> Numbered:
    import pyarrow

    try:
        with open(path, "rb") as file:
            return _objects(enumerate(pyarrow.ipc.open_stream(file).read_all().to_pylist(), 1))
    except pyarrow.ArrowException as error:
        raise DatasetError(f"not a sound Arrow stream: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    # A damaged file's bytes can be in the message.
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return "".join(char if char.isprintable() else "?" for char in line)


_READERS: dict[str, Callable[[str], Numbered]] = {
    ".json": _json,
    ".json.gz": _json,
    ".jsonl": _jsonl,
    ".jsonl.gz": _jsonl,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
SUFFIXES = tuple(_READERS)
