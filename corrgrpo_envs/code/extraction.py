"""Finding the program in an answer, by the published rules.

Blocks are found by scanning for the three backticks, so that no answer takes longer than its length: a regular
expression with the same meaning goes back and forth over long white space.
"""

from collections.abc import Iterator
from dataclasses import dataclass

FENCE = "```"
THOUGHT_END = "</think>"
SOLUTION = "class Solution"

_LABELS = ("python", "py")


@dataclass(frozen=True, slots=True)
class Extracted:
    """What was found in an answer.

    Attributes:
        code: the program; empty if the answer is.
        fenced: whether it stood between fences.
    """

    code: str
    fenced: bool


def fenced_blocks(text: str) -> Iterator[str]:
    """Yield what stands between each opening fence and the next one, from left to right.

    After the opening fence `python` or `py` in any case, blanks and tabs, and one newline are left out; other labels
    stay part of the block. A fence without a partner opens nothing.
    """
    start = text.find(FENCE)
    while start >= 0:
        begin = _after_label(text, start + len(FENCE))
        end = text.find(FENCE, begin)
        if end < 0:
            return
        yield text[begin:end]
        start = text.find(FENCE, end + len(FENCE))


def extract(answer: str) -> Extracted:
    """Find the program in an answer.

    Of the fenced blocks, thoughts included, the longest one that has `class Solution` is taken, else the longest; the
    first among equals. Without a block it is what follows the last `</think>`, from the first `class Solution` on if
    there is one.
    """
    answer = answer.strip()
    blocks = list(fenced_blocks(answer))
    if blocks:
        return Extracted(max(blocks, key=lambda block: (SOLUTION in block, len(block))).strip(), fenced=True)
    rest = answer.rpartition(THOUGHT_END)[2]
    return Extracted(rest[max(0, rest.find(SOLUTION)) :].strip(), fenced=False)


def last_block(answer: str) -> Extracted:
    """Find the program in an answer to an evaluation benchmark.

    Of what follows the last `</think>` the last fenced block is taken, else all of it; blank lines around it are left
    out, the indentation of its first line is kept.
    """
    rest = answer.rpartition(THOUGHT_END)[2]
    blocks = list(fenced_blocks(rest))
    lines = (blocks[-1] if blocks else rest).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return Extracted("\n".join(lines[first:]).rstrip(), fenced=bool(blocks))


def fenced(code: str) -> str:
    """An answer that holds the code and nothing else."""
    return f"{FENCE}python\n{code.strip()}\n{FENCE}"


def _after_label(text: str, position: int) -> int:
    """The position after an opening fence's label, white space and newline."""
    for label in _LABELS:
        if text[position : position + len(label)].lower() == label:
            position += len(label)
            break
    while text[position : position + 1] in ("\t", " "):
        position += 1
    return position + text.startswith("\n", position)
