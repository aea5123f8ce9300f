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

from collections.abc import Mapping
from typing import Any

NODE_CLASSES = ("ListNode", "TreeNode", "Node")
NODE_FIELDS = ("val", "data", "next", "left", "right", "random", "prev", "child", "children", "neighbors")
SCALARS = frozenset((type(None), bool, int, float, str, bytes, complex, range))


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


def node_classes(namespace: Mapping[str, Any]) -> dict[str, type]:
    """The classes of a namespace whose instances are carried as nodes."""
    return {name: found for name in NODE_CLASSES if type(found := namespace.get(name)) is type}


def all_scalar(values: list[Any]) -> bool:
    """Whether no value can be edited in place."""
    return set(map(type, values)) <= SCALARS
