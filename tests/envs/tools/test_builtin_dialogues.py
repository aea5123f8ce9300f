"""The built-in tool-call dialogues, checked as data: nothing of the environments is imported."""

import json
import re
from collections import Counter
from importlib.resources import files
from itertools import pairwise

import pytest

ASSETS = files("envs_assets") / "rlla"
SPLITS = ("train", "validation", "test")
KINDS = {"single": 300, "several": 120, "none": 80, "nested": 70, "history": 70}  # least number of rows
JSON_TYPES = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def strict_json(text):
    """Parse JSON and refuse duplicate keys, NaN and infinities."""

    def unique(pairs):
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"duplicate key in {text}"
        return dict(pairs)

    def refuse(constant):
        raise AssertionError(f"{constant} in {text}")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def read_rows():
    """Return (domain, row) for each line of each dialogue file."""
    rows = []
    for path in sorted((ASSETS / "dialogues").iterdir(), key=lambda path: path.name):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows += [(path.name.removesuffix(".jsonl"), strict_json(line)) for line in lines]
    return rows


CATALOGUE = strict_json((ASSETS / "tools.json").read_text(encoding="utf-8"))
TOOLS = {tool["name"]: tool for tool in CATALOGUE}
DOMAIN_ROWS = read_rows()
ROWS = [row for _, row in DOMAIN_ROWS]


def dialogue_text(row):
    return "\n".join(turn["content"] for turn in row["turns"])


def user_texts(row):
    return [turn["content"] for turn in row["turns"] if turn["role"] == "user"]


def earlier_calls(row):
    """Return the calls written in the dialogue so far."""
    lines = [line for t in row["turns"] if t["role"] == "tool_call" for line in t["content"].split("\n")]
    return [strict_json(line) for line in lines]


