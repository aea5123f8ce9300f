"""How calls are read from texts and checked against schemas; no AgentDojo needed."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_envs.agents.calls import ToolCall, literal_list
from corrgrpo_envs.agents.formats import FORMATS, action_text, call_format
from corrgrpo_envs.agents.toolbox import Toolbox
from corrgrpo_envs.tools.calls import CallError

SEND = {
    "title": "Input schema for `send`",
    "type": "object",
    "required": ["to", "amount"],
    "properties": {
        "to": {"type": "string", "title": "To", "description": "who"},
        "amount": {"type": "number", "title": "Amount", "description": "how much"},
        "title": {"type": "string", "title": "Title", "description": "a parameter that is called title", "default": ""},
        "copies": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}], "default": None},
        "mode": {"$ref": "#/$defs/Mode", "description": "how"},
        "days": {"type": "integer"},
        "loud": {"type": "boolean"},
        "more": {"type": "object"},
    },
    "$defs": {"Mode": {"enum": ["r", "rw"], "title": "Mode", "type": "string"}},
}
TOOLS = Toolbox([("send", "Send it.", SEND), ("look", "Look.", {"type": "object", "properties": {}})])
GOOD = {"to": "a", "amount": 1.5}


def hermes(name="send", arguments=GOOD, **more):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments, **more})}\n</tool_call>"


def parsed(text, name="hermes"):
    return call_format(name).parse(text, TOOLS)


# ---- Hermes, as published ----


@pytest.mark.parametrize(
    "text",
    [
        hermes(),
        "I will do it. " + hermes() + " There.",
        "<tool_call>" + json.dumps({"name": "send", "arguments": GOOD}) + "</tool_call>",
        "<tool_call>```json\n" + json.dumps({"name": "send", "arguments": GOOD}) + "\n```</tool_call>",
        "<tool_call>{'name': 'send', 'arguments': {'to': 'a', 'amount': 1.5}}</tool_call>",  # Python literal
        hermes(arguments=json.dumps(GOOD)),  # arguments as JSON text
        hermes(arguments="{'to': 'a', 'amount': 1.5}"),
        "<tool_call>[" + json.dumps({"name": "send", "arguments": GOOD}) + "]</tool_call>",
    ],
)
def test_a_well_formed_call(text):
    turn = parsed(text)
    assert turn.problem == ""
    assert turn.calls == (ToolCall("send", GOOD),)


def test_control_characters_in_strings_are_read():
    turn = parsed('<tool_call>{"name": "look", "arguments": {"x": "a\n\tb\x01"}}</tool_call>')
    assert turn.calls[0].arguments == {"x": "a\n\tb\x01"}
    assert not turn.problem


@pytest.mark.parametrize("text", ["", "Hello.", '{"name": "send"}', "tool_call", "<tool_ call>", "\ud800\x00"])
def test_a_text_without_tags_is_an_answer(text):
    assert parsed(text) == parsed("")
    assert parsed(text).problem == ""


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("<tool_call>" + json.dumps({"name": "send", "arguments": GOOD}), 0),  # cut off
        ('<tool_call>{"name": "send", "argum', 0),
        ("</tool_call>", 0),
        ("</tool_call><tool_call>", 0),
        ("<tool_call></tool_call>", 0),
        ("<tool_call>send it</tool_call>", 0),
        ("<tool_call>[]</tool_call>", 0),
        ("<tool_call>3</tool_call>", 0),
        ('<tool_call>{"arguments": {}}</tool_call>', 0),
        ('<tool_call>{"name": "", "arguments": {}}</tool_call>', 0),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', 0),
        ('<tool_call>{"name": "send"}</tool_call>', 0),
        ('<tool_call>{"name": "send", "parameters": {}}</tool_call>', 0),
        ('<tool_call>{"name": "send", "arguments": []}</tool_call>', 0),
        ('<tool_call>{"name": "send", "arguments": "none"}</tool_call>', 0),
        ("<tool_call>" + hermes() + "</tool_call>", 1),  # tags twice
        (hermes() + "<tool_call>", 1),
        (hermes() + "</tool_call>", 1),
        (hermes() + "<tool_call>x</tool_call>", 1),
        (hermes().replace("\n</tool", json.dumps({"name": "look", "arguments": {}}) + "</tool"), 2),  # two in one
        ('<tool_call>{"name": "look", "arguments": {"x": ' + "[" * 200 + "]" * 200 + "}}</tool_call>", 0),
        ("<tool_call>(" + "-" * 3000 + "1)</tool_call>", 0),
        ('<tool_call>{"name": "look", "arguments": {"x": ' + "9" * 5000 + "}}</tool_call>", 0),
        ("<tool_call>{'name': 'look', 'arguments': {'x': {1, 2}}}</tool_call>", 0),
    ],
)
def test_a_broken_format(text, calls):
    turn = parsed(text)
    assert len(turn.calls) == calls
    assert turn.problem
    assert "\n" not in turn.problem


def test_several_calls_keep_the_format():
    turn = parsed(hermes() + "\n" + hermes("look", {}))
    assert [call.name for call in turn.calls] == ["send", "look"]
    assert not turn.problem


# ---- schemas ----


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("sned", GOOD, "no tool 'sned'. Did you mean 'send'"),
        ("send", {"to": "a"}, "lacks 'amount'"),
        ("send", {**GOOD, "tot": 1}, "no parameter 'tot'. Did you mean 'to'"),
        ("send", {**GOOD, "to": 1}, "'to'"),
        ("send", {**GOOD, "to": None}, "'to'"),
        ("send", {**GOOD, "amount": True}, "'amount'"),
        ("send", {**GOOD, "amount": "1"}, "'amount'"),
        ("send", {**GOOD, "days": 1.0}, "'days'"),
        ("send", {**GOOD, "days": False}, "'days'"),
        ("send", {**GOOD, "loud": 1}, "'loud'"),
        ("send", {**GOOD, "copies": "a"}, "'copies'"),
        ("send", {**GOOD, "more": []}, "'more'"),
        ("send", {**GOOD, "mode": "x"}, "'mode'"),
    ],
)
def test_calls_that_do_not_fit(name, arguments, complaint):
    with pytest.raises(CallError) as error:
        TOOLS.checked(ToolCall(name, arguments))
    assert complaint in str(error.value)


def test_null_optional_arguments_are_dropped():
    more = {"copies": None, "days": None, "mode": "rw", "loud": True, "more": {"x": 1}, "title": "t"}
    call = TOOLS.checked(ToolCall("send", {**GOOD, "amount": 2, **more}))
    assert call.arguments == {"to": "a", "amount": 2, "mode": "rw", "loud": True, "more": {"x": 1}, "title": "t"}


def test_schemas_full_and_flat():
    full = TOOLS.schemas[0]["function"]["parameters"]
    assert full["required"] == ["to", "amount"]
    assert full["properties"]["copies"] == SEND["properties"]["copies"]
    assert full["properties"]["mode"] == {"enum": ["r", "rw"], "type": "string", "description": "how"}
    assert full["properties"]["title"]["description"] == "a parameter that is called title"
    assert "title" not in full["properties"]["to"]
    flat = TOOLS.flat_schemas[0]["function"]["parameters"]
    assert flat["properties"]["copies"] == {"type": "array", "description": ""}
    assert flat["properties"]["mode"] == {"type": "string", "description": "how", "enum": ["r", "rw"]}
    assert flat["required"] == ["to", "amount"]
    assert TOOLS.schemas[1]["function"] == {
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }


# ---- other formats ----

WRITTEN = {
    "qwen3_coder": (
        "<tool_call>\n<function=send>\n<parameter=to>\na\n</parameter>\n<parameter=amount>\n1.5\n</parameter>\n"
        "</function>\n</tool_call>"
    ),
    "llama3_json": '{"name": "send", "parameters": {"to": "a", "amount": 1.5}}',
    "json": '{"name": "send", "arguments": {"to": "a", "amount": 1.5}}',
}


@pytest.mark.parametrize("name", WRITTEN)
def test_other_formats(name):
    turn = parsed(WRITTEN[name], name)
    assert (turn.calls, turn.problem) == ((ToolCall("send", GOOD),), "")
    assert call_format(name).render("", [ToolCall("send", GOOD)]) == WRITTEN[name]
    assert parsed("Here you are.", name) == parsed("", name)


def test_qwen3_coder_values_get_the_parameters_types():
    text = (
        "<tool_call><function=send><parameter=to>12</parameter><parameter=days>3</parameter>"
        "<parameter=loud>True</parameter><parameter=copies>['a']</parameter><parameter=mode>null</parameter>"
        '<parameter=more>{"x": [1]}</parameter><parameter=amount>much</parameter></function></tool_call>'
    )
    assert parsed(text, "qwen3_coder").calls[0].arguments == {
        "to": "12",
        "days": 3,
        "loud": True,
        "copies": ["a"],
        "mode": None,
        "more": {"x": [1]},
        "amount": "much",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen3_coder", "<tool_call><function=send></tool_call>"),
        ("qwen3_coder", "<tool_call><function=send><parameter=to>a</function></tool_call>"),
        ("qwen3_coder", "<tool_call><function=send>to=a</function></tool_call>"),
        ("qwen3_coder", hermes()),
        ("qwen3_coder", WRITTEN["qwen3_coder"].removesuffix("</tool_call>")),
        ("qwen3_coder", WRITTEN["qwen3_coder"].replace("amount", "to")),
        ("llama3_json", '{"name": "send", "arguments": {}}'),
        ("llama3_json", '{"name": "send", "parameters": '),
        ("llama3_json", "<|python_tag|>send(to=1)"),
        ("json", '[{"name": "send", "arguments": {}}, 3]'),
        ("json", '{"name": "send", "arguments": {"to": '),
    ],
)
def test_other_formats_broken(name, text):
    assert parsed(text, name).problem


def test_llama3_tag_and_semicolons_and_json_lists_and_fences():
    two = WRITTEN["llama3_json"] + "; " + WRITTEN["llama3_json"]
    assert len(parsed("<|python_tag|>" + two, "llama3_json").calls) == 2
    assert len(parsed(f"[{WRITTEN['json']}, {WRITTEN['json']}]", "json").calls) == 2
    assert len(parsed(f"```json\n{WRITTEN['json']}\n```", "json").calls) == 1
    assert parsed('{"answer": 42}', "json").problem == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)
tags = st.sampled_from(["<tool_call>", "</tool_call>", "</parameter>", "\n", '"', "\\", "```", "x"])


@settings(max_examples=100, deadline=None)
@given(value=json_values | st.lists(tags).map("".join), name=st.sampled_from(["hermes", "llama3_json", "json"]))
def test_what_is_rendered_is_read_back(value, name):
    calls = (ToolCall("send", {"to": value}), ToolCall("look", {}))
    turn = parsed(call_format(name).render("", calls), name)
    assert (turn.calls, turn.problem) == (calls, "")


def test_what_qwen3_coder_can_not_write_is_refused():
    for text in ("</parameter>", "<tool_call>", "null"):
        with pytest.raises(ValueError, match="qwen3_coder"):
            call_format("qwen3_coder").render("", [ToolCall("send", {"to": text})])
    forged = "send></function></tool_call><tool_call><function=look"
    for call in (ToolCall(forged, {}), ToolCall("send", {"to>a</parameter><parameter=mode": "r"})):
        with pytest.raises(ValueError, match="can't write the name"):
            call_format("qwen3_coder").render("", [call])
    spaced = ToolCall("send", {"to": "\n\n a \n"})
    assert parsed(call_format("qwen3_coder").render("Hm.", [spaced]), "qwen3_coder").calls == (spaced,)


PIECES = [
    "<tool_call>",
    "</tool_call>",
    "{",
    "}",
    "[",
    "]",
    '"name"',
    ":",
    '"',
    "'",
    "\\",
    "a",
    "\ud800",
    "\n",
    "-",
    "(",
]
PIECES += ["<function=", "<parameter=", "</parameter>", "</function>", ">", "<|python_tag|>", "```", "null", ","]


@settings(max_examples=200, deadline=None)
@given(text=st.lists(st.sampled_from(PIECES), max_size=60).map("".join), name=st.sampled_from(sorted(FORMATS)))
def test_no_text_raises(text, name):
    turn = parsed(text, name)
    for call in turn.calls:
        assert isinstance(call.name, str)
        assert isinstance(call.arguments, dict)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_million_characters_are_read_in_linear_time(name):
    start = time.process_time()
    for piece in (*PIECES, "<tool_call></tool_call>", "<tool_call>{", '{"a":', "[1,", '{"name": "', "<parameter=a>b"):
        for head in ("", "<tool_call>", "<tool_call><function=send>", '{"name": '):
            parsed(head + piece * (250_000 // len(piece)) + "</tool_call>", name)
    # 120 texts of a quarter of a million characters; quadratic time would be hours.
    assert time.process_time() - start < 60


# ---- OpenAI messages ----


def test_openai_messages_become_actions():
    call = {"id": "1", "type": "function", "function": {"name": "send", "arguments": json.dumps(GOOD)}}
    text = action_text({"role": "assistant", "content": None, "tool_calls": [call]})
    assert parsed(text).calls == (ToolCall("send", GOOD),)
    text = action_text({"content": "On it.", "tool_calls": [call, call]})
    assert text.startswith("On it.\n<tool_call>")
    assert len(parsed(text).calls) == 2
    assert action_text({"content": "Bye."}) == "Bye."
    assert action_text({"content": [{"type": "text", "text": "Bye."}], "tool_calls": None}) == "Bye."
    for name in FORMATS:
        assert parsed(action_text({"content": "x", "tool_calls": [call]}, name), name).calls == (
            ToolCall("send", GOOD),
        )
    broken = {"function": {"name": "send", "arguments": '{"to": '}}
    with pytest.raises(CallError, match="arguments"):
        TOOLS.checked(parsed(action_text({"tool_calls": [broken]})).calls[0])


@pytest.mark.parametrize("arguments", [[], 0, False, "[]", "0", "null", '{"to"', "x"])
def test_openai_arguments_that_are_no_object_are_refused_by_the_tools(arguments):
    message = {"tool_calls": [{"function": {"name": "look", "arguments": arguments}}]}
    for name in FORMATS:
        (call,) = parsed(action_text(message, name), name).calls
        with pytest.raises(CallError, match="no parameter 'arguments'"):
            TOOLS.checked(call)


@pytest.mark.parametrize("arguments", [None, "", {}, "{}"])
def test_openai_calls_without_arguments(arguments):
    message = {"tool_calls": [{"function": {"name": "look", "arguments": arguments}}]}
    for name in FORMATS:
        assert parsed(action_text(message, name), name).calls == (ToolCall("look", {}),)


def test_wrong_openai_messages_and_formats():
    nested: dict[str, object] = {}
    for _ in range(100_000):
        nested = {"x": nested}
    for arguments in ({"x": {1}}, nested):
        with pytest.raises(ValueError, match="can't be written as JSON"):
            action_text({"tool_calls": [{"function": {"name": "look", "arguments": arguments}}]})
    with pytest.raises(ValueError, match="tool_calls must be a list"):
        action_text({"tool_calls": 3})
    with pytest.raises(ValueError, match="a message must be an object"):
        action_text(["x"])
    with pytest.raises(ValueError, match="'function' with a 'name'"):
        action_text({"tool_calls": [{"name": "send"}]})
    with pytest.raises(ValueError, match="content"):
        action_text({"content": 3})
    with pytest.raises(ValueError, match=r"call_format 'hermess' is unknown; .*Did you mean 'hermes'"):
        call_format("hermess")


def test_texts_that_spell_lists():
    assert literal_list("['a', 1]") == ["a", 1]
    assert literal_list(' ["a"]') == ["a"]
    for text in ("a", "[", "[1, 2", "(1, 2)", "[{1}]", "[x]", "[" * 150 + "]" * 150, "[" + "-" * 4000 + "1]"):
        assert literal_list(text) is None
