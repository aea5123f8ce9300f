"""The error that a person can act on."""


class UsageError(Exception):
    """Something the user asked for cannot be done; the one argument is one line that says what to do.

    Command lines print the line and exit with status 2; only `--traceback` and the like show more.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
