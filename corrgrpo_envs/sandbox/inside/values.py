"""Values on the wire between test and program: canonical tagged JSON, exact built-in types only.

Lists, texts, `None`, bools, ordinary ints and finite floats are JSON's own; all else is an object of one key, the
tag: `i` large int (hexadecimal), `f` nan or infinity, `u` text with lone surrogates, `t` tuple, `s` set, `z`
frozenset, `d` dict, `q` deque, `r` range, `b` bytes, `B` bytearray, `c` complex, `n` node, `o` own object.

A node (an instance of `ListNode`, `TreeNode` or `Node` as the task defines them) is an index into a table of objects
that both sides keep in the same order, so that sharing, cycles and identity survive the trip. An own object is an
instance of a class that the test takes from the program by name, or a `re.Match`. It stays where it is; what travels
is its number, and the test holds a `Handle` that it can pass back.

A document is three lines: class names of the nodes that are new, attributes of all nodes, the value.
"""

import collections
import contextlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

NODE_CLASSES = ("ListNode", "TreeNode", "Node")
NODE_FIELDS = ("val", "data", "next", "left", "right", "random", "prev", "child", "children", "neighbors")

_HANDLES = 1 << 20
_PLAIN_INT = 1 << 1024  # larger ones travel in hexadecimal: decimal digits cost quadratic time
_SCALARS = frozenset((type(None), bool, int, float, str, bytes, complex, range))
_ENCODER: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
_QUOTED = json.encoder.encode_basestring_ascii
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


class UnsupportedError(Exception):
    """A value of a type that is not carried."""


class TooLargeError(Exception):
    """A value beyond the limits of depth, nodes or bytes."""


class MalformedError(Exception):
    """Text that is no encoded value."""


class Bounds:
    """Limits of one value: nesting, number of elements, bytes of its text."""

    def __init__(self, depth: int = 200, nodes: int = 2_000_000, size: int = 16 << 20) -> None:
        self.depth, self.nodes, self.size = depth, nodes, size

    def plus(self, size: int) -> "Bounds":
        """Room for a text of so many bytes more, and for as many elements as it can hold at most."""
        return Bounds(self.depth, self.nodes + size, self.size + 2 * size)


class Handle:
    """Stands in the test for an object of the program's own classes; equal to itself alone."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Own:
    """Objects of the program's own classes that the test was given, by number.

    Args:
        classes: the classes whose instances are given out.
    """

    def __init__(self, classes: Iterable[type] = ()) -> None:
        self.classes = frozenset(classes)
        self._kept: list[object] = []
        self._numbers: dict[int, int] = {}

    def number(self, item: object) -> int:
        """The object's number, the same each time."""
        place = self._numbers.get(id(item))
        if place is None:
            place = self._numbers[id(item)] = len(self._kept)
            self._kept.append(item)
        return place

    def item(self, number: object) -> object:
        """The object with a number."""
        if type(number) is not int or not 0 <= number < len(self._kept):
            raise ValueError("no such object")
        return self._kept[number]


class Handles:
    """The test's side of `Own`: one handle a number."""

    def __init__(self) -> None:
        self._made: dict[int, Handle] = {}

    def handle(self, number: object) -> Handle:
        """The handle for a number, the same each time."""
        if type(number) is not int or not 0 <= number < _HANDLES:
            raise ValueError("no such object")
        return self._made.setdefault(number, Handle(number))


NOTHING_OWN = Own()


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


def update(old: Any, new: Any) -> None:
    """Make `old` equal to `new` in place, keeping the containers that both have at the same place."""
    kind = type(old)
    if kind is not type(new):
        return
    if kind is list:
        if not set(map(type, new)) <= _SCALARS:
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


def node_classes(namespace: Mapping[str, Any]) -> dict[str, type]:
    """The classes of a namespace whose instances are carried as nodes."""
    return {name: found for name in NODE_CLASSES if type(found := namespace.get(name)) is type}


def all_scalar(values: list[Any]) -> bool:
    """Whether no value can be edited in place."""
    return set(map(type, values)) <= _SCALARS
