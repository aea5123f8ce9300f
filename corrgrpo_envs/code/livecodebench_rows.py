"""Reading LiveCodeBench's rows from the published files.

A row has `question_id`, `question_content`, `starter_code` (empty for programs that read standard input), `difficulty`,
`contest_date`, `public_test_cases`, `private_test_cases`, and `metadata` with `func_name` where a method is asked for.
Rows of our own may have a right program in `reference`.
"""

import json
import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from corrgrpo_envs.datasets import Row, fingerprint, hub_file, is_hub_id, read_rows, schema_error
from corrgrpo_envs.errors import DatasetError, shown, unknown

FILES = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl")
_NUMBERS = range(1, len(FILES) + 1)
RELEASES: Mapping[str, tuple[str, ...]] = {
    **{f"release_v{last}": FILES[:last] for last in _NUMBERS},
    **{f"v{one}": FILES[one - 1 : one] for one in _NUMBERS},
    **{f"v{first}_v{last}": FILES[first - 1 : last] for last in _NUMBERS for first in range(1, last)},
}
DEFAULT_RELEASE = "v6"


@dataclass(frozen=True, slots=True)
class LiveCodeBenchRow:
    """One row.

    Attributes:
        question_id: unique.
        statement: the problem.
        starter_code: the head of the class to complete, or an empty text.
        difficulty: `"easy"`, `"medium"` or `"hard"`.
        day: of the contest.
        function: name of the method to write; None for programs that read standard input.
        public: tests shown in the statement, as JSON.
        private: further tests, as JSON or packed, see `livecodebench_tests.unpacked`.
        reference: a right program, or an empty text.
        source: file of the row, for errors.
        number: its number, for errors.
    """

    question_id: str
    statement: str
    starter_code: str
    difficulty: str
    day: date
    function: str | None
    public: str
    private: str = field(repr=False)
    reference: str
    source: str
    number: int


def checked_release(release: object) -> str | None:
    """A release's name, or None.

    Raises:
        ValueError: for an unknown one.
    """
    if release is None:
        return None
    if not isinstance(release, str) or release not in RELEASES:
        raise unknown("release", release, RELEASES)
    return release


def rows(dataset: str, release: str | None) -> tuple[LiveCodeBenchRow, ...]:
    """Read the rows of a release, sorted by id.

    Raises:
        DatasetError: naming file, row and field; also if a file of the release is missing, or a release is asked of
            what is no folder or hub id.
    """
    paths = _paths(dataset, release)
    return _rows(paths, tuple(map(fingerprint, paths)))


@lru_cache(maxsize=8)
def _rows(paths: tuple[str, ...], state: object) -> tuple[LiveCodeBenchRow, ...]:
    found = (_row(row) for path in paths for row in read_rows(path))
    return tuple(sorted(found, key=lambda row: row.question_id))


def _paths(dataset: str, release: str | None) -> tuple[str, ...]:
    path = Path(dataset).expanduser()
    names = RELEASES[release or DEFAULT_RELEASE]
    if path.is_dir():
        return tuple(_in_folder(path, name) for name in names)
    if dataset != "builtin" and is_hub_id(dataset):
        return tuple(hub_file(dataset, name) for name in names)
    if release is not None and not (len(names) == 1 and path.name.removesuffix(".gz") == names[0]):
        raise DatasetError(
            f"release {release!r} chooses among the published files: give their folder or hub id as dataset, not "
            f"{shown(dataset)}, or leave release out"
        )
    return (str(files("envs_assets") / "livecodebench" / "test.jsonl") if dataset == "builtin" else dataset,)


def _in_folder(folder: Path, name: str) -> str:
    for spelling in (name, f"{name}.gz"):
        if (folder / spelling).is_file():
            return str(folder / spelling)
    there = sorted(path.name for path in folder.glob("test*.jsonl*"))
    raise DatasetError(
        f"folder {shown(str(folder))} has no file {name!r}; of the published files it has {there or 'none'} "
        "(release='v1' is test.jsonl, 'v6' is test6.jsonl)"
    )


def _row(row: Row) -> LiveCodeBenchRow:
    question_id, statement = row.require("question_id", str), row.require("question_content", str)
    if not question_id.strip() or not statement.strip():
        name = "question_content" if question_id.strip() else "question_id"
        raise schema_error(row.source, row.number, name, "a text that is not empty", row[name])
    return LiveCodeBenchRow(
        question_id,
        statement,
        row.require("starter_code", str, ""),
        row.require("difficulty", str, "").strip().casefold(),
        _day(row),
        _function(row),
        _json_text(row, "public_test_cases"),
        _json_text(row, "private_test_cases"),
        row.require("reference", str, ""),
        row.source,
        row.number,
    )


def _day(row: Row) -> date:
    value = row.get("contest_date")
    try:
        return date.fromisoformat(str(value)[:10])
    except ValueError:
        raise schema_error(row.source, row.number, "contest_date", "a day such as '2025-01-31'", value) from None


def _function(row: Row) -> str | None:
    metadata: Any = row.get("metadata")
    if isinstance(metadata, str) and metadata.strip():
        try:
            metadata = json.loads(metadata)
        except (ValueError, RecursionError):
            raise schema_error(row.source, row.number, "metadata", "an object as JSON", metadata) from None
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    if name is not None and not (isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)):
        raise schema_error(row.source, row.number, "metadata.func_name", "a method's name", name)
    return name


def _json_text(row: Row, name: str) -> str:
    """A field with tests as text; lists are written as JSON."""
    value = row.get(name)
    try:
        return value if isinstance(value, str) else json.dumps([] if value is None else value)
    except (TypeError, ValueError, RecursionError):  # columnar files also hold bytes and dates
        raise schema_error(row.source, row.number, name, "a list of tests", value) from None
