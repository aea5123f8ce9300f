"""The ground truth of a dialogue: the text of a right answer and the calls in it."""

from dataclasses import dataclass

from corrgrpo_envs.tools.blocks import (
    CLOSE_CALL,
    CLOSE_RESPONSE,
    OPEN_CALL,
    OPEN_RESPONSE,
    first_block,
    without_thought,
)
from corrgrpo_envs.tools.calls import Call, CallError, parse_calls

_TAGS = (OPEN_CALL, CLOSE_CALL, OPEN_RESPONSE, CLOSE_RESPONSE)


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """A right answer, parsed once.

    Attributes:
        text: the answer, as written in the data set.
        calls: the calls that it makes, or None if it makes none.
        response: whether it responds to the user.
    """

    text: str
    calls: tuple[Call, ...] | None
    response: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools called, in order."""
        return tuple(call.name for call in self.calls or ())

    def answer(self) -> str:
        """The text with the tags that its thought names written as words, so that it is right by every rule.

        A thought that quotes the tool_call tag spoils an answer under the published rules, and such thoughts
        occur in published data. All other texts are returned as they are.
        """
        thought, rest = without_thought(self.text)
        for tag in _TAGS:
            thought = thought.replace(tag, tag.strip("</>"))
        return thought + rest


def parse_truth(text: str) -> GroundTruth:
    """Parse a ground truth: a think block, then a tool_call block, a response block, or both.

    What the answer consists of is read from what follows the thought. (The published code looks for the tags
    in the whole text, so that a thought that merely names a tag changes how answers are judged, or stops the
    run.)

    Raises:
        ValueError: if the text has neither thought nor block, anything outside its blocks, or a call that
            cannot be read; one line that says which.
    """
    text = text.strip()
    thought, rest = without_thought(text)
    rest = rest.strip()
    calls: tuple[Call, ...] | None = None
    response = False
    if rest.startswith(OPEN_CALL):
        block = first_block(rest, OPEN_CALL, CLOSE_CALL)
        if block is None:
            raise ValueError(f"the ground truth's {OPEN_CALL} block is not closed by {CLOSE_CALL}")
        rest = rest[len(OPEN_CALL) + len(block) + len(CLOSE_CALL) :].strip()
        calls = _calls(block)
    if rest.startswith(OPEN_RESPONSE):
        if not rest.endswith(CLOSE_RESPONSE):
            raise ValueError(f"the ground truth's {OPEN_RESPONSE} block does not end with {CLOSE_RESPONSE}")
        rest, response = "", True
    if rest or not (thought or calls or response):
        raise ValueError(
            f"the ground truth must be a think block and then a {OPEN_CALL} block, a {OPEN_RESPONSE} block "
            f"or both; outside them it has {rest[:60]!r}"
        )
    return GroundTruth(text, calls, response)


def _calls(block: str) -> tuple[Call, ...]:
    try:
        calls = parse_calls(block)
    except CallError as error:
        raise ValueError(f"{error} (in the ground truth)") from None
    for call in calls:
        if not isinstance(call.name, str):
            raise ValueError(f"the ground truth calls a tool whose name is not text: {call.name!r}")
    return calls
