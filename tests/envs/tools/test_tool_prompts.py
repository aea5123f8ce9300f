"""Prompt styles and templates."""

import copy
import json
import pickle

import pytest

from corrgrpo_envs.tools.dialogues import history_text, tool_of
from corrgrpo_envs.tools.prompts import compact, details, published, read_template, signatures
from corrgrpo_envs.tools.upstream import offered_tools

TOOLS = tuple(
    tool_of(data)
    for data in (
        {
            "name": "book_table",
            "description": "Book a table.",
            "parameters": {
                "restaurant": {"type": "string", "description": "Its name."},
                "guests": {"type": "integer", "description": "How many.", "default": 2},
            },
        },
        {
            "name": "order $5 {x}",
            "description": "Order dishes.",
            "parameters": {"items": {"type": "array", "description": "dish and count of each"}},
        },
        {"name": "ping", "description": "Say é.", "parameters": {}},
    )
)
HISTORY = history_text([("user", "Hi"), ("tool_call", '{"name": "ping", "parameters": {}}'), ("obs", "[]")])


def test_history_in_tags():
    assert HISTORY == (
        '<user> Hi </user>\n<tool_call>\n{"name": "ping", "parameters": {}}\n</tool_call>\n<obs> [] </obs>'
    )


def test_signatures():
    assert signatures(TOOLS) == (
        "book_table(restaurant, guests=2)\norder $5 {x}(items: array (dish and count of each))\nping()"
    )


def test_compact_states_form_tools_and_dialogue():
    system, user = compact(TOOLS, HISTORY)
    assert (system["role"], user) == ("system", {"role": "user", "content": HISTORY})
    for part in ("<think>", "</think>\n<tool_call>\n{", "}\n</tool_call>", "<response>", "</response>"):
        assert part in system["content"]
    assert system["content"].endswith(signatures(TOOLS))
    # The fixed text is short: at most 90 tokens of some four characters.
    assert len(system["content"]) - len(signatures(TOOLS)) < 300
    example = system["content"].split("<tool_call>\n")[1].split("\n</tool_call>")[0]
    assert list(json.loads(example)) == ["name", "parameters"]


def test_compact_gives_the_words_of_a_lone_user_turn():
    assert compact(TOOLS, history_text([("user", "Hi <b>")]))[1]["content"] == "Hi <b>"
    for turns in ([("user", "Hi"), ("response", "Yes?"), ("user", "Ping!")], [("obs", "Hi")]):
        assert compact(TOOLS, history_text(turns))[1]["content"] == history_text(turns)


def test_published_layout():
    system, user = published(TOOLS, HISTORY)
    text = system["content"]
    assert "1. Name: book_table\nDescription: Book a table.\nParameters: {" in text
    assert "3. Name: ping\nDescription: Say é.\nParameters: {}" in text
    assert "```plaintext\n<think>" in text
    heading, rest = user["content"].split("\n", 1)
    assert heading.startswith("**")
    assert rest == HISTORY
    # The list can be read back.
    assert offered_tools(text) == TOOLS


def test_reading_lists_of_tools():
    assert offered_tools("no list") == ()
    assert offered_tools("Description: of nothing\nmore\nParameters: {}") == ()
    assert offered_tools("1. Name: a\nDescription: b\nParameters: not JSON") == ()
    two_lines = offered_tools("1. Name: a\nDescription: b\nc\nParameters: {}\n\nMore.")
    assert two_lines == (tool_of({"name": "a", "description": "b\nc", "parameters": {}}),)
    assert offered_tools(details(TOOLS)) == TOOLS


def test_template_of_two_messages(tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text('[system]\nTools: $tools\nForm {"name": 1}, price $$5\n[user]\nSo far: ${history}\n')
    prompt = read_template(str(file))
    expected = (
        {"role": "system", "content": f'Tools: {signatures(TOOLS)}\nForm {{"name": 1}}, price $5'},
        {"role": "user", "content": f"So far: {HISTORY}"},
    )
    assert prompt(TOOLS, HISTORY) == expected
    assert pickle.loads(pickle.dumps(prompt))(TOOLS, HISTORY) == expected
    assert copy.deepcopy(prompt)(TOOLS, HISTORY) == expected


def test_template_of_one_message(tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("$tool_details\n\n$history\n[user] is no heading here")
    (message,) = read_template(str(file))(TOOLS, HISTORY)
    assert message["role"] == "user"
    assert message["content"] == f"{details(TOOLS)}\n\n{HISTORY}\n[user] is no heading here"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$tool $history", "placeholder 'tool' is unknown.*Did you mean 'tools'"),
        ("$history", r"must contain \$history, and \$tools or \$tool_details"),
        ("$tools", r"must contain \$history"),
        ("$tools $history 5$", r"write '\$\$'"),
        ("[system]\n$tools $history", r"needs one line \[user\]"),
    ],
)
def test_wrong_templates(tmp_path, text, message):
    file = tmp_path / "prompt.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_template(str(file))


def test_missing_template():
    with pytest.raises(ValueError, match=r"prompt_template 'nowhere.txt' cannot be read"):
        read_template("nowhere.txt")
