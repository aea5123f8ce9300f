"""Errors that are meant for people."""


class UsageError(Exception):
    """Something that the user can mend, told in one line that names it and says what to do."""
