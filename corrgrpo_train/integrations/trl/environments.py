"""`Environments`: the environments behind a task, made when they are needed and closed together."""

from collections.abc import Mapping, Sequence
from typing import Any

from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout.environment import EpisodeRunner, arguments_for


class Environments:
    """One environment for each owner and split: episodes of different owners run side by side."""

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
        self._runners: dict[tuple[object, str], EpisodeRunner] = {}
        self._closed = False

    def runner(self, owner: object, split: str) -> EpisodeRunner:
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
        key = (owner, split)
        if key not in self._runners:
            self._runners[key] = EpisodeRunner(self.name, arguments_for(self._arguments, split), timeout=self._timeout)
        return self._runners[key]

    def release(self, owner: object) -> None:
        """Close the owner's environments."""
        for key in [key for key in self._runners if key[0] is owner]:
            self._runners.pop(key).close()

    def close(self) -> None:
        """Close all environments; there are no more episodes."""
        self._closed = True
        for owner in {key[0] for key in self._runners}:
            self.release(owner)
