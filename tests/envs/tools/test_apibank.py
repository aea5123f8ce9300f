"""API-Bank: the tolerant parser, static matching, faulty rows, and the published data."""

import json
import math
from pathlib import Path

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corrgrpo_envs  # noqa: F401
from corrgrpo_envs.errors import DatasetError
from corrgrpo_envs.tools.apibank_matching import RULES, VALUES, match, unnested
from corrgrpo_envs.tools.apibank_metrics import overall, summary
from corrgrpo_envs.tools.apibank_parsing import ApiCall, read_calls
from corrgrpo_envs.tools.apibank_rows import catalogue, faulty_rows, items

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "api_bank"
TRUTH = ApiCall("Book", {"who": "Ann", "seats": "2", "list": "['a', 'b']"})
RIGHT = '{"name": "Book", "parameters": {"who": "Ann", "seats": "2", "list": ["a", "b"]}}'


def block(*lines):
    return "<think> t </think>\n<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


def judged(text, rule="single", values="unnested", truth=TRUTH):
    return match(text, truth, RULES[rule], VALUES[values])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (block('{"name": "A", "parameters": {}}', '{"name": "B", "parameters": {}}'), "AB"),
        (block('{"name": "A", "arguments": {}}{"name": "B",\n "parameters": {}}'), "AB"),
        (block("x {broken", '{"name": "B", "parameters": {}}'), "B"),
        (block('{"name": "A"}', '{"name": 3, "parameters": {}}', '{"name": "B", "parameters": []}'), ""),
        (
            '<tool_call>{"name": "A", "parameters": {}}</tool_call> and ' + block('{"name": "B", "parameters": {}}'),
            "AB",
        ),
        ('<tool_call>{"name": "A", "parameters": {}}', "A"),
        ('{"name": "A", "parameters": {}}', ""),
        ("API-Request: [A(x='1', y=2)]", "A"),
        ("see [1] and [A(x='f(1)]', y=[1, {'k': None}]), B()]", "AB"),
        ("[A(x=...)]", "A"),
        ("[A('positional')]", ""),
        ("[A(**x)] [a.b(c='1')] [A(x={1, 2})] [A(x=b'1')] [A(x=1j)]", ""),
        (block("nothing") + " [A(x='1')]", "A"),
        ("", ""),
    ],
)
def test_reading_calls(text, names):
    assert "".join(call.name for call in read_calls(text)) == names


def test_the_bracketed_form_keeps_values():
    (call,) = read_calls("[Find(text='it\\'s', rest=..., n=2, items=['a'])]")
    assert call.parameters == {"text": "it's", "rest": "...", "n": 2, "items": ["a"]}


def test_the_bracketed_form_becomes_json():
    (call,) = read_calls("[Find(where={'a': ([1],), 2: 'b'}, pair=(1, 2))]")
    assert call.parameters == {"where": {"a": [[1]], "2": "b"}, "pair": [1, 2]}
    truth = ApiCall("Find", {"where": '{"a": [["x"]]}'})
    for normal in VALUES.values():
        assert match("[Find(where={'a': (['x'],)})]", truth, RULES["single"], normal).correct
        assert not match("[Find(where={'a': (['y'],)})]", truth, RULES["single"], normal).correct
    assert read_calls(f"[Find(x={'[' * 150}{']' * 150})]") == ()


def test_values():
    assert unnested("['a', 'b']") == ["a", "b"] == unnested('["a", "b"]')
    assert unnested("[{'k': '{\"v\": 1}'}]") == [{"k": {"v": 1}}]
    assert unnested(True) == "True"
    for text in ("[a]", "{1, 2}", "'x'", "[1", "x", "", "(1, 2)"):
        assert unnested(text) == text
    deep = "[" * 200 + "]" * 200
    assert unnested(deep) == deep


@pytest.mark.parametrize("normal", VALUES.values(), ids=VALUES)
def test_texts_in_texts_nest_no_deeper_than_other_values(normal):
    text = "x"
    for _ in range(12):  # 1,080 levels in 10 kB
        text = "[" * 90 + json.dumps(text) + "]" * 90
    value, levels = normal(text), 0
    while isinstance(value, list):
        (value,), levels = value, levels + 1
    assert levels == 90  # the next text would go beyond 100
    assert value.startswith("[[[")
    call = json.dumps({"name": TRUTH.name, "parameters": {"who": text}})
    found = match(block(call), ApiCall(TRUTH.name, {"who": text}), RULES["single"], normal)
    assert found.correct


