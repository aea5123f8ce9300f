"""Spaces for text: `Unicode` (any text) and `Chat` (a conversation).

Gymnasium's own `Text` knows a charset and its `Sequence` has no shared memory, so both are registered here
with the functions by which vector environments batch, share and flatten observations.
"""

import contextlib
import multiprocessing
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence as AbstractSequence
from multiprocessing import reduction
from typing import Any, NoReturn

from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Dict, Sequence, Space, Text
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import (
    batch_differing_spaces,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

_ROLE_LENGTH = 64
_SAMPLE_LENGTH = 16


class Unicode(Text):
    """Any text of any code points (lone surrogates too), up to `max_length` characters.

    Samples are short and ASCII. It can't be flattened.
    """

    def __init__(self, max_length: int = sys.maxsize, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=0, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether x is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a text of 0 to 16 printable ASCII characters.

        Raises:
            ValueError: if a mask or probabilities are given: they belong to spaces with a charset.
        """
        if mask is not None or probability is not None:
            raise ValueError("Unicode.sample takes neither mask nor probability: any character is allowed")
        length = self.np_random.integers(min(_SAMPLE_LENGTH, self.max_length) + 1)
        return bytes(self.np_random.integers(32, 127, size=length).tolist()).decode("ascii")

    @property
    def is_np_flattenable(self) -> bool:
        """False: a text has no array of fixed shape."""
        return False

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Unicode) and self.max_length == other.max_length

    def __repr__(self) -> str:
        return "Unicode()" if self.max_length == sys.maxsize else f"Unicode({self.max_length})"


class Chat(Sequence):
    """A conversation: a tuple of messages, each a dict of two texts, `role` and `content`."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(Dict(role=Unicode(_ROLE_LENGTH), content=Unicode()), seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether x is a tuple of messages."""
        return isinstance(x, tuple) and all(
            isinstance(message, dict)
            and len(message) == 2
            and isinstance(role := message.get("role"), str)
            and len(role) <= _ROLE_LENGTH
            and isinstance(message.get("content"), str)
            for message in x
        )

    def __repr__(self) -> str:
        return "Chat()"


class _Slots:
    """One growable slot of bytes per sub-environment, in a nameless sparse file that workers inherit.

    A slot is the length (8 bytes) and the pickled value; only our own workers write it, and only text and
    tuples of messages. Pickle, since JSON would join two lone surrogates to one character.
    """

    STRIDE = 1 << 32

    def __init__(self, n: int, descriptor: int | None = None) -> None:
        self.n = n
        self.descriptor = _nameless_file() if descriptor is None else descriptor

    def write(self, index: int, value: Any) -> None:
        data = pickle.dumps(value, protocol=5)
        if len(data) > self.STRIDE - 8:
            raise ValueError(f"an observation of {len(data)} bytes is too large for shared memory (4 GiB)")
        view, at = memoryview(len(data).to_bytes(8, "little") + data), index * self.STRIDE
        while view:
            done = os.pwrite(self.descriptor, view, at)
            view, at = view[done:], at + done

    def read(self, index: int) -> Any:
        """Return the value of a slot, or None if nothing has been written to it."""
        at = index * self.STRIDE
        length = int.from_bytes(self._bytes(8, at), "little")
        return pickle.loads(self._bytes(length, at + 8)) if length else None

    def _bytes(self, count: int, at: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = os.pread(self.descriptor, count - len(data), at + len(data))
            if not part:  # past the end of the file: never written
                break
            data += part
        return bytes(data)

    def __reduce__(self) -> tuple[Any, ...]:
        # For workers that are spawned instead of forked: they get a duplicate of the descriptor.
        return _rebuild_slots, (self.n, reduction.DupFd(self.descriptor))

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.descriptor)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("corrgrpo-observations")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _rebuild_slots(n: int, duplicate: Any) -> _Slots:
    return _Slots(n, duplicate.detach())


class _Live(AbstractSequence[Any]):
    """The parent's view of the slots: always the newest observations; a deep copy is a plain tuple."""

    def __init__(self, slots: _Slots, empty: Any) -> None:
        self._slots, self._empty = slots, empty

    def __len__(self) -> int:
        return self._slots.n

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = range(len(self))[index]  # raises IndexError past the end, takes negative numbers
        value = self._slots.read(place)
        return self._empty if value is None else value

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"<live view of {tuple(self)!r}>"


def _create(space: Space[Any], n: int = 1, ctx: Any = multiprocessing) -> Any:
    if not (hasattr(os, "pwrite") and hasattr(reduction, "DupFd")):
        raise CustomSpaceError(
            f"{space} has no shared memory on this platform: make the vector environment with "
            "shared_memory=False and AutoresetMode.SAME_STEP or DISABLED"
        )
    return _Slots(n)


def _write(space: Space[Any], index: int, value: Any, shared_memory: _Slots) -> None:
    shared_memory.write(index, value)


def _read_text(space: Space[Any], shared_memory: _Slots, n: int = 1) -> Any:
    return _Live(shared_memory, "")


def _read_chat(space: Space[Any], shared_memory: _Slots, n: int = 1) -> Any:
    return _Live(shared_memory, ())


def _refuse(space: Space[Any], *_: Any) -> NoReturn:
    raise ValueError(f"{space} can't be flattened: a text has no array of fixed shape")


for _cls, _read in ((Unicode, _read_text), (Chat, _read_chat)):
    create_shared_memory.register(_cls, _create)
    write_to_shared_memory.register(_cls, _write)
    read_from_shared_memory.register(_cls, _read)
    # Gymnasium looks up the exact type here.
    batch_differing_spaces.register(_cls, batch_differing_spaces.dispatch(Sequence))
    for _function in (flatdim, flatten, flatten_space, unflatten):
        _function.register(_cls, _refuse)
