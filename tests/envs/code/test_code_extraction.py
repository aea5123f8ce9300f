"""Finding the program in an answer: the published cases, an independent regular expression, hostile texts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_envs.code.extraction import Extracted, extract, fenced, fenced_blocks

CODE = "class Solution:\n    def f(self):\n        return 1"
HELPER = "def helper():\n" + "    x = 1\n" * 40
# What the published rule says, in one expression; it is quadratic on long white space.
RULE = re.compile(r"```(?:python|py)?[ \t]*\n?(.*?)```", re.DOTALL | re.IGNORECASE)


def by_rule(answer):
    """The rule once more, from its description."""
    answer = answer.strip()
    blocks = RULE.findall(answer)
    if blocks:
        best = blocks[0]
        for block in blocks[1:]:
            if ("class Solution" in block, len(block)) > ("class Solution" in best, len(best)):
                best = block
        return Extracted(best.strip(), True)
    rest = answer.split("</think>")[-1]
    return Extracted((rest[rest.index("class Solution") :] if "class Solution" in rest else rest).strip(), False)


@pytest.mark.parametrize(
    ("answer", "code", "is_fenced"),
    [
        (f"```python\n{CODE}\n```", CODE, True),
        (f"```py\n{CODE}\n```", CODE, True),
        (f"```\n{CODE}\n```", CODE, True),
        (f"```PyThOn  \t\n{CODE}\n```", CODE, True),
        (f"Here:\n```python\n{HELPER}```\nand\n```python\n{CODE}\n```\nDone.", CODE, True),
        (f"```python\n{CODE}\n```\n```python\n{CODE}\n    # longer\n```", CODE + "\n    # longer", True),
        ("```python\na = 1\n```\n```python\nb = 2\n```", "a = 1", True),  # among equals the first
        (f"<think>hm ```python\n{CODE}\n``` </think> no", CODE, True),  # thoughts are searched too
        (f"<think>class Solution: 1</think>\nSure!\n{CODE}", CODE, False),
        (f"import math\nSome prose, then\n{CODE}", CODE, False),
        (f"```python\n{CODE}", CODE, False),  # no closing fence
        (f"```python\n{CODE}\nThat is all.", f"{CODE}\nThat is all.", False),
        (f"```python3\n{CODE}\n```", f"3\n{CODE}", True),
        (f"```json\n{CODE}\n```", f"json\n{CODE}", True),
        ("just prose", "just prose", False),
        ("", "", False),
        (" \n\t ", "", False),
        ("</think>", "", False),
        ("``````", "", True),
        ("```python```", "", True),
    ],
)
def test_published_cases(answer, code, is_fenced):
    assert extract(answer) == Extracted(code, is_fenced)
    assert by_rule(answer) == Extracted(code, is_fenced)


PIECES = ["```", "`", "python", "py", "Py", " ", "\t", "\n", "class Solution", "</think>", "x", "3", "\x00", "\ud800"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@settings(max_examples=500, deadline=None)
def test_equals_the_rule(answer):
    assert extract(answer) == by_rule(answer)


@given(st.text(alphabet=st.characters(), max_size=200))
@settings(max_examples=200, deadline=None)
def test_never_raises(answer):
    found = extract(answer)
    assert isinstance(found.code, str)
    assert len(found.code) <= len(answer)


@given(st.text(alphabet=st.characters(exclude_characters="`"), max_size=100))
@settings(deadline=None)
def test_fenced_code_is_found_again(code):
    if code.strip():
        assert extract(fenced(code)) == Extracted(code.strip(), True)


@pytest.mark.parametrize(
    "text",
    [
        "```" + " " * 300_000,
        "```" + "\t \n" * 100_000,
        "```py" * 80_000,
        "`" * 300_001,
        "class Solution" * 30_000,
        "</think>" * 40_000,
        "```\nclass Solution```" * 15_000,
        "``` ```" * 50_000,
    ],
    ids=lambda text: text[:12],
)
def test_long_texts_take_no_more_than_their_length(text):
    # The rule as a regular expression would take hours on the first of these: the suite's time limit is the assertion.
    assert len(extract(text).code) <= len(text)


def test_blocks_in_order():
    assert list(fenced_blocks("a```python\nb```c```d```e```")) == ["b", "d"]
