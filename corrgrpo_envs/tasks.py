"""Tasks, sets of tasks, and how rows are divided into splits."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, overload

from corrgrpo_envs.errors import shown, suggestion, unknown

DataT = TypeVar("DataT")

SPLITS = ("train", "validation", "test", "all")


@dataclass(frozen=True, slots=True)
class Task(Generic[DataT]):
    """One thing to do in an environment.

    Attributes:
        id: unique in its data set, stable over versions.
        split: `"train"`, `"validation"` or `"test"`.
        data: what the environment needs to pose and score it.
        kind: a label by which tasks can be stratified, e.g. `"single"` or `"easy"`; may be empty.
    """

    id: str
    split: str
    data: DataT
    kind: str = ""


class TaskSet(Sequence[Task[DataT]]):
    """The tasks of one split of one data set: sized, iterable, indexable by number or looked up by id."""

    def __init__(self, tasks: Iterable[Task[DataT]], split: str = "all", name: str = "tasks") -> None:
        """Keep the tasks of `split`; the others stay known, for error messages only.

        Raises:
            ValueError: if a split is unknown, the chosen one is empty, or two tasks share an id.
        """
        everything = tuple(tasks)
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        for task in everything:
            if task.split not in SPLITS[:-1]:
                raise unknown(f"the split of task {task.id!r}", task.split, SPLITS[:-1])
        self.name, self.split = name, split
        self._split_of = {task.id: task.split for task in everything}
        if len(self._split_of) != len(everything):
            twice = [key for key, count in Counter(task.id for task in everything).items() if count > 1]
            raise ValueError(f"data set {name!r} has task ids twice: {twice[:5]}")
        self._tasks = tuple(task for task in everything if split in ("all", task.split))
        self._by_id = {task.id: task for task in self._tasks}
        if not self._tasks:
            counts = dict(Counter(task.split for task in everything))
            raise ValueError(f"split {split!r} of data set {name!r} is empty; tasks in its splits: {counts}")

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task[DataT]]:
        return iter(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task[DataT]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task[DataT], ...]: ...
    def __getitem__(self, index: int | slice) -> Task[DataT] | tuple[Task[DataT], ...]:
        return self._tasks[index]

    def __contains__(self, item: object) -> bool:
        return (item.id if isinstance(item, Task) else item) in self._by_id

    def __repr__(self) -> str:
        return f"TaskSet({self.name!r}, split={self.split!r}, {len(self)} tasks)"

    def get(self, task_id: str) -> Task[DataT]:
        """Return the task with this id.

        Raises:
            ValueError: if no such task exists, or it lies in another split (the message says which).
        """
        if task_id in self._by_id:
            return self._by_id[task_id]
        if task_id in self._split_of:
            raise ValueError(
                f"task_id {task_id!r} is in split {self._split_of[task_id]!r} of data set {self.name!r}, "
                f"not in {self.split!r}; make the environment with split={self._split_of[task_id]!r} or 'all'"
            )
        raise ValueError(
            f"task_id {shown(task_id)} is not in data set {self.name!r} ({len(self._split_of)} tasks)."
            f"{suggestion(task_id, self._split_of)}"
        )


def fraction(task_id: str) -> float:
    """A number in [0, 1) drawn by a hash of the id: sha256(id) / 2²⁵⁶."""
    return int.from_bytes(hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).digest(), "big") / 2.0**256


def drawn_split(task_id: str) -> str:
    """Split of a row that names none: 80 % train, 10 % validation, 10 % test, by a hash of its id."""
    place = fraction(task_id)
    return "validation" if place < 0.1 else "test" if place < 0.2 else "train"


def with_validation(tasks: Iterable[Task[Any]]) -> tuple[Task[Any], ...]:
    """Move a tenth of train, chosen by a hash of the id, to validation, if there is no validation split."""
    everything = tuple(tasks)
    if any(task.split == "validation" for task in everything):
        return everything
    return tuple(
        replace(task, split="validation") if task.split == "train" and fraction(task.id) < 0.1 else task
        for task in everything
    )
