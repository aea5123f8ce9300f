"""The blocks of an answer: finding them, and checking that an answer has just those that it should have.

An answer is a `<think>` block followed by a `<tool_call>` block, a `<response>` block, or both. Everything
here scans the text a fixed number of times: no regular expression can be made to backtrack by an answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from corrgrpo_envs.errors import unknown

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
OPEN_RESPONSE, CLOSE_RESPONSE = "<response>", "</response>"

ChoiceT = TypeVar("ChoiceT")


def choose(option: str, value: str, choices: Mapping[str, ChoiceT]) -> ChoiceT:
    """Return what an option's value stands for.

    Raises:
        ValueError: if the value is not one of the choices; the message names the option and the choices.
    """
    if not isinstance(value, str) or value not in choices:
        raise unknown(option, value, choices)
    return choices[value]


def _any_space(gap: str) -> bool:
    return not gap.strip()


def _one_newline(gap: str) -> bool:
    return gap == "\n"


def _after_thought(text: str) -> int:
    end = text.find(CLOSE_THINK)
    return 0 if end < 0 else end + len(CLOSE_THINK)


def _from_start(text: str) -> int:
    return 0


SEPARATORS: Mapping[str, Callable[[str], bool]] = {"any": _any_space, "newline": _one_newline}
THINKS: Mapping[str, str] = {"required": OPEN_THINK, "optional": ""}
TAGS_IN_THOUGHT: Mapping[str, Callable[[str], int]] = {"fail": _from_start, "ignore": _after_thought}


@dataclass(frozen=True, slots=True)
class Layout:
    """The rules about an answer's blocks.

    Attributes:
        separator: what may stand between two blocks: `"any"` white space or none (the published rule), or
            exactly one `"newline"`.
        think: whether the opening think tag is `"required"` (the published rule) or `"optional"`, for chat
            templates that write it themselves.
        tag_in_thought: `"fail"` (the published rule): tags in the thought count like any others, so a thought
            that names the tool_call tag spoils the answer; `"ignore"`: what the thought says does not matter.

    Raises:
        ValueError: for a value that is not listed here.
    """

    separator: str = "any"
    think: str = "required"
    tag_in_thought: str = "fail"

    def __post_init__(self) -> None:
        choose("separator", self.separator, SEPARATORS)
        choose("think", self.think, THINKS)
        choose("tag_in_thought", self.tag_in_thought, TAGS_IN_THOUGHT)

    def answer_start(self, text: str) -> int:
        """Index from which tags are counted and blocks are looked for."""
        if not text.startswith(THINKS[self.think]):
            return 0
        return TAGS_IN_THOUGHT[self.tag_in_thought](text)

    def holds(self, text: str, *, calls: bool, response: bool) -> bool:
        """Whether a text consists of a think block and just the blocks that the ground truth has.

        Think tags are not counted, tags of a block that the ground truth lacks are not counted, and nothing
        is checked about what stands inside the blocks, except that a newline follows the opening and precedes
        the closing tool_call tag.

        Args:
            text: the answer, without white space around it.
            calls: the ground truth has a tool_call block.
            response: the ground truth has a response block.
        """
        head = THINKS[self.think]
        if not text.startswith(head):
            return False
        gap_holds = SEPARATORS[self.separator]
        start = self.answer_start(text)
        # `end` is where the block after the one looked at begins: blocks are taken off from the right.
        end = len(text)
        if response:
            span = _only_block(text, OPEN_RESPONSE, CLOSE_RESPONSE, start)
            if span is None or span[1] != end:
                return False
            end = span[0]
        if calls:
            span = _only_block(text, OPEN_CALL, CLOSE_CALL, start)
            if span is None or not (gap_holds(text[span[1] : end]) if response else span[1] == end):
                return False
            inside = text[span[0] + len(OPEN_CALL) : span[1] - len(CLOSE_CALL)]
            if len(inside) < 2 or inside[0] != "\n" or inside[-1] != "\n":
                return False
            end = span[0]
        if not (calls or response):
            return text.endswith(CLOSE_THINK)
        close = text.rfind(CLOSE_THINK, len(head), end)
        return close >= 0 and gap_holds(text[close + len(CLOSE_THINK) : end])


def _only_block(text: str, opening: str, closing: str, start: int) -> tuple[int, int] | None:
    """Span, tags included, of a block whose tags occur exactly once after `start`, in this order."""
    if text.count(opening, start) != 1 or text.count(closing, start) != 1:
        return None
    begin, end = text.find(opening, start), text.find(closing, start)
    return (begin, end + len(closing)) if begin < end else None


def first_block(text: str, opening: str, closing: str, start: int = 0) -> str | None:
    """What stands between the first opening tag and the next closing one.

    Both tags have to occur, in any order; if the only closing tag comes before the opening one, the block
    reaches to the end of the text.

    Returns:
        The inside of the block, or None if one of the tags does not occur.
    """
    begin = text.find(opening, start)
    if begin < 0 or text.find(closing, start) < 0:
        return None
    begin += len(opening)
    end = text.find(closing, begin)
    return text[begin:] if end < 0 else text[begin:end]


def without_thought(text: str) -> tuple[str, str]:
    """Divide a text into the thought that it begins with (tags included, or empty) and the rest."""
    if not text.startswith(OPEN_THINK):
        return "", text
    end = text.find(CLOSE_THINK)
    if end < 0:
        return "", text
    end += len(CLOSE_THINK)
    return text[:end], text[end:]
