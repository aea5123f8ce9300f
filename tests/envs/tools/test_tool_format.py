"""The format rule (1.2 of the tool-call facts): which whole texts are well formed for which ground truth."""

import pytest

from corrgrpo_envs.tools.blocks import Layout, first_block, without_thought

CALL = '<tool_call>\n{"name": "a", "parameters": {}}\n</tool_call>'
RESPONSE = "<response> Fine. </response>"
THINK = "<think> well </think>"

# (text, for calls, for a response, for both, for neither)
CASES = [
    (f"{THINK}\n{CALL}", 1, 0, 0, 0),
    (f"{THINK}\n{RESPONSE}", 0, 1, 0, 0),
    (f"{THINK}\n{CALL}\n{RESPONSE}", 0, 0, 1, 0),
    (THINK, 0, 0, 0, 1),
    # Any white space between the blocks, or none.
    (f"{THINK}{CALL}", 1, 0, 0, 0),
    (f"{THINK} \t\r\n\n\f\v\u00a0\u2003\x1c\x85{CALL}", 1, 0, 0, 0),
    (f"{THINK}{RESPONSE}", 0, 1, 0, 0),
    (f"{THINK}{CALL}{RESPONSE}", 0, 0, 1, 0),
    (f"{THINK}\u200b{CALL}", 0, 0, 0, 0),  # a zero-width space is no white space
    # Anchored at both ends.
    (f"x{THINK}\n{CALL}", 0, 0, 0, 0),
    (f"{THINK}\n{CALL}x", 0, 0, 0, 0),
    (f"{THINK}\n{RESPONSE}x", 0, 0, 0, 0),
    (f"{THINK} x\n{CALL}", 0, 0, 0, 0),
    (f"{THINK}\n{CALL} x {RESPONSE}", 0, 0, 0, 0),
    # The order of the blocks is fixed.
    (f"{THINK}\n{RESPONSE}\n{CALL}", 0, 0, 0, 0),
    (f"{CALL}\n{THINK}", 0, 0, 0, 0),
    # The newlines just inside the tool_call tags are compulsory, and they are two.
    (f"{THINK}\n<tool_call>{{}}\n</tool_call>", 0, 0, 0, 0),
    (f"{THINK}\n<tool_call>\n{{}}</tool_call>", 0, 0, 0, 0),
    (f"{THINK}\n<tool_call>\n</tool_call>", 0, 0, 0, 0),
    (f"{THINK}\n<tool_call>\n\n</tool_call>", 1, 0, 0, 0),
    (f"{THINK}\n<tool_call>\r\n{{}}\r\n</tool_call>", 0, 0, 0, 0),
    # Nothing is checked inside the blocks.
    (f"{THINK}\n<tool_call>\nno JSON\n\nat all\n</tool_call>", 1, 0, 0, 0),
    (f"{THINK}\n<response></response>", 0, 1, 0, 0),
    # Think tags are not counted.
    (f"<think></think>\n{CALL}", 1, 0, 0, 0),
    (f"{THINK}{THINK}\n{CALL}", 1, 0, 0, 0),
    (f"{THINK} stray </think>\n{CALL}", 1, 0, 0, 0),
    (f"<think> <think> </think>\n{CALL}", 1, 0, 0, 0),
    (f"{THINK}\n{RESPONSE[:-11]}</think></response>", 0, 1, 0, 0),
    (f"{THINK} x {THINK}", 0, 0, 0, 1),
    # An opening and a closing think tag there must be.
    (f"well </think>\n{CALL}", 0, 0, 0, 0),
    (f"</think>\n{CALL}", 0, 0, 0, 0),
    (f"<think> well\n{CALL}", 0, 0, 0, 0),
    (CALL, 0, 0, 0, 0),
    (f"<THINK> well </THINK>\n{CALL}", 0, 0, 0, 0),
    # Tags of a wanted block occur exactly once, wherever.
    (f"{THINK}\n{CALL}\n{CALL}", 0, 0, 0, 0),
    (f"<think> a <tool_call> </think>\n{CALL}", 0, 0, 0, 0),
    (f"<think> a </tool_call> </think>\n{CALL}", 0, 0, 0, 0),
    (f"{THINK}\n{RESPONSE}{RESPONSE}", 0, 0, 0, 0),
    (f"<think> a </response> </think>\n{RESPONSE}", 0, 0, 0, 0),
    (f"{THINK}\n<tool_call>\n<tool_call>\n</tool_call>", 0, 0, 0, 0),
    (f"{THINK}\n</tool_call>\n<tool_call>\n", 0, 0, 0, 0),
    # Tags of a block that is not wanted are not counted.
    (f"<think> a <response> </think>\n{CALL}", 1, 0, 0, 0),
    (f"{THINK}\n<tool_call>\n{RESPONSE}\n</tool_call>", 1, 0, 0, 0),
    (f"<think> a <tool_call> </think>\n{RESPONSE}", 0, 1, 0, 0),
    (f"{THINK}\n<response> {CALL} </response>", 0, 1, 0, 0),
    ("", 0, 0, 0, 0),
    ("<think>", 0, 0, 0, 0),
    ("</think>", 0, 0, 0, 0),
]


