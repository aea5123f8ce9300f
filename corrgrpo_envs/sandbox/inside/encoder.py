"""Writes values, in a process where nothing that a value's own class says can be believed."""

import collections
import contextlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from .own import NOTHING_OWN, Handle, Own
from .values import NODE_FIELDS, Bounds, TooLargeError, UnsupportedError

_PLAIN_INT = 1 << 1024  # larger ones travel in hexadecimal: decimal digits cost quadratic time
_ENCODER: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
_QUOTED = json.encoder.encode_basestring_ascii
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


class Encoder:
    """Writes values; `objects` is the table of nodes, extended by those that are met.

    Base-class methods and `type(x) is` are used throughout: what a value's own class says counts for nothing.
    """

    def __init__(self, classes: Mapping[str, type], objects: list[Any], bounds: Bounds, own: Own = NOTHING_OWN) -> None:
        self.objects = objects
        self._own = own
        self._names = {cls: name for name, cls in classes.items()}
        self._index = {id(item): place for place, item in enumerate(objects)}
        self._bounds = bounds
        self._left = bounds.nodes
        # The encoder in C itself: what a program does to the json module does not reach it.
        self._chunks = _ENCODER(None, None, _QUOTED, None, ":", ",", False, False, False)

    def document(self, value: object) -> bytes:
        """Encode one value with the nodes it reaches."""
        known = len(self.objects)
        text = self.text(value)
        attributes = self.attributes()
        return b"\n".join((self.new_classes(known), attributes, text))

    def text(self, value: object) -> bytes:
        """Encode one value; nodes only by index.

        Raises:
            UnsupportedError: for a type that is not carried.
            TooLargeError: beyond the bounds.
        """
        return self._written(self._plain(value, 0))

    def attributes(self) -> bytes:
        """Encode the attributes of every node of the table; nodes met on the way join it."""
        rows = []
        for node in self.objects:  # grows while it is read
            row = [[name, self._plain(content, 1)] for name, content in _fields(node)]
            rows.append(row)
        return self._written(rows)

    def new_classes(self, known: int) -> bytes:
        """Encode the class names of the nodes after the first `known` ones."""
        return self._written([self._names[type(node)] for node in self.objects[known:]])

    def _written(self, plain: object) -> bytes:
        text = "".join(self._chunks(plain, 0))
        if len(text) > self._bounds.size:
            raise TooLargeError(f"a value of more than {self._bounds.size} bytes")
        return text.encode("ascii")

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooLargeError(f"a value of more than {self._bounds.nodes} elements")

    def _plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is bool or value is None:
            return value
        if kind is int:
            return value if -_PLAIN_INT < value < _PLAIN_INT else self._large(value)
        if kind is str:
            self._spend(len(value) >> 3)
            return value if str.isascii(value) or _encodable(value) else {"u": list(map(ord, value))}
        if kind is float:
            return value if math.isfinite(value) else {"f": float.__repr__(value)}
        if kind is list:
            return self._items(value, depth)
        write = _WRITERS.get(kind)
        if write is not None:
            return write(self, value, depth)
        if kind in self._names:
            return {"n": self._node(value)}
        if kind is Handle:
            return {"o": value.number}
        if kind in self._own.classes:
            return {"o": self._own.number(value)}
        raise UnsupportedError(f"a value of type {type.__getattribute__(kind, '__name__')!r}")

    def _items(self, items: Any, depth: int) -> list[Any]:
        if depth > self._bounds.depth:
            raise TooLargeError(f"a value nested deeper than {self._bounds.depth}")
        self._spend(len(items) + 1)
        kinds = set(map(type, items))
        # The common cases at the speed of C.
        if kinds == {int}:
            if min(items) > -_PLAIN_INT and max(items) < _PLAIN_INT:
                return list(items)
        elif kinds == {bool} or (kinds == {str} and sum(map(len, items)) < 1 << 16 and all(map(str.isascii, items))):
            return list(items)
        return [self._plain(item, depth + 1) for item in items]

    def _sorted(self, items: Any, depth: int) -> list[Any]:
        return sorted(self._items(list(items), depth), key=lambda item: "".join(self._chunks(item, 0)))

    def _pairs(self, items: Any, depth: int) -> list[Any]:
        if depth > self._bounds.depth:
            raise TooLargeError(f"a value nested deeper than {self._bounds.depth}")
        self._spend(len(items) + 1)
        return [[self._plain(key, depth + 1), self._plain(content, depth + 1)] for key, content in dict.items(items)]

    def _large(self, value: int) -> dict[str, str]:
        self._spend(value.bit_length() >> 6)
        return {"i": hex(value)}

    def _node(self, node: object) -> int:
        place = self._index.get(id(node))
        if place is None:
            self._spend(1)
            place = self._index[id(node)] = len(self.objects)
            self.objects.append(node)
        return place


def _write_bytes(tag: str) -> Callable[[Encoder, Any, int], Any]:
    def write(encoder: Encoder, value: Any, depth: int) -> Any:
        encoder._spend(len(value) >> 3)
        return {tag: bytes(value).hex()}

    return write


_WRITERS: dict[type, Callable[[Encoder, Any, int], Any]] = {
    tuple: lambda encoder, value, depth: {"t": encoder._items(value, depth)},
    set: lambda encoder, value, depth: {"s": encoder._sorted(set.__iter__(value), depth)},
    frozenset: lambda encoder, value, depth: {"z": encoder._sorted(frozenset.__iter__(value), depth)},
    collections.deque: lambda encoder, value, depth: {"q": encoder._items(list(value), depth)},
    range: lambda encoder, value, depth: {
        "r": [encoder._plain(part, depth) for part in (value.start, value.stop, value.step)]
    },
    complex: lambda encoder, value, depth: {
        "c": [encoder._plain(value.real, depth), encoder._plain(value.imag, depth)]
    },
    bytes: _write_bytes("b"),
    bytearray: _write_bytes("B"),
    # A Counter equals the dict of its pairs, and so do the others: the plain dict stands for them.
    **{kind: (lambda encoder, value, depth: {"d": encoder._pairs(value, depth)}) for kind in _DICTS},
}


def _fields(node: object) -> list[tuple[str, object]]:
    found = []
    for name in NODE_FIELDS:
        with contextlib.suppress(AttributeError):
            found.append((name, object.__getattribute__(node, name)))
    return found


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
