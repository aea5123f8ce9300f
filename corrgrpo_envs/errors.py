"""Errors in what a user wrote: what was given, what is allowed, what was probably meant.

Every exception here takes one positional argument: processes of a vector environment rebuild exceptions from
their message alone.
"""

import difflib
import itertools
import reprlib
from collections.abc import Iterable

_SHOWN_CHARACTERS = 120
_COMPARED_NAMES = 20_000


class DatasetError(ValueError):
    """A data set that can't be read or is not as expected; the message names file, row and field."""


def shown(value: object) -> str:
    """Return `repr(value)` on one line and shortened: a message stays readable whatever the value is."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _SHOWN_CHARACTERS
    short.maxdict = short.maxlist = 8
    try:
        text = " ".join(short.repr(value).splitlines())
    except ValueError:  # whole numbers of thousands of digits have no repr
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 2 * _SHOWN_CHARACTERS else text[: 2 * _SHOWN_CHARACTERS] + "…"


def suggestion(value: object, allowed: Iterable[object]) -> str:
    """Return `" Did you mean 'x'?"` for the nearest allowed name, or an empty string.

    Args:
        value: what was given; long texts are near to nothing.
        allowed: allowed names; the first 20,000 are compared, so that an error never takes long.
    """
    given = value if isinstance(value, str) else shown(value)
    if len(given) > _SHOWN_CHARACTERS:
        return ""
    names = {str(name).casefold(): str(name) for name in itertools.islice(allowed, _COMPARED_NAMES)}
    near = difflib.get_close_matches(given.casefold(), names, n=1, cutoff=0.6)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


def unknown(what: str, value: object, allowed: Iterable[object], *, listed: int = 12) -> ValueError:
    """Build the `ValueError` for a name that is not among the allowed ones.

    Args:
        what: the option's name as the user wrote it, e.g. `"split"`.
        value: what was given.
        allowed: every allowed name.
        listed: at most this many allowed names are listed.
    """
    names = [str(name) for name in allowed]
    some = ", ".join(shown(name) for name in names[:listed]) or "none"
    more = f", … ({len(names)} in all)" if len(names) > listed else ""
    return ValueError(f"{what} {shown(value)} is unknown; allowed: {some}{more}.{suggestion(value, names)}")
