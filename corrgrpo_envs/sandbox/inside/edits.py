"""Edits that a program made to what it was passed, made again to what the test holds."""

import collections
from typing import Any

from .values import SCALARS


def update(old: Any, new: Any) -> None:
    """Make `old` equal to `new` in place, keeping the containers that both have at the same place."""
    kind = type(old)
    if kind is not type(new):
        return
    if kind is list:
        if not set(map(type, new)) <= SCALARS:
            new = [_kept(before, after) for before, after in zip(old, new, strict=False)] + new[len(old) :]
        old[:] = new
    elif kind is tuple:
        for before, after in zip(old, new, strict=False):
            update(before, after)
    elif kind is dict:
        entries = {key: _kept(old.get(key), after) for key, after in new.items()}
        old.clear()
        old.update(entries)
    elif kind is set:
        old.clear()
        old.update(new)
    elif kind is collections.deque:
        old.clear()
        old.extend(new)
    elif kind is bytearray:
        old[:] = new


def _kept(before: Any, after: Any) -> Any:
    if type(before) is type(after) and type(before) in (list, dict, set, collections.deque, bytearray):
        update(before, after)
        return before
    return after
