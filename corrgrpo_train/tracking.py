"""The run folder: configuration, versions, metrics, timings and episodes as they come; metrics go to trackers as well.

`metrics.jsonl` holds what the run computed and repeats bit for bit; what depends on the clock goes to
`timings.jsonl`. A row has `step`, for rows outside the training steps `phase`, and then flat metric names.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Self

from corrgrpo_train.config import Config, to_yaml
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.trackers import Sink, TensorBoard, open_tracker
from corrgrpo_train.versions import with_versions

PHASES = ("base", "warm_start", "train")
"""Before any update; during and after the warm start; the training steps."""

ROWS = ("metrics.jsonl", "timings.jsonl", "episodes.jsonl")


def holds_run(run_dir: Path) -> bool:
    """Whether the folder already holds a run, whole or in part."""
    return any((run_dir / name).exists() for name in ("config.yaml", *ROWS, "checkpoints", "transcripts"))


def rewind(run_dir: Path, step: int | None) -> None:
    """Cut metrics, timings and transcripts back to a checkpoint; a torn last line is dropped.

    Args:
        run_dir: the run folder.
        step: training steps that the checkpoint contains; later rows go. None (no checkpoint): all go.
    """
    for name in ROWS:
        path = run_dir / name
        if path.exists():
            kept = [line for line in path.read_bytes().splitlines(keepends=True) if _is_kept(line, step)]
            replace_file(path, b"".join(kept))
    for path in (run_dir / "transcripts").glob("*.jsonl"):
        match = re.fullmatch(r".+_(\d+)", path.stem)
        if match and (step is None or int(match[1]) > step):
            path.unlink()


def _is_kept(line: bytes, step: int | None) -> bool:
    if step is None or not line.endswith(b"\n"):
        return False
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(row, dict):
        return False
    reached = row.get("step", 0)
    return row.get("phase", "train") != "train" or (isinstance(reached, int) and reached <= step)


def replace_file(path: Path, content: bytes) -> None:
    """Write aside and rename, so that a kill leaves the old file or the new one."""
    aside = path.with_name(path.name + ".tmp")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        with suppress(OSError):  # half a file on a full disk helps nobody
            aside.unlink(missing_ok=True)
        raise


def plain(value: Any) -> Any:
    """The value as JSON data: numbers of any library as Python's, nan and infinities as None."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    number = float(value)
    return number if math.isfinite(number) else None


def _line(row: Mapping[str, Any]) -> str:
    # ASCII only: whatever a model wrote, lone surrogates and line separators too, stays one valid line.
    return json.dumps(plain(row), allow_nan=False) + "\n"


