"""Reads values that may come from a hostile program."""

import collections
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from .own import NOTHING_OWN
from .values import NODE_FIELDS, Bounds, MalformedError


class Decoder:
    """Reads values that may come from a hostile program; `objects` is the table of nodes."""

    def __init__(
        self,
        classes: Mapping[str, type],
        objects: list[Any],
        bounds: Bounds,
        own: Callable[[Any], object] = NOTHING_OWN.item,
    ) -> None:
        self.objects = objects
        self._classes = classes
        self._bounds = bounds
        self._own = own
        self._loads = json.JSONDecoder(object_hook=self._tagged, parse_constant=_refuse).decode

    def document(self, document: bytes) -> Any:
        """Decode one value with its nodes."""
        parts = document.split(b"\n")
        if len(parts) != 3:
            raise MalformedError("a document has three lines")
        self.new_classes(parts[0])
        self.attributes(parts[1])
        return self.value(parts[2])

    def value(self, text: bytes) -> Any:
        """Decode one value.

        Raises:
            MalformedError: for anything that no encoder writes.
        """
        if len(text) > self._bounds.size:
            raise MalformedError("more bytes than allowed")
        # Each comma or bracket is at most one more element: a cheap bound before anything is built.
        if text.count(b",") + text.count(b"[") + text.count(b"{") > 4 * self._bounds.nodes:
            raise MalformedError("more elements than allowed")
        try:
            return self._loads(text.decode("ascii"))
        except (ValueError, TypeError, OverflowError, RecursionError, MemoryError, KeyError, IndexError) as error:
            raise MalformedError(f"not a value ({type(error).__name__})") from None

    def new_classes(self, text: bytes) -> None:
        """Add empty nodes of the named classes to the table."""
        names = self.value(text)
        if type(names) is not list:
            raise MalformedError("class names are a list")
        for name in names:
            cls = self._classes.get(name) if type(name) is str else None
            if cls is None:
                raise MalformedError("a node of an unknown class")
            self.objects.append(object.__new__(cls))

    def attributes(self, text: bytes) -> None:
        """Set the attributes of the table's nodes."""
        rows = self.value(text)
        if type(rows) is not list or len(rows) != len(self.objects):
            raise MalformedError("one row of attributes per node")
        for node, row in zip(self.objects, rows, strict=True):
            for name, content in _attribute_pairs(row):
                try:
                    setattr(node, name, content)
                except (AttributeError, TypeError) as error:
                    raise MalformedError(f"a node does not take {name}") from error

    def _tagged(self, found: dict[str, Any]) -> Any:
        if len(found) != 1:
            raise ValueError("one tag")
        ((tag, content),) = found.items()
        return _READERS[tag](self, content)

    def _node(self, place: Any) -> Any:
        if type(place) is not int or not 0 <= place < len(self.objects):
            raise ValueError("no such node")
        return self.objects[place]


def _attribute_pairs(row: Any) -> list[tuple[str, Any]]:
    if type(row) is not list:
        raise MalformedError("attributes are a list")
    pairs = []
    for pair in row:
        if type(pair) is not list or len(pair) != 2 or pair[0] not in NODE_FIELDS:
            raise MalformedError("an attribute is a name and a value")
        pairs.append((pair[0], pair[1]))
    return pairs


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _a_list(content: Any) -> list[Any]:
    if type(content) is not list:
        raise ValueError("a list")
    return content


def _read_range(content: Any) -> range:
    start, stop, step = _a_list(content)
    return range(start, stop, step)


def _read_complex(content: Any) -> complex:
    real, imaginary = _a_list(content)
    if type(real) is not float or type(imaginary) is not float:
        raise ValueError("two floats")
    return complex(real, imaginary)


_SPECIAL_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_READERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "i": lambda decoder, content: int(content, 16),
    "f": lambda decoder, content: _SPECIAL_FLOATS[content],
    "u": lambda decoder, content: "".join(map(chr, _a_list(content))),
    "t": lambda decoder, content: tuple(_a_list(content)),
    "s": lambda decoder, content: set(_a_list(content)),
    "z": lambda decoder, content: frozenset(_a_list(content)),
    "d": lambda decoder, content: dict(map(_a_list, _a_list(content))),
    "q": lambda decoder, content: collections.deque(_a_list(content)),
    "r": lambda decoder, content: _read_range(content),
    "c": lambda decoder, content: _read_complex(content),
    "b": lambda decoder, content: bytes.fromhex(content),
    "B": lambda decoder, content: bytearray.fromhex(content),
    "n": Decoder._node,
    "o": lambda decoder, content: decoder._own(content),
}
