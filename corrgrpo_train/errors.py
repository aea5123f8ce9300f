"""Errors that are the user's to mend."""


class UsageError(Exception):
    """Wrong input: its message is one line that names the thing, what is allowed and what to do."""
