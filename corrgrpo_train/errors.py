"""The error that a person can act on, and what is told of others."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """Something the user asked for cannot be done; the one argument is one line that says what to do.

    Command lines print the line and exit with status 2; only `--traceback` and the like show more.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(" ".join(message.split())))


def printable(text: str) -> str:
    """The text without control characters: what an environment, a model or a server wrote cannot steer the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 500 characters; its type where it has none."""
    try:
        text = str(error).strip()
    except Exception:  # another package's error: its message may fail as well
        text = ""
    return text.splitlines()[0][:500] if text else type(error).__name__


def missing_package(error: ModuleNotFoundError, extra: str) -> str:
    """What to install where a package is missing; `extra` of this package brings it."""
    return f"this needs {error.name}, which is not installed: pip install 'corrgrpo[{extra}]'"


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """End a command with one line and status 2 where what it imports is not installed.

    Args:
        extra: the extra of this package that brings it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] in ("corrgrpo_train", "corrgrpo_envs", "envs_assets"):
            raise
        sys.stderr.write(f"error: {missing_package(error, extra)}\n")
        raise SystemExit(2) from None