def test_rules():
    one, other = RIGHT, RIGHT.replace("Ann", "Bob")
    strict = json.dumps({"name": TRUTH.name, "parameters": TRUTH.parameters})
    bare = json.dumps(TRUTH.parameters)
    table = {  # answer: right as single, first, toolrl
        block(one): (True, True, False),  # ToolRL compares texts with texts: the list is none
        block(strict): (True, True, True),
        block(strict, other): (False, True, True),
        block(other, strict): (False, False, True),
        block(other) + block(strict): (False, False, True),
        block(strict) + block(other): (False, True, False),
        block("x", strict): (True, True, True),
        block(bare): (False, False, True),
        block(strict.replace('"2"', "2")): (False, False, False),
        "no call": (False, False, False),
    }
    for text, expected in table.items():
        assert tuple(judged(text, rule).correct for rule in ("single", "first", "toolrl")) == expected, text


def test_numbers_count_as_texts_on_request():
    text = block(RIGHT.replace('"2"', "2"))
    assert not judged(text).correct
    assert judged(text, values="text").correct
    assert judged(block(RIGHT), values="text").correct
    huge = ApiCall("A", {"n": "1"})
    assert not judged(
        block('{"name": "A", "parameters": {"n": ' + "1" * 4000 + "}}"), values="text", truth=huge
    ).correct


def test_fields_of_the_first_call():
    found = judged(block('{"name": "Book", "parameters": {"who": "Ann", "seats": "3", "extra": 1}}'))
    assert (found.name, found.parameter_names, found.parameter_values) == (1.0, 2 / 4, 1 / 3)
    found = judged(block('{"name": "Other", "parameters": {"who": "Ann"}}', RIGHT))
    assert (found.name, found.parameter_names, found.parameter_values, found.calls) == (0.0, 0.0, 0.0, 2)
    empty = judged(block('{"name": "A", "parameters": {}}'), truth=ApiCall("A", {}))
    assert (empty.correct, empty.parameter_names, empty.parameter_values) == (True, 1.0, 1.0)


def test_statuses():
    env = gym.make("corrgrpo/APIBank-v0")
    base = env.unwrapped
    right = '{"name": "PlantCare", "parameters": {"plant": "fern"}}'
    for text, status in [
        (block(right), "ok"),
        (right, "no_call"),
        (block(right, right), "several_calls"),
        (block(right.replace("PlantCare", "Plant")), "wrong_tool"),
        (block(right.replace("fern", "Fern")), "wrong_parameters"),
    ]:
        env.reset(options={"task_id": "level-1-5"})
        _, reward, terminated, _, info = env.step(text)
        assert (info["status"], reward, terminated) == (status, float(status == "ok"), True)
    env.reset(options={"task_id": "level-1-5"})
    assert base.reference() == ("<think> One call does it. </think>\n<tool_call>\n" + right + "\n</tool_call>",)


@pytest.mark.parametrize("style", ["published", "compact"])
def test_built_in_references_are_right_by_every_rule(style):
    for matching in RULES:
        env = gym.make("corrgrpo/APIBank-v0", matching=matching, prompt_style=style)
        base = env.unwrapped
        assert {task.data.level for task in base.tasks} == {1, 2, 3}
        for task in base.tasks:
            obs, _ = env.reset(options={"task_id": task.id})
            assert all(tool.name in obs["messages"][0]["content"] for tool in task.data.tools)
            info = env.step(base.reference()[0])[4]
            assert info["status"] == "ok"
            assert set(info["reward_components"].values()) == {1.0}


def test_options():
    for options, message in [
        ({"levels": [4]}, "levels 4 is unknown; allowed: '1', '2', '3'"),
        ({"levels": []}, "levels must name at least one"),
        ({"matching": "singel"}, "matching 'singel' is unknown; .*Did you mean 'single'"),
        ({"values": "txt"}, "values 'txt' is unknown"),
        ({"faulty": "hide"}, "faulty 'hide' is unknown"),
        ({"prompt_template": 3}, "prompt_template must be a path"),
    ]:
        with pytest.raises(ValueError, match=message):
            gym.make("corrgrpo/APIBank-v0", **options)
    assert len(gym.make("corrgrpo/APIBank-v0", levels=2).unwrapped.tasks) == 5
    with pytest.raises(ValueError, match="split 'train' of data set 'builtin' is empty"):
        gym.make("corrgrpo/APIBank-v0", split="train").reset()


# ---- published layout ----

SYSTEM = """**Tools**
1. Name: Book
Description: Book seats.
Parameters: {'who': {'type': 'str', 'description': "a guest's name"}}
2. Cancel: Cancel a booking: for good.
Parameters: {"id": {"type": "str", "description": "number"}}

**Steps**
1. **Think:** well
"""


def published(tmp_path, *rows, name="level-2-api_processed.json"):
    path = tmp_path / name
    path.write_text(json.dumps(rows))
    return str(path)


def row(answer, **fields):
    return {"system": SYSTEM, "user": "**History**\n<user>hi</user>", "answer": answer, **fields}