def leaves(value):
    """Yield the scalars in a value; keys are left out."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def is_said(value, text):
    """Whether a scalar can be copied out of the text: strings as whole words, numbers as digits."""
    if isinstance(value, str):
        before, after = r"\b" if value[0].isalnum() else "", r"\b" if value[-1].isalnum() else ""
        return re.search(before + re.escape(value) + after, text) is not None
    return float(value) in {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}


def fits(value, type_name):
    """Whether a JSON value has the type; a boolean is not a number."""
    if isinstance(value, bool):
        return type_name == "boolean"
    return isinstance(value, JSON_TYPES[type_name])


def test_catalogue_is_well_formed():
    assert len(CATALOGUE) >= 70
    assert len(TOOLS) == len(CATALOGUE)
    for tool in CATALOGUE:
        assert list(tool) == ["name", "description", "parameters"]
        assert re.fullmatch(r"[a-z]+(_[a-z]+){0,3}", tool["name"])
        assert 0 < len(tool["description"].split()) <= 10, tool["name"]
        assert len(tool["parameters"]) <= 5
        for name, parameter in tool["parameters"].items():
            assert re.fullmatch(r"[a-z_]{1,20}", name)
            assert set(parameter) - {"default"} == {"type", "description"}
            assert parameter["description"]
            if "default" in parameter:
                assert fits(parameter["default"], parameter["type"]), (tool["name"], name)


def test_catalogue_has_every_shape_of_parameter():
    parameters = [parameter for tool in CATALOGUE for parameter in tool["parameters"].values()]
    assert {parameter["type"] for parameter in parameters} == set(JSON_TYPES)
    assert sum(not tool["parameters"] for tool in CATALOGUE) >= 5
    assert sum("default" in parameter for parameter in parameters) >= 10


def test_catalogue_and_lines_are_in_plain_readable_form():
    text = (ASSETS / "tools.json").read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(CATALOGUE) + 2
    assert "\\u" not in text
    for path in (ASSETS / "dialogues").iterdir():
        assert "\\u" not in path.read_text(encoding="utf-8"), path.name


def test_counts_of_rows_kinds_and_splits():
    assert len(ROWS) >= 640
    kinds = Counter(row["kind"] for row in ROWS)
    assert set(kinds) == set(KINDS)
    for kind, least in KINDS.items():
        assert kinds[kind] >= least, kind
    splits = Counter(row["split"] for row in ROWS)
    assert set(splits) == set(SPLITS)
    assert 0.68 <= splits["train"] / len(ROWS) <= 0.76
    for split in ("validation", "test"):
        assert 0.11 <= splits[split] / len(ROWS) <= 0.17
    assert sum(row["kind"] == "single" and row["split"] == "validation" for row in ROWS) >= 40


def test_splits_cover_kinds_and_domains():
    domains = {domain for domain, _ in DOMAIN_ROWS}
    assert len(domains) >= 15
    assert {(d, row["split"]) for d, row in DOMAIN_ROWS} == {(d, split) for d in domains for split in SPLITS}
    for split in SPLITS:
        shares = Counter(row["kind"] for row in ROWS if row["split"] == split)
        for kind in KINDS:
            assert shares[kind] >= 10, (split, kind)


def test_ids_are_unique_and_name_their_file():
    ids = [row["id"] for row in ROWS]
    assert len(set(ids)) == len(ids)
    for domain, row in DOMAIN_ROWS:
        assert re.fullmatch(rf"{domain}-\d{{3}}", row["id"])


def test_rows_have_exactly_the_known_fields():
    for row in ROWS:
        assert list(row) == ["id", "split", "kind", "tools", "turns", "thought", "calls", "response"]
        assert row["calls"] or row["response"], row["id"]
        assert row["response"] is None or row["response"].strip() == row["response"] != ""
        assert all(list(call) == ["name", "parameters"] for call in row["calls"])


def test_few_rows_have_both_calls_and_a_response():
    both = [row for row in ROWS if row["calls"] and row["response"]]
    assert 1 <= len(both) <= 20


def test_last_turn_is_one_that_the_assistant_must_answer():
    follows = {
        "user": {"tool_call", "response"},
        "tool_call": {"obs"},
        "obs": {"response"},
        "response": {"user"},
    }
    for row in ROWS:
        roles = [turn["role"] for turn in row["turns"]]
        assert roles[0] == "user"
        assert roles[-1] in ("user", "obs"), row["id"]
        assert all(after in follows[before] for before, after in pairwise(roles)), row["id"]
        for turn in row["turns"]:
            assert list(turn) == ["role", "content"]
            assert turn["content"].strip() == turn["content"] != "", row["id"]


def test_kind_says_what_the_answer_looks_like():
    for row in ROWS:
        calls, values = row["calls"], [v for call in row["calls"] for v in call["parameters"].values()]
        has_nested = any(isinstance(value, list | dict) for value in values)
        if row["kind"] == "history":
            assert len(row["turns"]) > 1, row["id"]
            continue
        assert len(row["turns"]) == 1, row["id"]
        if row["kind"] == "none":
            assert not calls
        elif row["kind"] == "several":
            assert 2 <= len(calls) <= 4
        elif row["kind"] == "nested":
            assert has_nested, row["id"]
        else:
            assert len(calls) == 1
            assert not has_nested, row["id"]


def test_texts_are_unique_also_between_splits():
    whole = Counter(dialogue_text(row) for row in ROWS)
    assert [text for text, count in whole.items() if count > 1] == []
    users = {split: set() for split in SPLITS}
    for row in ROWS:
        users[row["split"]].add(" ".join(user_texts(row)).casefold())
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert users[one] & users[other] == set()


def test_offered_tools_are_known_and_listed_once():
    for row in ROWS:
        assert 1 <= len(row["tools"]) <= 6
        assert len(set(row["tools"])) == len(row["tools"]), row["id"]
        assert set(row["tools"]) <= set(TOOLS), row["id"]


def test_calls_use_offered_tools_and_keep_their_schemas():
    for row in ROWS:
        for call in row["calls"] + earlier_calls(row):
            assert call["name"] in row["tools"], row["id"]
            schema = TOOLS[call["name"]]["parameters"]
            assert set(call["parameters"]) <= set(schema), row["id"]
            required = {name for name, parameter in schema.items() if "default" not in parameter}
            assert required <= set(call["parameters"]), row["id"]
            for name, value in call["parameters"].items():
                assert fits(value, schema[name]["type"]), (row["id"], name)


def test_no_answer_makes_the_same_call_twice():
    for row in ROWS:
        calls = [json.dumps(call, sort_keys=True) for call in row["calls"]]
        assert len(set(calls)) == len(calls), row["id"]


def test_values_can_be_copied_from_the_dialogue():
    total, missing = Counter(), {kind: [] for kind in KINDS}
    for row in ROWS:
        text = dialogue_text(row)
        for value in leaves([call["parameters"] for call in row["calls"]]):
            if not isinstance(value, bool):
                total[row["kind"]] += 1
                if not is_said(value, text):
                    missing[row["kind"]].append((row["id"], value))
    assert missing["single"] == []
    for kind in ("several", "nested", "history"):
        assert len(missing[kind]) <= 0.05 * total[kind], missing[kind]


def test_keys_of_open_objects_can_be_copied_from_the_dialogue():
    for row in ROWS:
        for call in row["calls"]:
            for value in call["parameters"].values():
                if isinstance(value, dict):
                    assert all(key in dialogue_text(row) for key in value), row["id"]


def test_given_defaults_are_values_that_the_user_said():
    for row in ROWS:
        for call in row["calls"]:
            for name, value in call["parameters"].items():
                parameter = TOOLS[call["name"]]["parameters"][name]
                if parameter.get("default") == value:
                    assert not isinstance(value, bool | dict | list), row["id"]
                    assert is_said(value, dialogue_text(row)), (row["id"], name)


def test_omitted_defaults_are_words_that_the_dialogue_does_not_say():
    for row in ROWS:
        for call in row["calls"]:
            for name, parameter in TOOLS[call["name"]]["parameters"].items():
                default = parameter.get("default")
                if name not in call["parameters"] and isinstance(default, str):
                    assert not is_said(default.casefold(), dialogue_text(row).casefold()), (row["id"], name)


def test_thoughts_are_short():
    for row in ROWS:
        assert 1 <= len(row["thought"].split()) <= 8, row["id"]
        assert "\n" not in row["thought"]
    assert len({row["thought"] for row in ROWS}) >= 0.6 * len(ROWS)


@pytest.mark.parametrize("tag", ["think", "tool_call", "response", "obs", "user"])
def test_no_text_holds_a_tag(tag):
    for row in ROWS:
        strings = json.dumps(row, ensure_ascii=False)
        assert f"<{tag}" not in strings, row["id"]
        assert f"</{tag}" not in strings, row["id"]
        assert "<|" not in strings, row["id"]


def test_some_tools_are_unseen_in_training():
    seen = {name for row in ROWS if row["split"] == "train" for name in row["tools"]}
    called = Counter(call["name"] for row in ROWS if row["split"] != "train" for call in row["calls"])
    unseen = set(TOOLS) - seen
    assert len(unseen) >= 5
    assert all(called[name] >= 1 for name in unseen)


def test_every_tool_is_called():
    called = Counter(call["name"] for row in ROWS for call in row["calls"])
    assert set(called) == set(TOOLS)
    in_training = Counter(call["name"] for row in ROWS if row["split"] == "train" for call in row["calls"])
    assert len(in_training) >= 70


def test_unicode_has_a_fair_share():
    beyond_ascii = [row for row in ROWS if not dialogue_text(row).isascii()]
    assert len(beyond_ascii) >= 0.05 * len(ROWS)
    values = [v for row in ROWS for v in leaves([call["parameters"] for call in row["calls"]])]
    assert sum(isinstance(value, str) and not value.isascii() for value in values) >= 40


def test_position_of_the_right_tool_is_not_biased():
    places = [
        (row["tools"].index(row["calls"][0]["name"]), len(row["tools"]))
        for row in ROWS
        if row["calls"] and len(row["tools"]) >= 2
    ]
    first = sum(place == 0 for place, _ in places) / len(places)
    last = sum(place == count - 1 for place, count in places) / len(places)
    assert 0.25 <= first <= 0.60
    assert 0.25 <= last <= 0.60


def test_sentences_of_a_tool_differ_in_more_than_their_values():
    skeletons = Counter()
    for row in ROWS:
        text = dialogue_text(row)
        for value in sorted(map(str, leaves([c["parameters"] for c in row["calls"]])), key=len, reverse=True):
            text = text.replace(value, "_")
        skeletons[(tuple(call["name"] for call in row["calls"]), text)] += 1
    assert max(skeletons.values()) <= 3


def test_most_dialogues_are_short():
    lengths = sorted(len(" ".join(user_texts(row))) for row in ROWS)
    assert lengths[len(lengths) // 2] <= 120
    assert lengths[-1] <= 500
