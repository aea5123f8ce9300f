"""How a dialogue is posed to the policy: two prompt styles, and templates from files.

Both styles say the same: which tools there are, and that an answer is a think block followed by a tool_call
block with one JSON object a line, by a response block, or by both.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from corrgrpo_envs.env import Message
from corrgrpo_envs.errors import unknown
from corrgrpo_envs.tools.dialogues import Tool

Prompt = Callable[[Sequence[Tool], str], tuple[Message, ...]]

PLACEHOLDERS: Mapping[str, str] = {
    "tools": "one tool a line, as name(parameter, parameter: type, parameter=default)",
    "tool_details": "a numbered list with name, description and JSON parameters of each tool",
    "history": "the dialogue so far, in user, tool_call, obs and response tags",
}

_TEXT_TYPES = ("str", "string")
_NESTED_TYPES = ("array", "object", "list", "dict")

_COMPACT = Template("""\
Answer like this, one line per call:
<think> why </think>
<tool_call>
{"name": "tool", "parameters": {"key": "value"}}
</tool_call>
If no tool fits, end with this instead:
<response> text </response>
Tools:
$tools""")

_PUBLISHED = Template("""\
You are an assistant in a conversation of several turns. You can call tools to get things done for the \
user, and you can answer the user directly.

**Tools You Can Call**
These tools are available to you now:
$tool_details

**How to Proceed**
1. **Think:** Look back at the conversation and work out what the user wants at this point.
2. **Choose:** Decide if any tool is needed. If so, pick it and fill in its parameters.
3. **Act:** Write the calls, or a reply to the user that fits what was said before.

**Form of Your Answer**
```plaintext
<think> What you consider before acting </think>
<tool_call>
{"name": "first tool", "parameters": {"first parameter": "its value", "second parameter": "its value"}}
{"name": "second tool", "parameters": {"a parameter": "its value"}}
</tool_call>
<response> What you say to the user </response>
```

**Please Note**
1. The `<think>` block is never left out. After it comes a `<tool_call>` block, a `<response>` block, or \
one of each; at least one of them has to be there.
2. A `<tool_call>` block may hold several calls. Each call is a JSON object on a line of its own, with the \
keys "name" and "parameters"; a tool that takes no parameters gets an empty object.
3. The conversation so far may show earlier `<tool_call>` and `<response>` blocks. What the tools returned \
is in `<obs>` tags.""")


def signatures(tools: Sequence[Tool]) -> str:
    """Write one tool a line: `name(parameter, parameter: type, parameter=default)`.

    The type is left out for text and where a default shows it; arrays and objects bring their description
    along, which says what is in them.
    """
    return "\n".join(
        f"{tool.name}({', '.join(_parameter(*item) for item in tool.parameters.items())})" for tool in tools
    )


def details(tools: Sequence[Tool]) -> str:
    """Write a numbered list of tools with name, description, and parameters as one line of JSON."""
    return "\n".join(
        f"{number}. Name: {tool.name}\nDescription: {tool.description}\n"
        f"Parameters: {json.dumps(tool.parameters, ensure_ascii=False)}"
        for number, tool in enumerate(tools, start=1)
    )


def compact(tools: Sequence[Tool], history: str) -> tuple[Message, ...]:
    """A short prompt that a small model can follow: some 70 tokens, the tools and the dialogue.

    If the user has said one thing only, that is the user message, without tags.
    """
    system = _COMPACT.substitute(tools=signatures(tools))
    return Message(role="system", content=system), Message(role="user", content=_plain(history))


def published(tools: Sequence[Tool], history: str) -> tuple[Message, ...]:
    """A prompt of the layout that RLLA-4K has, in words of our own."""
    system = _PUBLISHED.substitute(tool_details=details(tools))
    user = f"**The Conversation So Far**\n{history}"
    return Message(role="system", content=system), Message(role="user", content=user)


PROMPT_STYLES: Mapping[str, Prompt] = {"compact": compact, "published": published}


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A prompt from a text with placeholders.

    Attributes:
        sections: text by role, in order.
    """

    sections: Mapping[str, str]

    def __call__(self, tools: Sequence[Tool], history: str) -> tuple[Message, ...]:
        """Fill the placeholders in."""
        values = {"tools": signatures(tools), "tool_details": details(tools), "history": history}
        return tuple(
            Message(role=role, content=Template(text).substitute(values)) for role, text in self.sections.items()
        )


def read_template(path: str) -> PromptTemplate:
    """Read a prompt from a file.

    The file holds the user's message, or a line `[system]`, the system's message, a line `[user]` and the
    user's. In both, `$name` or `${name}` stands for one of `PLACEHOLDERS` and `$$` for a dollar sign; braces
    are ordinary characters. `$history` and one of `$tools` and `$tool_details` must occur.

    Raises:
        ValueError: if the file cannot be read, or has an unknown placeholder or lacks one; the message names
            it.
    """
    sections, names = template_sections(path, PLACEHOLDERS)
    if "history" not in names or not names & {"tools", "tool_details"}:
        raise ValueError(f"prompt_template {path!r} must contain $history, and $tools or $tool_details")
    return PromptTemplate(sections)


def template_sections(path: str, placeholders: Iterable[str]) -> tuple[dict[str, str], set[str]]:
    """Read the sections of a prompt file, in the form that `read_template` describes.

    Args:
        path: of the file.
        placeholders: names that may stand after a dollar sign.

    Returns:
        Text by role, and the names that occur.

    Raises:
        ValueError: if the file cannot be read, or has an unknown placeholder; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"prompt_template {path!r} cannot be read: {error}") from None
    allowed = list(placeholders)
    sections = _sections(text, path)
    names: set[str] = set()
    for template in map(Template, sections.values()):
        if not template.is_valid():
            raise ValueError(f"prompt_template {path!r} has a '$' without a name; write '$$' for a dollar sign")
        names.update(template.get_identifiers())
    for name in sorted(names):
        if name not in allowed:
            raise unknown(f"prompt_template {path!r}: placeholder", name, allowed)
    return sections, names


def _sections(text: str, path: str) -> dict[str, str]:
    lines = text.strip("\n").split("\n")
    if lines[0].strip() != "[system]":
        return {"user": "\n".join(lines)}
    marks = [number for number, line in enumerate(lines) if line.strip() == "[user]"]
    if len(marks) != 1:
        raise ValueError(f"prompt_template {path!r} begins with [system] and needs one line [user] after it")
    return {"system": "\n".join(lines[1 : marks[0]]), "user": "\n".join(lines[marks[0] + 1 :])}


def _parameter(name: str, schema: Mapping[str, object]) -> str:
    default = schema.get("default", "")
    if default != "":
        return f"{name}={json.dumps(default, ensure_ascii=False)}"
    kind = str(schema.get("type", "string"))
    text = name if kind in _TEXT_TYPES else f"{name}: {kind}"
    return f"{text} ({schema['description']})" if kind in _NESTED_TYPES and schema.get("description") else text


def _plain(history: str) -> str:
    """The user's words alone if nothing else was said."""
    words = history.removeprefix("<user> ").removesuffix(" </user>")
    return history if "</user>" in words or len(words) + len("<user>  </user>") != len(history) else words
