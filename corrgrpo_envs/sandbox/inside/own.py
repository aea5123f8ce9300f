"""Objects of a program's own classes: they stay in its process, the test holds handles."""

from collections.abc import Iterable

_HANDLES = 1 << 20


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
