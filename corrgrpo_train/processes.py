"""`Processes`: the processes of a run, started with torchrun; one alone where it was started without.

Every process rolls out its share of the groups, gets all episodes from the others, and estimates on all of them; then
it computes its share of the micro-batches, and gradients are added up. So whatever is normalised is normalised over
the whole rollout, as in one process.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from corrgrpo_train.torchrun import torchrun_count

Item = TypeVar("Item")

# A process waits at most so long for the slowest rollout; a process that ends is noticed at once.
_PATIENCE = timedelta(hours=6)


class Processes:
    """What the processes of a run do together.

    All methods but `share` are calls that every process must make, in the same order.

    Attributes:
        rank: number of this process, 0, 1, …; the first writes files and speaks to the user.
        count: how many there are.
    """

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        """Describe the processes; `started` makes them known to one another."""
        self.rank, self.count = rank, count

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.count == 1

    def share(self, items: Sequence[Item]) -> list[Item]:
        """This process's part of what is to be done: every `count`-th item."""
        return list(items[self.rank :: self.count])

    def gather(self, item: Item) -> list[Item]:
        """Every process's item, in the order of their numbers."""
        if self.alone:
            return [item]
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, item)
        return found

    def merge(self, items: Sequence[Item]) -> list[Item]:
        """Undo `share`: every process's items, in the order in which they were before."""
        parts = self.gather(list(items))
        merged: list[Item] = [None] * sum(map(len, parts))  # type: ignore[list-item]
        for rank, part in enumerate(parts):
            merged[rank :: self.count] = part
        return merged

    def of_first(self, call: Callable[[], Item]) -> Item:
        """Call in the first process alone and give the result to all."""
        held: list[Any] = [call() if self.first else None]
        if not self.alone:
            dist.broadcast_object_list(held, src=0)
        result: Item = held[0]
        return result

    def wait(self) -> None:
        """Go on when every process has come here."""
        self.gather(None)

    def sum_gradients(self, weights: Sequence[Tensor]) -> None:
        """Add up every weight's gradient over the processes; a process without one counts as zero."""
        if self.alone:
            return
        device = weights[0].device
        # A weight that no process has a gradient for must stay without: an optimiser treats zero otherwise.
        present = torch.tensor([weight.grad is not None for weight in weights], dtype=torch.uint8, device=device)
        dist.all_reduce(present, op=dist.ReduceOp.MAX)
        pending = []
        for weight, wanted in zip(weights, present.tolist(), strict=True):
            if wanted:
                if weight.grad is None:
                    weight.grad = torch.zeros_like(weight)
                pending.append(dist.all_reduce(weight.grad, async_op=True))
        for work in pending:
            work.wait()


@contextmanager
def started(device: str) -> Iterator[Processes]:
    """Make the processes that torchrun started known to one another, for as long as the context lasts.

    Args:
        device: where this process computes: tensors on a GPU are exchanged with NCCL, others with gloo.
    """
    if torchrun_count() == 1:
        yield Processes()
        return
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo", timeout=_PATIENCE)
    yield Processes(dist.get_rank(), dist.get_world_size())
    # Not after an error: it waits for processes that may never come.
    dist.destroy_process_group()


def is_lost_process(error: BaseException) -> bool:
    """Whether the error says that another process is not there any more."""
    return torchrun_count() > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error))
