"""Prompts of agent environments from files, in the form that RLLA's templates have."""

import os
from collections.abc import Sequence

from corrgrpo_envs.errors import shown
from corrgrpo_envs.tools.prompts import template_sections


def read_sections(path: str | os.PathLike[str], placeholders: Sequence[str]) -> dict[str, str]:
    """Read a prompt file: text by role, in which all of the placeholders occur.

    The file holds a line `[system]`, the system's message, a line `[user]` and the user's, or the user's alone. `$name`
    stands for a placeholder, `$$` for a dollar sign.

    Raises:
        ValueError: if it can't be read, or has an unknown placeholder or lacks one; the message names it.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"prompt_template must be a path or None, not {shown(path)}")
    file = os.fspath(path)
    sections, names = template_sections(file, placeholders)
    missing = [f"${name}" for name in placeholders if name not in names]
    if missing:
        raise ValueError(f"prompt_template {file!r} lacks {', '.join(missing)}")
    return sections
