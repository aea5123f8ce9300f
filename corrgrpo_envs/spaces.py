"""Spaces for text: `Unicode` (any text) and `Chat` (a conversation)."""

from typing import Any

from gymnasium.spaces import Dict, Sequence, Text


class Unicode(Text):
    """Any text of any code points, up to `max_length` characters."""

    def __init__(self, max_length: int = 1 << 24) -> None:
        super().__init__(max_length, min_length=0)

    def contains(self, x: Any) -> bool:
        """Whether x is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length


class Chat(Sequence):
    """A conversation: a tuple of messages, each a dict with a `role` and a `content`."""

    def __init__(self) -> None:
        super().__init__(Dict(role=Unicode(64), content=Unicode()))
