"""Comparing printed output: by lines, exactly or as numbers."""

from typing import Any


def same(printed: str, expected: str) -> bool:
    """Whether two outputs agree.

    Space around the whole and around each line does not count. A line agrees if it is equal or if both lines are
    the same sequence of decimal numbers (`1.0` and `1.00` agree).
    """
    ours, theirs = printed.strip().split("\n"), expected.strip().split("\n")
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def _same_line(printed: str, expected: str) -> bool:
    printed, expected = printed.strip(), expected.strip()
    return printed == expected or ((numbers := _numbers(expected)) is not None and _numbers(printed) == numbers)


def _numbers(line: str) -> list[Any] | None:
    # Not above: what is loaded before the zygote forks is copied for every program.
    from decimal import Decimal, InvalidOperation

    try:
        numbers = [Decimal(word) for word in line.split()]
    except InvalidOperation:
        return None
    # Comparing a signalling nan raises, and a program may print one.
    return None if any(number.is_snan() for number in numbers) else numbers
