"""`Environments`: the environments behind a task, made when they are needed and closed together."""

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout.environment import EpisodeRunner, Start, arguments_for

COLUMNS = ("task_id", "seed", "split")
"""What a row of a task's data sets says of where its episodes begin."""


class Environments:
    """One environment for each owner and split: episodes of different owners run side by side.

    The task itself is the owner None. Others are objects that may vanish without a word, as TRL drops its pool with
    the trainer: their environments are closed at the next call.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], splits: Sequence[str], timeout: float | None) -> None:
        """Make none yet.

        Args:
            name: of the environment.
            arguments: of its constructor, without `split`.
            splits: those that may be asked for.
            timeout: seconds after which a call counts as failed.
        """
        self.name, self.splits = name, tuple(splits)
        self._arguments, self._timeout = dict(arguments), timeout
        self._runners: dict[object, dict[str, EpisodeRunner]] = {}
        # An object may be collected at any moment, in any thread: nothing but its key is noted then.
        self._left: deque[object] = deque()
        self._closed = False

    def __len__(self) -> int:
        """How many environments are open."""
        return sum(map(len, self._runners.values()))

    def owner(self, holder: object) -> object:
        """A key for the environments of an object, which is not kept alive."""
        key = object()
        weakref.finalize(holder, self._left.append, key).atexit = False
        return key

    def runner(self, split: str, owner: object = None) -> EpisodeRunner:
        """The owner's environment of the split.

        Raises:
            UsageError: if it can't be made, the split is another task's, or the task was closed.
        """
        if self._closed:
            raise UsageError(f"the task of env {self.name!r} is closed; close it after the last episode")
        if split not in self.splits:
            raise UsageError(
                f"a row of split {split!r} in a task of {', '.join(self.splits)}: make the data sets of all splits and "
                "the reward functions with one trl_task"
            )
        while self._left:
            self.release(self._left.popleft())
        own = self._runners.setdefault(owner, {})
        if split not in own:
            try:
                own[split] = EpisodeRunner(self.name, arguments_for(self._arguments, split), timeout=self._timeout)
            except UsageError as error:
                if split == "train":
                    raise
                raise UsageError(
                    f"no split {split!r}: {error}; an environment that has no splits has 'train' alone"
                ) from error
        return own[split]

    def release(self, owner: object = None) -> None:
        """Close the owner's environments."""
        for runner in self._runners.pop(owner, {}).values():
            runner.close()

    def close(self) -> None:
        """Close all environments; there are no more episodes."""
        self._closed = True
        for owner in list(self._runners):
            self.release(owner)


def beginning(row: Mapping[str, Any]) -> tuple[Start, str]:
    """What the episodes of a row are reset to, and the row's split.

    Raises:
        UsageError: if the row does not say so.
    """
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise UsageError(
            f"the data set's rows have no {' and no '.join(missing)}: train on one of the task's own data sets, with "
            "remove_unused_columns=False"
        )
    return Start(row["task_id"], int(row["seed"])), str(row["split"])