def formats(text: str, layout: Layout) -> tuple[int, ...]:
    modes = [(True, False), (False, True), (True, True), (False, False)]
    return tuple(int(layout.holds(text, calls=calls, response=response)) for calls, response in modes)


@pytest.mark.parametrize(("text", "calls", "response", "both", "neither"), CASES)
def test_published_rule(text: str, calls: int, response: int, both: int, neither: int):
    assert formats(text, Layout()) == (calls, response, both, neither)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{THINK}\n{CALL}", (1, 0, 0, 0)),
        (f"{THINK}{CALL}", (0, 0, 0, 0)),
        (f"{THINK}\n\n{CALL}", (0, 0, 0, 0)),
        (f"{THINK} \n{CALL}", (0, 0, 0, 0)),
        (f"{THINK}\n{RESPONSE}", (0, 1, 0, 0)),
        (f"{THINK}{RESPONSE}", (0, 0, 0, 0)),
        (f"{THINK}\n{CALL}\n{RESPONSE}", (0, 0, 1, 0)),
        (f"{THINK}\n{CALL}{RESPONSE}", (0, 0, 0, 0)),
        (THINK, (0, 0, 0, 1)),
    ],
)
def test_separator_newline(text: str, expected: tuple[int, ...]):
    assert formats(text, Layout(separator="newline")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"well </think>\n{CALL}", (1, 0, 0, 0)),
        (f"</think>{CALL}", (1, 0, 0, 0)),
        (f"{THINK}\n{CALL}", (1, 0, 0, 0)),
        (f"well </think>\n{RESPONSE}", (0, 1, 0, 0)),
        ("well </think>", (0, 0, 0, 1)),
        (CALL, (0, 0, 0, 0)),
    ],
)
def test_think_optional(text: str, expected: tuple[int, ...]):
    assert formats(text, Layout(think="optional")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"<think> a <tool_call> b </tool_call> </think>\n{CALL}", (1, 0, 0, 0)),
        (f"<think> a <response> </think>\n{CALL}\n{RESPONSE}", (0, 0, 1, 0)),
        ("<think> a <tool_call>\n\n</tool_call>", (0, 0, 0, 0)),
        (f"{THINK}\n{CALL}{CALL}", (0, 0, 0, 0)),
        # The thought ends at the first closing tag: what follows counts.
        (f"{THINK} <tool_call> </think>\n{CALL}", (0, 0, 0, 0)),
    ],
)
def test_tag_in_thought_ignored(text: str, expected: tuple[int, ...]):
    assert formats(text, Layout(tag_in_thought="ignore")) == expected


@pytest.mark.parametrize(
    ("options", "option", "near"),
    [
        ({"separator": "newlines"}, "separator", "newline"),
        ({"think": "require"}, "think", "required"),
        ({"tag_in_thought": "fails"}, "tag_in_thought", "fail"),
        ({"think": None}, "think", "required"),
        ({"separator": ["any"]}, "separator", "any"),
    ],
)
def test_wrong_options_are_named(options, option, near):
    with pytest.raises(ValueError, match=f"^{option} .*'{near}'"):
        Layout(**options)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("a<tool_call>b</tool_call>c", "b"),
        ("<tool_call>b</tool_call><tool_call>c</tool_call>", "b"),
        ("<tool_call>b<tool_call>c</tool_call>", "b<tool_call>c"),
        ("</tool_call>a<tool_call>b", "b"),  # the only closing tag came earlier: to the end
        ("</tool_call>a<tool_call>b</tool_call>c", "b"),
        ("<tool_call>b", None),
        ("b</tool_call>", None),
        ("", None),
    ],
)
def test_first_block(text: str, inside: str | None):
    assert first_block(text, "<tool_call>", "</tool_call>") == inside


def test_thought_is_divided_from_the_rest():
    assert without_thought("<think> a </think> b </think>") == ("<think> a </think>", " b </think>")
    assert without_thought("a </think> b") == ("", "a </think> b")
    assert without_thought("<think> a") == ("", "<think> a")