class Tracker:
    """Writes a run's rows; every row is flushed when it is logged."""

    def __init__(
        self,
        run_dir: Path,
        *,
        tensorboard: bool = True,
        purge_step: int | None = None,
        note: Callable[[str], None] | None = None,
        tracker: Sink | None = None,
    ) -> None:
        """Open the files of a run folder for appending; `start` and `resume` prepare the folder first.

        Args:
            run_dir: the run folder.
            tensorboard: write event files as well.
            purge_step: TensorBoard hides earlier events from this step on.
            note: is told what the user should know.
            tracker: gets the metrics as well.
        """
        self.run_dir = run_dir
        self._transcripts = run_dir / "transcripts"
        self._transcripts.mkdir(parents=True, exist_ok=True)
        self._files = {name: _append(run_dir / name) for name in ROWS}
        self._sinks = [] if tracker is None else [tracker]
        if tensorboard:
            self._sinks += _tensorboard(run_dir / "tensorboard", purge_step, note)

    @classmethod
    def start(cls, config: Config, note: Callable[[str], None] | None = None) -> Self:
        """Make the run folder, write `config.yaml` and open the tracker.

        Raises:
            UsageError: if the folder already holds a run or cannot be written.
        """
        run_dir = config.run_dir
        taken = UsageError(f"{run_dir} already holds a run: continue it with --resume, or choose another --output")
        if holds_run(run_dir):
            raise taken
        tracker = None
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            # First, so that one that can't be started leaves the folder free.
            tracker = open_tracker(config)
            # "x": of two runs that start at once in one folder, one is refused. A kill leaves an empty file, not a part
            # of the settings.
            (run_dir / "config.yaml").open("x").close()
            replace_file(run_dir / "config.yaml", to_yaml(config).encode())
            replace_file(run_dir / "versions.json", with_versions(run_dir / "versions.json", 0))
        except FileExistsError:
            if tracker is not None:
                tracker.close()
            raise taken from None
        except OSError as error:
            raise UsageError(f"{run_dir} cannot be written: {error.strerror}; choose another --output") from error
        return cls(run_dir, tensorboard=config.tensorboard, note=note, tracker=tracker)

    @classmethod
    def resume(cls, config: Config, step: int | None, note: Callable[[str], None] | None = None) -> Self:
        """Cut the run folder back to a checkpoint and open the tracker.

        Args:
            config: the run's configuration; it is saved, for settings such as `steps` may have changed.
            step: training steps that the checkpoint contains; None starts over.
            note: is told what the user should know.
        """
        tracker = open_tracker(config)
        rewind(config.run_dir, step)
        replace_file(config.run_dir / "config.yaml", to_yaml(config).encode())
        versions = config.run_dir / "versions.json"
        replace_file(versions, with_versions(versions, step or 0))
        purge_step = 0 if step is None else step + 1
        return cls(config.run_dir, tensorboard=config.tensorboard, purge_step=purge_step, note=note, tracker=tracker)

    def log(self, step: int, metrics: Mapping[str, Any], phase: str = "train") -> None:
        """Append a row to `metrics.jsonl` and hand it to the trackers.

        Args:
            step: training steps done, this one included.
            metrics: flat names and numbers; nan is written as null.
            phase: one of `PHASES`; written only where it is not `"train"`.
        """
        head: dict[str, Any] = {"step": step} if phase == "train" else {"step": step, "phase": phase}
        self._write("metrics.jsonl", {**head, **metrics})
        # Updates of the warm start all belong to step 0; trackers count them on their own axis.
        place = int(metrics.get("warm_start/step", step))
        self._event(place, metrics, "" if phase == "train" else f"{phase}/")

    def log_timings(self, step: int, timings: Mapping[str, Any]) -> None:
        """Append a row to `timings.jsonl` and hand it to the trackers: seconds, tokens per second."""
        self._write("timings.jsonl", {"step": step, **timings})
        self._event(step, timings, "timings/")

    def log_episodes(self, step: int, names: Sequence[str], episodes: Sequence[Episode]) -> None:
        """Append the components of all episodes of a step to `episodes.jsonl`: what groups can be studied from.

        Args:
            step: training steps done, this one included.
            names: of the components, in the order of the values.
            episodes: of the rollout.
        """
        row = {
            "step": step,
            "names": names,
            "groups": [episode.group for episode in episodes],
            "tasks": [episode.task_id for episode in episodes],
            "values": [[episode.components.get(name, math.nan) for name in names] for episode in episodes],
        }
        self._write("episodes.jsonl", row)

    def log_transcripts(self, step: int, rows: Iterable[Mapping[str, Any]], name: str = "step") -> None:
        """Write episodes to `transcripts/NAME_000010.jsonl`, one a line."""
        text = "".join(_line(row) for row in rows)
        replace_file(self._transcripts / f"{name}_{step:06d}.jsonl", text.encode())

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        for sink in self._sinks:
            sink.close()

    def _write(self, name: str, row: Mapping[str, Any]) -> None:
        file = self._files[name]
        file.write(_line(row))
        file.flush()
        if name == "metrics.jsonl":
            # A power cut must not take rows of steps that a checkpoint contains: those are never computed again.
            os.fsync(file.fileno())

    def _event(self, step: int, values: Mapping[str, Any], prefix: str) -> None:
        numbers = {prefix + name: value for name, value in plain(values).items() if isinstance(value, (int, float))}
        for sink in self._sinks:
            sink.log(step, numbers)


class NoTracker:
    """Takes rows and keeps nothing, where another process writes the run folder."""

    def log(self, step: int, metrics: Mapping[str, Any], phase: str = "train") -> None:
        """Nothing."""

    def log_timings(self, step: int, timings: Mapping[str, Any]) -> None:
        """Nothing."""

    def log_episodes(self, step: int, names: Sequence[str], episodes: Sequence[Episode]) -> None:
        """Nothing."""

    def log_transcripts(self, step: int, rows: Iterable[Mapping[str, Any]], name: str = "step") -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def _append(path: Path) -> TextIOWrapper:
    return path.open("a", encoding="ascii", newline="\n")


def _tensorboard(folder: Path, purge_step: int | None, note: Callable[[str], None] | None) -> list[Sink]:
    try:
        return [TensorBoard(folder, purge_step)]
    except ImportError:
        if note is not None:
            note("TensorBoard is not installed, no event files are written: pip install tensorboard")
        return []