def test_catalogues_of_both_kinds():
    book, cancel = catalogue(SYSTEM)
    assert (book.name, book.description, list(book.parameters)) == ("Book", "Book seats.", ["who"])
    assert (cancel.name, cancel.description, list(cancel.parameters)) == (
        "Cancel",
        "Cancel a booking: for good.",
        ["id"],
    )


def test_published_rows_and_faults(tmp_path):
    path = published(
        tmp_path,
        row({"name": "Book", "parameters": {"who": "Ann"}}),
        row([{"name": "Cancel", "parameters": {"id": '1", count="'}}]),
        row({"name": "Boook", "parameters": {"who": "Ann"}}),
        row(json.dumps([{"name": "Book", "parameters": {"who": ""}}]), level=3),
    )
    assert faulty_rows(path) == {
        "level-2-1": "corrupt_parameters",
        "level-2-2": "tool_not_offered",
        "level-3-0": "corrupt_parameters",
    }
    env = gym.make("corrgrpo/APIBank-v0", dataset=path)
    obs, _ = env.reset(options={"task_id": "level-2-2"})
    assert obs["messages"][0]["content"] == SYSTEM
    assert env.unwrapped.reference() is None
    info = env.step("x")[4]
    assert (info["status"], info["metrics"]["faulty"]) == ("faulty_row", 1.0)
    assert [task.id for task in gym.make(env.spec, faulty="drop").unwrapped.tasks] == ["level-2-0"]
    template = tmp_path / "prompt.txt"
    template.write_text("$tools | $history")
    env = gym.make("corrgrpo/APIBank-v0", dataset=path, prompt_template=str(template))
    obs, _ = env.reset(options={"task_id": "level-2-0"})
    assert obs["messages"][0]["content"] == "Book(who)\nCancel(id) | <user>hi</user>"


def test_the_original_layout(tmp_path):
    tool = {"name": "Book", "description": "Book seats.", "input_parameters": {"who": {"type": "str"}}}
    found = {"name": "Find", "description": "", "parameters": {}}
    rows = [
        {
            "instruction": "Write a request.\nAPI descriptions:\n" + json.dumps(tool),
            "input": "User: For Ann,\nplease.\nAI: Sure.\nAPI-Request: [Search(keywords='find')]->" + json.dumps(found)
            + "\nGenerate API Request: \n",
            "expected_output": "API-Request: [Book(who='Ann')]",
        },
        {"instruction": "", "input": "User: Hi", "expected_output": "AI: Hello."},
        {"instruction": json.dumps(tool), "input": "User: Hi", "output": "API-Request: [Book(who=''Ann')]"},
        {"instruction": json.dumps(tool), "input": "User: Hi", "output": "API-Request: [Other(who='Ann')]"},
    ]  # fmt: skip
    folder = tmp_path / "data"
    folder.mkdir()
    path = published(folder, *rows, name="level-3-batch-inf.json")
    (folder / "level-3.json").write_text("not read")
    assert faulty_rows(str(folder)) == {"level-3-1": "corrupt_parameters", "level-3-2": "tool_not_offered"}
    first, *_ = items(path)
    assert [tool.name for tool in first.data.tools] == ["Book", "Find"]
    assert first.data.history == (
        "<user> For Ann,\nplease. </user>\n<response> Sure. </response>\n"
        '<tool_call>\n{"name": "Search", "parameters": {"keywords": "find"}}\n</tool_call>\n'
        f"<obs> {json.dumps(found)} </obs>"
    )
    env = gym.make("corrgrpo/APIBank-v0", dataset=str(folder))
    obs, _ = env.reset(options={"task_id": "level-3-0"})
    assert "Name: Book" in obs["messages"][0]["content"]
    assert env.step(env.unwrapped.reference()[0])[1] == 1.0
    for output, message in [("x", "a text with 'API-Request:' or 'AI:'"), ("API-Request: none", "Name\\(key")]:
        with pytest.raises(DatasetError, match=message):
            items(published(tmp_path, {**rows[2], "output": output}, name=f"level-1-{len(output)}.json"))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("x.json", row({"name": "B", "parameters": {}}), "x.json, row 1: no level"),
        ("level-1.json", row("[" * 5000), "level-1.json, row 1: field 'answer' must be a call as JSON"),
        ("level-1.json", row("[1"), "level-1.json, row 1: field 'answer' must be a call as JSON"),
        ("x.json", row({"name": "B", "parameters": {}}, level=5), "field 'level' must be 1, 2 or 3"),
        ("level-1-x.json", row([]), "field 'answer' must be one call"),
        ("level-1-x.json", row("{"), "field 'answer' must be a call as JSON"),
        ("level-1-x.json", {"system": "s", "answer": {}}, "field 'user' .* is missing"),
    ],
)
def test_unusable_rows(tmp_path, name, fields, message):
    with pytest.raises(DatasetError, match=message):
        items(published(tmp_path, fields, name=name))


