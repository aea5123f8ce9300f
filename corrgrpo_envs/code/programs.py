"""Putting a program together from what stands before it and an answer's code."""

import re

# A future statement must come before all else of a program.
_FUTURE = re.compile(r"^from __future__ import [^\n]*\n?", re.MULTILINE)


def joined(header: str, code: str) -> str:
    """The program of a header and code; the code's future statements are moved to the front."""
    future = "".join(line.rstrip() + "\n" for line in _FUTURE.findall(code)) if "__future__" in code else ""
    rest = _FUTURE.sub("\n", code) if future else code
    return f"{future}{header.rstrip()}\n\n{rest.rstrip()}\n" if header.strip() else f"{future}{rest.rstrip()}\n"
