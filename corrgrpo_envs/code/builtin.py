"""The built-in programming problems: one Markdown file a problem, read as text and never imported.

A file holds a title, a list of `- name: value` lines (`difficulty`, `split`, `tags`), and the sections named in
`SECTIONS`: the statement as prose, each other one as a single fenced block of Python.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from corrgrpo_envs.code.prelude import PRELUDE
from corrgrpo_envs.errors import DatasetError, unknown

SECTIONS = ("Statement", "Starter code", "Reference", "Slow reference", "Wrong answer", "Tests")
DIFFICULTIES = ("easy", "medium", "hard")

_FIELDS = ("difficulty", "split", "tags")
_SPLITS = ("train", "validation", "test")
_BLOCK = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
_EXAMPLE = re.compile(r"^Input: (.*)\nOutput: (.*)$", re.MULTILINE)
_ARGUMENT = re.compile(r"(?:, )?(\w+) = ")


@dataclass(frozen=True, slots=True)
class Example:
    """One call shown in a statement.

    Attributes:
        arguments: by name. Linked lists are lists of values; trees are lists level by level, `None` for a gap.
        output: what the call returns, or what it leaves in its first argument if it returns nothing.
    """

    arguments: dict[str, Any]
    output: Any


@dataclass(frozen=True, slots=True)
class Problem:
    """A programming problem with what is needed to pose it and to judge answers.

    Attributes:
        id: unique name, the file's name without its ending.
        title: one line.
        difficulty: `"easy"`, `"medium"` or `"hard"`.
        split: `"train"`, `"validation"` or `"test"`.
        tags: topics, and `in-place`, `any-order`, `float`, `list-node`, `tree-node` or `unicode` where they apply.
        statement: what is asked, with examples and limits.
        starter_code: `class Solution` with the method's head.
        reference: a right and fast program.
        slow_reference: a right program with a higher order of growth.
        wrong_answer: a plausible program that fails the tests.
        tests: source of `check(candidate)`, which raises unless `candidate` is right.
    """

    id: str
    title: str
    difficulty: str
    split: str
    tags: tuple[str, ...]
    statement: str
    starter_code: str
    reference: str
    slow_reference: str
    wrong_answer: str
    tests: str

    @property
    def entry_point(self) -> str:
        """The expression that tests call, `Solution().method`."""
        return f"Solution().{_method(self.starter_code)}"

    @property
    def examples(self) -> tuple[Example, ...]:
        """The `Input:` and `Output:` pairs of the statement, as values."""
        return tuple(
            Example(_arguments(given), json.loads(output)) for given, output in _EXAMPLE.findall(self.statement)
        )

    def row(self) -> dict[str, Any]:
        """Return the problem under the field names of LeetCodeDataset v0.3.1, and its split."""
        pairs = _EXAMPLE.findall(self.statement)
        return {
            "task_id": self.id,
            "difficulty": self.difficulty.capitalize(),
            "split": self.split,
            "tags": list(self.tags),
            "problem_description": self.statement,
            "starter_code": self.starter_code,
            "prompt": PRELUDE,
            "completion": self.reference,
            "entry_point": self.entry_point,
            "test": self.tests,
            "input_output": [{"input": given, "output": output} for given, output in pairs],
        }


def read_problems(folder: Traversable | None = None) -> tuple[Problem, ...]:
    """Read every problem of a folder in alphabetical order of their ids.

    Args:
        folder: where the `.md` files lie; None for the ones that come with this package.

    Raises:
        DatasetError: naming the file and what is wrong with it.
    """
    folder = files("envs_assets") / "leetcode" / "problems" if folder is None else folder
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".md"))
    return tuple(parse_problem(name.removesuffix(".md"), (folder / name).read_text(encoding="utf-8")) for name in names)


def parse_problem(slug: str, text: str) -> Problem:
    """Make a problem of a file's text.

    Args:
        slug: the problem's id.
        text: the whole file.

    Raises:
        DatasetError: if a field or section is missing, unknown, or not as it should be.
    """
    try:
        head, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
        title, fields = _head(head)
        sections = dict(_section(part) for part in parts)
        if tuple(sections) != SECTIONS:
            raise ValueError(f"has the sections {list(sections)}; needed, in this order: {list(SECTIONS)}")
        statement, *blocks = sections.values()
        codes = tuple(_code(name, block) for name, block in zip(SECTIONS[1:], blocks, strict=True))
        problem = Problem(
            slug, title, fields["difficulty"], fields["split"], tuple(fields["tags"].split(", ")), statement, *codes
        )
        _method(problem.starter_code)
        if not problem.examples:
            raise ValueError("shows no example; write 'Input: name = value' and 'Output: value' on two lines")
    except (ValueError, SyntaxError) as error:
        raise DatasetError(f"problem {slug!r}: {error}") from None
    return problem


def _head(text: str) -> tuple[str, dict[str, str]]:
    title, *lines = [line for line in text.splitlines() if line] or [""]
    fields = {name: value for name, _, value in (line.removeprefix("- ").partition(": ") for line in lines)}
    if not title.startswith("# ") or tuple(fields) != _FIELDS or not all(fields.values()):
        raise ValueError(f"must start with '# Title' and the lines {', '.join(f'- {name}: …' for name in _FIELDS)}")
    for name, allowed in (("difficulty", DIFFICULTIES), ("split", _SPLITS)):
        if fields[name] not in allowed:
            raise unknown(name, fields[name], allowed)
    return title.removeprefix("# "), fields


def _section(part: str) -> tuple[str, str]:
    name, _, body = part.partition("\n")
    return name.strip(), body.strip()


def _code(name: str, body: str) -> str:
    block = _BLOCK.fullmatch(body)
    if block is None or "```" in block[1]:
        raise ValueError(f"section {name!r} must be one block fenced by ```python and ```")
    return block[1] + "\n"


def _method(starter: str) -> str:
    for node in ast.walk(ast.parse(starter)):
        if isinstance(node, ast.FunctionDef):
            return node.name
    raise ValueError("the starter code has no method")


def _arguments(text: str) -> dict[str, Any]:
    """Read `name = value, name = value` with values in JSON."""
    return dict(_each_argument(text))


def _each_argument(text: str) -> Iterator[tuple[str, Any]]:
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        name = _ARGUMENT.match(text, position)
        if name is None:
            raise ValueError(f"example input {text!r} is not 'name = value, name = value'")
        value, position = decoder.raw_decode(text, name.end())
        yield name[1], value
