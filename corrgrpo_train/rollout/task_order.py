"""The order in which tasks are met: epochs without replacement, kinds spread evenly."""

from collections.abc import Sequence

import numpy as np


class TaskOrder:
    """An endless sequence of task ids, a function of the seed and the position alone.

    Every epoch goes through all tasks once. Within an epoch each kind is spread evenly, so that any stretch holds
    the kinds in about their shares: a step's groups then differ less from step to step.
    """

    def __init__(self, task_ids: Sequence[str], kinds: Sequence[str], seed: int) -> None:
        """Keep the tasks.

        Args:
            task_ids: every task's id.
            kinds: the kind of each, in the same order; all empty where tasks have no kinds.
            seed: another seed gives another order.
        """
        self.task_ids, self.kinds, self.seed = tuple(task_ids), np.array(kinds), seed
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def __getitem__(self, position: int) -> str:
        """The task at a position, 0, 1, 2, … without end."""
        epoch, place = divmod(position, len(self.task_ids))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(epoch)
        return self.task_ids[int(self._order[place])]

    def _shuffled(self, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        random = np.random.default_rng([self.seed, epoch])
        place = np.zeros(len(self.task_ids))
        for kind in np.unique(self.kinds):
            members = np.flatnonzero(self.kinds == kind)
            # Member j of n falls somewhere in [j/n, (j+1)/n).
            place[random.permutation(members)] = (np.arange(len(members)) + random.random(len(members))) / len(members)
        return np.argsort(place, kind="stable")
