"""`Journal`: the file beside a result to which every finished episode is added at once."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.sample import Key, Sample, read_sample
from corrgrpo_train.evaluate.settings import differences

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: nothing to lock with
    fcntl = None

_START = b'{"environments": '
"""How the first line begins, with the first of the settings."""


class Journal:
    """Episodes on disk, one JSON object a line below a first line with the settings.

    A process killed while it writes leaves half a line at most, which the next one cuts off.

    Attributes:
        samples: what has been written, by key; of two under one key the later.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Begin a journal, or go on with one.

        Args:
            path: the file.
            header: what all of its episodes were made with.

        Raises:
            UsageError: if the file was made with other settings, is damaged or can't be written, or another process
                writes it.
        """
        self.path, self.samples = path, dict[Key, Sample]()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("a+b")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}; choose another --output") from error
        try:
            self._lock()
            self._read(header)
        except BaseException:
            self.close()
            raise

    def add(self, samples: Iterable[Sample]) -> None:
        """Write finished episodes; they are on disk when this returns.

        Raises:
            UsageError: if the disk is full or fails.
        """
        some = list(samples)
        self._write([sample.row() for sample in some])
        self.samples.update((sample.key, sample) for sample in some)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # of a disk that was full, which has been told
            self._file.close()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process is writing {self.path}: wait for it, or end it first") from None
        except OSError:
            pass  # a file system without locks

    def _read(self, header: Mapping[str, Any]) -> None:
        self._file.seek(0)
        data = self._file.read()
        # Before anything is cut off: the name may be that of somebody's data.
        if data[: len(_START)] != _START[: len(data)]:
            raise UsageError(f"{self.path} is no journal of an evaluation: choose another --output")
        lines = data.split(b"\n")
        if lines[-1]:
            self._file.truncate(sum(len(line) + 1 for line in lines[:-1]))
        if len(lines) == 1:
            self._write([header])
            return
        found = _parsed(self.path, 1, lines[0])
        if not isinstance(found, dict) or not {"engine", "shard"} <= found.keys():
            raise UsageError(f"{self.path} is no journal of an evaluation: choose another --output")
        differing = differences(found, header)
        if differing and len(lines) == 2:  # nothing was finished under the other settings: they may have been a slip
            self._file.truncate(0)
            self._write([header])
            return
        if differing:
            raise UsageError(
                f"{self.path} holds an evaluation with {'; '.join(differing)}: choose another --output, or the same "
                "settings to go on with it"
            )
        for number, line in enumerate(lines[1:-1], start=2):
            try:
                sample = read_sample(_parsed(self.path, number, line))
            except ValueError as error:
                raise UsageError(f"{self.path}, line {number}: {error}; choose another --output") from None
            self.samples[sample.key] = sample

    def _write(self, rows: Sequence[Any]) -> None:
        data = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
        end = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):  # nothing after half a line: what follows would be read as part of it
                self._file.truncate(end)
            raise UsageError(
                f"{self.path} cannot be written: {error.strerror}; what is there is kept: run the same command again "
                "to go on"
            ) from error


def _parsed(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{path}, line {number}, is damaged: delete the line, or choose another --output") from None
