"""How a programming problem is posed."""

from collections.abc import Mapping
from string import Template

from corrgrpo_envs.code.extraction import FENCE
from corrgrpo_envs.code.problems import CodeProblem
from corrgrpo_envs.env import Message
from corrgrpo_envs.templates import MessageTemplate, read_message_template

PLACEHOLDERS: Mapping[str, str] = {
    "statement": "what is asked, with examples",
    "starter_code": "the head of the class that is to be completed",
}

_PROMPT = Template(f"""\
Solve this programming problem in Python. Your program is tested on many inputs and has to be right for all.

$statement

Complete this class and write the whole program in one block:
{FENCE}python
$starter_code
{FENCE}""")


def posed(problem: CodeProblem) -> tuple[Message, ...]:
    """One user message: the query that the row carries, else the problem in our own words."""
    text = problem.query.strip() or _PROMPT.substitute(_values(problem))
    return (Message(role="user", content=text),)


def filled(template: MessageTemplate, problem: CodeProblem) -> tuple[Message, ...]:
    """The messages of a template, for any problem."""
    return template.messages(_values(problem))


def read_template(path: str) -> MessageTemplate:
    """Read a prompt from a file, see `read_message_template`; `$statement` must occur.

    Raises:
        ValueError: if the file can't be read, has an unknown placeholder or lacks one.
    """
    template = read_message_template(path, PLACEHOLDERS)
    if "statement" not in template.names:
        raise ValueError(f"prompt_template {path!r} must contain $statement")
    return template


def _values(problem: CodeProblem) -> dict[str, str]:
    return {"statement": problem.statement.strip(), "starter_code": problem.starter_code.rstrip()}
