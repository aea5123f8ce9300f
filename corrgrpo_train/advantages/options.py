"""Checks of options, and messages that say what was given, what is allowed and what was probably meant."""

import difflib
import math
from collections.abc import Iterable


def unknown(what: str, value: object, allowed: Iterable[str]) -> ValueError:
    """Build the `ValueError` for a name that is not among the allowed ones."""
    names = list(allowed)
    listed = ", ".join(repr(name) for name in names) or "none"
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"{what} {value!r} is unknown; allowed: {listed}.{hint}")


def check_non_negative(**options: object) -> None:
    """Raise `ValueError` for the first option that is not a finite number ≥ 0."""
    for name, value in options.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:  # type: ignore[operator]
            raise ValueError(f"option {name!r} must be a finite number >= 0, not {value!r}")


def check_flag(**options: object) -> None:
    """Raise `ValueError` for the first option that is neither True nor False."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise ValueError(f"option {name!r} must be True or False, not {value!r}")
