"""`Result`: everything that an evaluation found, as one JSON file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.sample import Sample, number, of_type, read_sample
from corrgrpo_train.evaluate.settings import differences
from corrgrpo_train.tracking import replace_file

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class EnvironmentResult:
    """What was found on one environment.

    Attributes:
        name: its short name.
        tasks: ids of the tasks, in order, those of other shards included.
        samples: the episodes, in the order of the tasks.
        summary: measures by name, each also with `_low`, `_high` and `_count`; None where there is nothing to measure.
        notes: what a reader of the numbers has to know.
    """

    name: str
    tasks: tuple[str, ...]
    samples: tuple[Sample, ...]
    summary: Mapping[str, float | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A result file.

    Attributes:
        settings: what the evaluation was made with, as JSON values.
        shard: number of the shard, and how many there are; (1, 1) is a whole evaluation.
        environments: by short name, in order.
        aggregates: measures over several environments.
    """

    settings: Mapping[str, Any]
    shard: tuple[int, int]
    environments: Mapping[str, EnvironmentResult]
    aggregates: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.settings["model"])

    def write(self, path: Path) -> None:
        """Write the file, aside first, so that it is there whole or not at all.

        Raises:
            UsageError: if it can't be written.
        """
        rows = {
            "schema": SCHEMA,
            "settings": dict(self.settings),
            "shard": list(self.shard),
            "aggregates": dict(self.aggregates),
            "environments": [
                {
                    "name": one.name,
                    "summary": dict(one.summary),
                    "notes": list(one.notes),
                    "tasks": list(one.tasks),
                    "samples": [sample.row() for sample in one.samples],
                }
                for one in self.environments.values()
            ],
        }
        try:
            replace_file(path, (json.dumps(rows, indent=1, allow_nan=False) + "\n").encode())
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror}; the episodes are kept: run the same command again"
            ) from error


def read_result(path: Path) -> Result:
    """Read a result file.

    Raises:
        UsageError: if it can't be read or is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; name a result of an evaluation") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "schema" not in found:
        raise UsageError(f"{path} is no result of an evaluation")
    if found["schema"] != SCHEMA:
        raise UsageError(f"{path} was written by another version (schema {found['schema']!r}, not {SCHEMA})")
    try:
        environments = {one.name: one for one in map(_environment, of_type(list, found["environments"]))}
        if len(environments) < len(found["environments"]):
            raise ValueError("an environment is there twice")
        place, count = (of_type(int, part) for part in found["shard"])
        if not 1 <= place <= count:
            raise ValueError(f"there is no shard {place}/{count}")
        settings = of_type(dict, found["settings"])
        of_type(str, settings["model"])
        return Result(settings, (place, count), environments, _measures(found["aggregates"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{path} is damaged: {type(error).__name__}: {error}") from None


def _environment(one: Any) -> EnvironmentResult:
    name, tasks = of_type(str, one["name"]), tuple(of_type(str, task) for task in one["tasks"])
    samples = tuple(map(read_sample, one["samples"]))
    known, keys = set(tasks), {sample.key for sample in samples}
    if len(keys) < len(samples):
        raise ValueError(f"an episode of {name} is there twice")
    if any(sample.environment != name or sample.task not in known for sample in samples):
        raise ValueError(f"an episode is of no task of {name}")
    notes = tuple(of_type(str, note) for note in of_type(list, one["notes"]))
    return EnvironmentResult(name, tasks, samples, _measures(one["summary"]), notes)


def _measures(values: Any) -> dict[str, float | None]:
    return {of_type(str, name): None if value is None else number(value) for name, value in values.items()}


def joined(parts: Sequence[tuple[Path, Result]]) -> tuple[Mapping[str, Any], dict[str, EnvironmentResult]]:
    """Put the shards of one evaluation together.

    Returns:
        the settings, and the environments with the episodes of all shards, not summarised yet.

    Raises:
        UsageError: if they are not all shards of one evaluation, each once.
    """
    first_path, first = parts[0]
    count = first.shard[1]
    seen: dict[int, Path] = {}
    for path, part in parts:
        differing = differences(first.settings, part.settings)
        if differing:
            raise UsageError(f"{first_path} and {path} are of different evaluations: {'; '.join(differing)}")
        if part.shard[1] != count:
            raise UsageError(f"{first_path} is one of {count} shards, {path} one of {part.shard[1]}: merge equal ones")
        if part.shard[0] in seen:
            raise UsageError(f"{seen[part.shard[0]]} and {path} are both shard {part.shard[0]}/{count}")
        seen[part.shard[0]] = path
        if part.environments.keys() != first.environments.keys():
            raise UsageError(f"{first_path} and {path} were made on different environments")
        for name, one in part.environments.items():
            if one.tasks != first.environments[name].tasks:
                raise UsageError(f"{first_path} and {path} were made on different tasks of {name}")
    missing = [f"{number}/{count}" for number in range(1, count + 1) if number not in seen]
    if missing:
        raise UsageError(f"shard {', '.join(missing)} is missing: give the files of all {count}")
    whole = {}
    for name, one in first.environments.items():
        place = {task: number for number, task in enumerate(one.tasks)}
        samples = [sample for _, part in parts for sample in part.environments[name].samples]
        samples.sort(key=lambda sample: (place[sample.task], sample.sample))
        whole[name] = EnvironmentResult(name, one.tasks, tuple(samples))
    return first.settings, whole
