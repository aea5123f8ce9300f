"""Messages for wrong options: what was given, what is allowed, what was probably meant."""

import difflib
from collections.abc import Iterable


def suggestion(value: object, allowed: Iterable[object]) -> str:
    """Return `" Did you mean 'x'?"` for the nearest allowed name, or an empty string."""
    names = [str(name) for name in allowed]
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown(what: str, value: object, allowed: Iterable[object], *, shown: int = 12) -> ValueError:
    """Build the `ValueError` for a name that is not among the allowed ones.

    Args:
        what: the option's name as the user wrote it, e.g. `"split"`.
        value: what was given.
        allowed: every allowed name.
        shown: at most this many allowed names are listed.
    """
    names = [str(name) for name in allowed]
    listed = ", ".join(repr(name) for name in names[:shown])
    more = f", … ({len(names)} in all)" if len(names) > shown else ""
    return ValueError(f"{what} {value!r} is unknown; allowed: {listed}{more}.{suggestion(value, names)}")
