"""Prompts from text files with placeholders."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from corrgrpo_envs.env import Message
from corrgrpo_envs.errors import unknown


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """Messages with placeholders.

    Attributes:
        sections: text by role, in order.
        names: the placeholders that occur.
    """

    sections: Mapping[str, str]
    names: frozenset[str]

    def messages(self, values: Mapping[str, str]) -> tuple[Message, ...]:
        """Fill the placeholders in."""
        return tuple(
            Message(role=role, content=Template(text).substitute(values)) for role, text in self.sections.items()
        )


def read_message_template(path: str, placeholders: Iterable[str]) -> MessageTemplate:
    """Read messages from a file.

    The file holds the user's message, or a line `[system]`, the system's message, a line `[user]` and the user's. In
    both, `$name` or `${name}` stands for a placeholder and `$$` for a dollar sign; braces are ordinary characters.

    Raises:
        ValueError: if the file can't be read or has an unknown placeholder; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"prompt_template {path!r} cannot be read: {error}") from None
    sections = _sections(text, path)
    names: set[str] = set()
    for template in map(Template, sections.values()):
        if not template.is_valid():
            raise ValueError(f"prompt_template {path!r} has a '$' without a name; write '$$' for a dollar sign")
        names.update(template.get_identifiers())
    for name in sorted(names):
        if name not in (allowed := tuple(placeholders)):
            raise unknown(f"prompt_template {path!r}: placeholder", name, allowed)
    return MessageTemplate(sections, frozenset(names))


def _sections(text: str, path: str) -> dict[str, str]:
    lines = text.strip("\n").split("\n")
    if lines[0].strip() != "[system]":
        return {"user": "\n".join(lines)}
    marks = [number for number, line in enumerate(lines) if line.strip() == "[user]"]
    if len(marks) != 1:
        raise ValueError(f"prompt_template {path!r} begins with [system] and needs one line [user] after it")
    return {"system": "\n".join(lines[1 : marks[0]]), "user": "\n".join(lines[marks[0] + 1 :])}