def test_published_references_score_full_marks_except_the_known_faulty_rows():
    if not DATA.is_dir():
        pytest.skip(f"no API-Bank data in {DATA}")
    known = {f"level-1-{n}" for n in (258, 285, 323, 341, 393)} | {f"level-2-{n}" for n in (6, 13, 14, 19, 25, 54)}
    assert set(faulty_rows(str(DATA))) == known
    stored = {}
    for level in (1, 2, 3):
        for place, one in enumerate(json.loads((DATA / f"level-{level}-api_processed.json").read_text())):
            answer = one["answer"] if isinstance(one["answer"], dict) else one["answer"][0]
            stored[f"level-{level}-{place}"] = block(json.dumps(answer))
    assert len(stored) == 399 + 67 + 131
    env = gym.make("corrgrpo/APIBank-v0", dataset=str(DATA))
    episodes = []
    for task_id, text in stored.items():
        env.reset(options={"task_id": task_id})
        reference = env.unwrapped.reference()
        assert (reference is None) == (task_id in known)
        for answer in (text, reference[0] if reference else "I can't."):
            env.reset(options={"task_id": task_id})
            info = env.step(answer)[4]
            right = answer is text or task_id not in known
            assert set(info["reward_components"].values()) == {float(right)}
            assert info["status"] == ("ok" if right else "faulty_row")
        episodes.append(info)
        assert all(
            match(text, env.unwrapped.task.data.truth, rule, VALUES["unnested"]).correct for rule in RULES.values()
        )
    found = summary(episodes)
    assert found["level_1"] == pytest.approx(394 / 399)
    assert found["level_2"] == pytest.approx(61 / 67)
    assert (found["level_3"], found["faulty_count"], found["sound_average"]) == (1.0, 11.0, 1.0)
    assert found["average"] == pytest.approx((394 / 399 + 61 / 67 + 1) / 3)
    assert found["pooled"] == pytest.approx(586 / 597)


# ---- metrics ----


def episode(level, correct, faulty=0.0):
    components = dict.fromkeys(["function_name", "parameter_names", "parameter_values", "format"], 1.0)
    return {"reward_components": {"correct": correct, **components}, "metrics": {"level": level, "faulty": faulty}}


def test_summary_by_hand():
    rows = [episode(1.0, 1.0)] * 3 + [episode(1.0, 0.0, 1.0)] + [episode(2.0, 1.0), episode(2.0, 0.0)]
    found = summary(rows)
    assert (found["level_1"], found["level_2"], found["level_3"], found["average"]) == (0.75, 0.5, None, None)
    assert (found["level_1_count"], found["level_3_count"], found["average_low"]) == (4.0, 0.0, None)
    # Wilson's interval for 3 of 4, z = 1.959964: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)
    z = 1.959963984540054
    middle, half = 0.75 + z * z / 8, z * math.sqrt(0.75 * 0.25 / 4 + z * z / 64)
    assert found["level_1_low"] == pytest.approx((middle - half) / (1 + z * z / 4))
    assert found["level_1_high"] == pytest.approx((middle + half) / (1 + z * z / 4))
    found = summary([*rows, episode(3.0, 1.0)])
    assert found["average"] == pytest.approx(0.75)
    assert found["pooled"] == pytest.approx(5 / 7)
    assert found["sound_average"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert found["average_low"] < 0.75 < found["average_high"]
    assert overall(0.6, 0.8) == pytest.approx(0.7)
    with pytest.raises(ValueError, match="lacks 'reward_components'"):
        summary([{"task_id": "x", "metrics": {}}])


# ---- hostile answers ----

N = 1_000_000
PIECES = [
    "<tool_call>",
    "</tool_call>",
    '{"name":',
    "{",
    "[",
    "[A(",
    ")]",
    "(",
    "A(x='",
    '{"a":',
    "-",
    "\\",
    '"',
    "\ud800",
]


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.timeout(120)
def test_a_million_characters(piece):
    long = piece * (N // len(piece))
    for text in (long, block(long), "[A(x=" + long, block('{"name": "Book", "parameters": {"who": "' + long + '"}}')):
        for rule in RULES:
            judged(text, rule, "text")


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from([*PIECES, RIGHT, "x", " ", "\n", "['a']", "1", ":", ",", "}", "]"]), max_size=40))
def test_no_text_raises(pieces):
    text = "".join(pieces)
    for rule in RULES:
        found = judged(text, rule, "text")
        assert 0 <= found.parameter_names <= 1
        assert 0 <= found.parameter_values <= 1
    # A right call in a block of its own in front stays the first.
    assert judged(block(RIGHT) + text, "first").correct


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200))
def test_any_text(text):
    for values in VALUES:
        judged(text, values=values)
        judged(block(text), values=values)
        judged(f"[{text}]", values=values)
