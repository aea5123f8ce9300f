"""`corrgrpo/RLLA-v0` through Gymnasium: contract, options, data layouts, published rows."""

import copy
import json
import pickle
import warnings
from collections import Counter
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import corrgrpo_envs  # noqa: F401 (registers the ids)
from corrgrpo_envs.errors import DatasetError

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "rlla"
TEST, SFT = DATA / "test.parquet", DATA / "rlla_sft.json"
needs_data = pytest.mark.skipif(not TEST.exists(), reason="the published rows are not at ../shared/data/rlla")

NAMES = ["function_name", "parameter_names", "parameter_values", "format"]
CALL = '{"name": "ping", "parameters": {"host": "é", "times": 2}}'


def make(**options):
    return gym.make("corrgrpo/RLLA-v0", **options)


def play(env, task_id, text):
    env.reset(options={"task_id": task_id})
    _, reward, terminated, truncated, info = env.step(text)
    assert (terminated, truncated) == (True, False)
    return reward, info


def vector(info):
    assert list(info["reward_components"]) == NAMES
    return tuple(info["reward_components"].values())


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture
def folder(tmp_path):
    """A data set in the built-in layout: one task of each kind, and one in both other splits."""
    tools = [
        {
            "name": "ping",
            "description": "Ping.",
            "parameters": {"host": {"type": "string", "description": "h"}},
        },
        {"name": "stop", "description": "Stop.", "parameters": {}},
    ]
    row = {
        "split": "train",
        "tools": ["ping", "stop"],
        "turns": [{"role": "user", "content": "Ping é twice."}],
    }
    row |= {"thought": "ping it", "calls": [json.loads(CALL)], "response": None}
    rows = [
        row | {"id": "t-1", "kind": "single"},
        row | {"id": "t-2", "kind": "several", "calls": row["calls"] * 2, "tools": ["ping"]},
        row
        | {
            "id": "t-3",
            "kind": "none",
            "calls": [],
            "response": "No.",
            "turns": [{"role": "user", "content": "n"}],
        },
        row | {"id": "t-4", "kind": "history", "turns": [{"role": "obs", "content": "[]"}, *row["turns"]]},
        row | {"id": "v-1", "kind": "single", "split": "validation", "turns": [user("v")]},
        row | {"id": "e-1", "kind": "nested", "split": "test", "turns": [user("e")]},
    ]
    (tmp_path / "set" / "dialogues").mkdir(parents=True)
    (tmp_path / "set" / "tools.json").write_text(json.dumps(tools))
    write_rows(tmp_path / "set", rows)
    return tmp_path / "set"


def write_rows(folder, rows):
    (folder / "dialogues" / "one.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


# ---- Gymnasium's contract ------------------------------------------------------------------------


def test_check_env_passes_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({}, {"scoring": "toolrl"}, {"kinds": ("none",)}, {"prompt_style": "published"}):
            check_env(make(**options).unwrapped)


def test_components_and_info():
    env = make(kinds=["single"])
    spec = env.unwrapped.reward_spec
    assert [(c.name, c.weight, c.low, c.high) for c in spec] == [
        ("function_name", 1, -0.5, 0.5),
        ("parameter_names", 1, -1, 1),
        ("parameter_values", 1, -1.5, 1.5),
        ("format", 1, 0, 1),
    ]
    obs, info = env.reset(seed=1)
    assert obs["tools"] == "[]"
    assert [message["role"] for message in obs["messages"]] == ["system", "user"]
    obs, reward, terminated, truncated, info = env.step(env.unwrapped.reference()[0])
    assert (reward, terminated, truncated, info["status"]) == (4.0, True, False, "ok")
    assert vector(info) == (0.5, 1.0, 1.5, 1.0)
    assert obs["messages"][-1] == {"role": "assistant", "content": env.unwrapped.reference()[0]}
    env.reset(seed=1)
    assert env.step("rubbish")[1] == -3.0


def test_references_of_the_builtin_set_are_right():
    env = make(split="all")
    for task in env.unwrapped.tasks:
        env.reset(options={"task_id": task.id})
        _, info = play(env, task.id, env.unwrapped.reference()[0])
        calls = task.data.truth.calls is not None
        assert vector(info) == ((0.5, 1.0, 1.5, 1.0) if calls else (0.0, 0.0, 0.0, 1.0)), task.id
        assert info["metrics"]["exact"] == 1.0
        assert ("all_exact" in info["metrics"]) == calls


def test_weights():
    env = make(kinds=["single"], reward_weights={"format": 0.0, "function_name": 2})
    env.reset(seed=0)
    assert env.step(env.unwrapped.reference()[0])[1] == 2 * 0.5 + 1 + 1.5


def test_toolrl_has_two_components():
    env = make(kinds=["single"], scoring="toolrl", reward_weights={"correctness": 0.5})
    env.reset(seed=0)
    _, reward, _, _, info = env.step(env.unwrapped.reference()[0])
    assert info["reward_components"] == {"correctness": 3.0, "format": 1.0}
    assert reward == 2.5
    with pytest.raises(ValueError, match="function_name"):
        make(scoring="toolrl", reward_weights={"function_name": 1})


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_equal_lone_ones(mode):
    envs = gym.make_vec("corrgrpo/RLLA-v0", num_envs=3, vectorization_mode=mode)
    try:
        obs, infos = envs.reset(seed=[5, 6, 5])
        texts = ("<think> t </think>\n<response> r </response>", "\ud800\0", "x" * 100_000)
        _, rewards, terminated, _, infos = envs.step(texts)
        assert terminated.all()
        for i, (seed, text) in enumerate(zip((5, 6, 5), texts, strict=True)):
            env = make()
            alone, _ = env.reset(seed=seed)
            assert obs["messages"][i] == alone["messages"]
            _, reward, _, _, info = env.step(text)
            assert rewards[i] == reward
            assert infos["reward_components"]["format"][i] == info["reward_components"]["format"]
    finally:
        envs.close()


def test_copies_go_on_alike():
    env = make()
    env.reset(seed=3)
    text = env.unwrapped.reference()[0]
    twins = pickle.loads(pickle.dumps(env)), copy.deepcopy(env)
    expected = env.step(text)
    assert len(pickle.dumps(env)) < 50_000
    for twin in twins:
        assert twin.step(text) == expected


def test_specs_go_through_json(folder):
    env = make(dataset=str(folder), kinds=["single", "none"], matching="optimal", surplus_penalty=1.0)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert [task.id for task in again.unwrapped.tasks] == [task.id for task in env.unwrapped.tasks]


def test_finish_scores_and_truncates():
    env = make(kinds=["single"])
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.unwrapped.finish("<think> I was cut")
    assert (reward, terminated, truncated, info["status"]) == (-3.0, False, True, "length")


def test_numpy_text_is_text():
    env = make(kinds=["single"])
    env.reset(seed=0)
    assert env.step(np.str_(env.unwrapped.reference()[0]))[1] == 4.0


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ["singles"]}, "kinds 'singles' is unknown.*'single'"),
        ({"kinds": []}, "kinds must name at least one"),
        ({"kinds": 5}, "kinds must be names out of .*, not 5"),
        ({"held_out": 5}, "held_out must be a path or None, not 5"),
        ({"held_out": b"x"}, "held_out must be a path"),
        ({"prompt_template": ["a"]}, r"prompt_template must be a path or None, not \['a'\]"),
        ({"max_tools": 0}, "max_tools must be a whole number"),
        ({"max_tools": 2.0}, "max_tools must be a whole number"),
        ({"distractors": -1}, "distractors must be a whole number from 0"),
        ({"prompt_style": "publish"}, "prompt_style 'publish' is unknown.*'published'"),
        ({"prompt_template": "nowhere"}, "prompt_template 'nowhere' cannot be read"),
        ({"scoring": "tool_rl"}, "scoring 'tool_rl' is unknown.*'toolrl'"),
        ({"matching": "optimum"}, "matching 'optimum' is unknown"),
        ({"separator": "\n"}, "separator .* is unknown.*'newline'"),
        ({"think": True}, "think True is unknown"),
        ({"tag_in_thought": "ignored"}, "tag_in_thought 'ignored' is unknown"),
        ({"surplus_penalty": -0.1}, "surplus_penalty must be a number from 0"),
        ({"split": "dev"}, "split 'dev' is unknown"),
        ({"reward_weights": {"fmt": 1}}, "'fmt' is unknown"),
    ],
)
def test_wrong_options_are_refused_at_make(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_kinds_and_max_tools(folder):
    def ids(**options):
        return [task.id for task in make(dataset=str(folder), split="all", **options).unwrapped.tasks]

    assert ids() == ["t-1", "t-2", "t-3", "t-4", "v-1", "e-1"]
    assert ids(kinds=("none", "history")) == ["t-3", "t-4"]
    assert ids(kinds="single") == ["t-1", "v-1"]
    assert ids(max_tools=1) == ["t-2"]
    with pytest.raises(ValueError, match="leave no task"):
        ids(kinds=["none"], max_tools=1)
    with pytest.raises(ValueError, match=r"is in split 'test'"):
        make(dataset=str(folder)).reset(options={"task_id": "e-1"})


@pytest.mark.parametrize("count", [0, 1, 9])
def test_distractors(count):
    full, few = make(split="all").unwrapped, make(split="all", distractors=count).unwrapped
    assert len(few.tasks) == len(full.tasks)
    for task in full.tasks:
        called = set(task.data.truth.names)
        offered = [tool.name for tool in task.data.tools]
        others = [name for name in offered if name not in called]
        kept = called | set(others[: count if called else max(1, count)])
        listing = few.reset(options={"task_id": task.id})[0]["messages"][0]["content"].split("Tools:\n")[1]
        assert [line.partition("(")[0] for line in listing.splitlines()] == [n for n in offered if n in kept]


def test_options_reach_the_score(folder):
    calls = f"<tool_call>\n{CALL}\n</tool_call>"
    cases = [
        ({}, f"<think> t </think>{calls}", (0.5, 1.0, 1.5, 1.0)),
        ({"separator": "newline"}, f"<think> t </think>{calls}", (0.5, 1.0, 1.5, 0.0)),
        ({}, f"t </think>\n{calls}", (0.5, 1.0, 1.5, 0.0)),
        ({"think": "optional"}, f"t </think>\n{calls}", (0.5, 1.0, 1.5, 1.0)),
        ({}, f"<think> <tool_call> </think>\n{calls}", (-0.5, -1.0, -1.5, 0.0)),
        ({"tag_in_thought": "ignore"}, f"<think> <tool_call> </think>\n{calls}", (0.5, 1.0, 1.5, 1.0)),
        # Names 1/2; parameter shares times 1 / (1 + 1) with the penalty.
        ({}, f"<think> t </think><tool_call>\n{CALL}\n{CALL}\n</tool_call>", (0.0, 1.0, 1.5, 1.0)),
        (
            {"surplus_penalty": 1},
            f"<think> t </think><tool_call>\n{CALL}\n{CALL}\n</tool_call>",
            (0.0, 0.0, 0.0, 1.0),
        ),
    ]
    for options, text, expected in cases:
        _, info = play(make(dataset=str(folder), **options), "t-1", text)
        assert vector(info) == expected, (options, text)


def test_statuses(folder):
    env = make(dataset=str(folder))
    for task_id, text, status in (
        ("t-1", f"<think> t </think><tool_call>\n{CALL}\n</tool_call>", "ok"),
        ("t-1", f"<tool_call>\n{CALL}\n</tool_call>", "invalid_format"),
        ("t-1", "hello", "no_call"),
        ("t-1", "<tool_call>ping</tool_call>", "unparsable_call"),
        (
            "t-1",
            '<think> t </think><tool_call>\n{"name": "stop", "parameters": {}}\n</tool_call>',
            "wrong_call",
        ),
        ("t-3", "<think> t </think><response></response>", "ok"),
        ("t-3", f"<think> t </think><tool_call>\n{CALL}\n</tool_call>", "invalid_format"),
    ):
        assert play(env, task_id, text)[1]["status"] == status


def test_prompt_styles_and_templates(folder, tmp_path):
    def messages(**options):
        return make(dataset=str(folder), **options).reset(options={"task_id": "t-1"})[0]["messages"]

    assert messages()[1]["content"] == "Ping é twice."
    assert messages()[0]["content"].endswith("Tools:\nping(host)\nstop()")
    assert messages(prompt_style="published")[1]["content"].endswith("\n<user> Ping é twice. </user>")
    file = tmp_path / "prompt.txt"
    file.write_text("$tools | $history")
    assert messages(prompt_template=str(file)) == (
        {"role": "user", "content": "ping(host)\nstop() | <user> Ping é twice. </user>"},
    )


# ---- data ----------------------------------------------------------------------------------------


def test_reference_text(folder):
    env = make(dataset=str(folder), split="all")
    env.reset(options={"task_id": "t-1"})
    assert env.unwrapped.reference() == (f"<think> ping it </think>\n<tool_call>\n{CALL}\n</tool_call>",)
    env.reset(options={"task_id": "t-3"})
    assert env.unwrapped.reference() == ("<think> ping it </think>\n<response> No. </response>",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tools": ["pin"]}, "tool 'pin' is unknown.*'ping'"),
        ({"split": "dev"}, "split 'dev' is unknown"),
        ({"kind": "one"}, "kind 'one' is unknown"),
        ({"turns": [{"role": "system", "content": ""}]}, "role of a turn 'system' is unknown"),
        ({"turns": [5]}, "a turn must be an object"),
        ({"turns": [{"role": "user", "content": 1}]}, "content of a turn must be text"),
        ({"calls": [{"name": "ping"}]}, "no key 'parameters'"),
        ({"calls": [{"name": "halt", "parameters": {}}]}, "the called tool 'halt' is unknown"),
        ({"calls": [], "thought": "a </think> b"}, "outside them it has"),
        ({"id": 5}, "field 'id' must be text, not 5"),
        ({"id": ["x"]}, "field 'id' must be text"),
        ({"thought": None}, "field 'thought' must be text"),
        ({"response": {"a": 1}}, "field 'response' must be text"),
    ],
)
def test_bad_rows_are_named(folder, change, message):
    file = folder / "dialogues" / "one.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[1] |= change
    write_rows(folder, rows)
    with pytest.raises(DatasetError, match=rf"one.jsonl, line 2: .*{message}"):
        make(dataset=str(folder)).reset(seed=0)


def test_incomplete_folders(folder):
    (folder / "dialogues" / "one.jsonl").write_text("\n")
    with pytest.raises(DatasetError, match="has no dialogues"):
        make(dataset=str(folder)).reset(seed=0)
    (folder / "dialogues" / "one.jsonl").unlink()
    (folder / "dialogues").rmdir()
    with pytest.raises(DatasetError, match="needs a folder 'dialogues'"):
        make(dataset=str(folder)).reset(seed=0)
    (folder / "tools.json").write_text('[{"name": "a"}]')
    with pytest.raises(DatasetError, match=r"tools.json: tool 'a' needs a text 'description'"):
        make(dataset=str(folder)).reset(seed=0)


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tools.json", DEEP, "tools.json: .*recursion"),
        ("dialogues/one.jsonl", DEEP, "one.jsonl, line 1: .*recursion"),
        ("dialogues/one.jsonl", b"\xff\xfe", "one.jsonl is not UTF-8 text"),
        ("dialogues/two.jsonl", None, "two.jsonl can't be read: Is a directory"),
    ],
)
def test_files_that_cannot_be_read_are_named(folder, name, content, message):
    if content is None:
        (folder / name).mkdir()
    else:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DatasetError, match=message):
        make(dataset=str(folder)).reset(seed=0)


def test_a_name_that_is_too_long_is_one_line():
    with pytest.raises(DatasetError, match="can't be read: File name too long"):
        make(dataset="a" * 5000).reset(seed=0)


def test_a_changed_file_is_read_again(folder):
    assert len(make(dataset=str(folder), split="test").unwrapped.tasks) == 1
    rows = [json.loads(line) for line in (folder / "dialogues" / "one.jsonl").read_text().splitlines()]
    write_rows(folder, [*rows, rows[-1] | {"id": "e-2"}])
    assert len(make(dataset=str(folder), split="test").unwrapped.tasks) == 2


SYSTEM = "Intro.\n1. Name: ping\nDescription: p\nParameters: {}\n2. Name: stop\nDescription: s\nParameters: {}"
ANSWER = '<think> t </think>\n<tool_call>\n{"name": "ping", "parameters": {}}\n</tool_call>'


def raw(user, answer=ANSWER):
    return {"instruction": SYSTEM, "input": f"**Records**\n<user> {user} </user>", "output": answer}


def test_raw_layout(tmp_path):
    (tmp_path / "train.json").write_text(
        json.dumps([raw("a"), raw("b", "<think> t </think>\n<response> r </response>")])
    )
    env = make(dataset=str(tmp_path / "train.json"), split="all")
    kinds = {task.id: task.kind for task in env.unwrapped.tasks}
    assert kinds == {"train-0": "single", "train-1": "none"}
    obs, _ = env.reset(options={"task_id": "train-0"})
    assert obs["messages"] == (
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "**Records**\n<user> a </user>"},
    )
    assert env.unwrapped.reference() == (ANSWER,)


def test_sft_layout(tmp_path):
    row = {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "a"}]}
    row["messages"].append({"role": "assistant", "content": ANSWER})
    row |= {"source_split": "test", "source_position": 7}
    # The original split counts, although the file is used for validation.
    (tmp_path / "validation.jsonl").write_text(json.dumps(row))
    env = make(dataset=str(tmp_path / "validation.jsonl"), split="test")
    assert [task.id for task in env.unwrapped.tasks] == ["test-7"]
    assert play(env, "test-7", ANSWER)[0] == 4.0


def test_a_template_is_filled_from_a_published_prompt(tmp_path):
    (tmp_path / "train.json").write_text(json.dumps([raw("a"), raw("b") | {"instruction": "no list"}]))
    (tmp_path / "prompt.txt").write_text("$tools | $history")
    env = make(dataset=str(tmp_path / "train.json"), split="all", prompt_template=str(tmp_path / "prompt.txt"))
    obs, _ = env.reset(options={"task_id": "train-0"})
    assert obs["messages"] == ({"role": "user", "content": "ping()\nstop() | <user> a </user>"},)
    with pytest.raises(ValueError, match="no list of tools"):
        env.reset(options={"task_id": "train-1"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (raw("a", "no blocks"), "ground truth"),
        (
            raw("a", "<think> t </think>\n<tool_call>\n{\n</tool_call>"),
            "line 1 of the tool_call block is not JSON",
        ),
        ({"instruction": SYSTEM, "input": "x"}, "no field 'output'"),
        ({"text": "x"}, "expected 'prompt' and 'reward_model'"),
        (raw("a") | {"output": 3}, "field 'output' must be text"),
        (raw("a") | {"split": "dev set"}, "split"),
        ({"messages": [{"role": "user", "content": "x"}]}, "the right answer"),
        ({"messages": "x"}, "list of messages"),
        ({"messages": [{"role": "user"}]}, "no field 'content'"),
        ({"messages": [5]}, "a message must be an object, not 5"),
        ({"prompt": [], "reward_model": {"ground_truth": ANSWER}}, "empty prompt"),
        ({"prompt": [], "reward_model": {"ground_truth": None}}, "must be text"),
        (
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": ANSWER}]}
            | {"source_position": [1]},
            r"position must be a whole number, not \[1\]",
        ),
        ({"prompt": [], "reward_model": 1}, "field 'reward_model' must be an object, not 1"),
    ],
)
def test_bad_published_rows_are_named(tmp_path, row, message):
    (tmp_path / "train.json").write_text(json.dumps([raw("a"), row]))
    with pytest.raises(DatasetError, match=rf"(?s)train.json, row 2: .*{message}"):
        make(dataset=str(tmp_path / "train.json"), split="all").reset(seed=0)


def test_overlap_between_splits_and_with_a_held_out_set(tmp_path):
    rows = [raw("a") | {"split": "train"}, raw("b") | {"split": "train"}, raw("c") | {"split": "validation"}]
    rows += [raw("a") | {"split": "test"}, raw("c") | {"split": "train"}]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "other.json").write_text(json.dumps([raw("b")]))

    def ids(**options):
        return [t.id for t in make(dataset=str(tmp_path / "rows.json"), split="all", **options).unwrapped.tasks]

    assert ids() == ["train-1", "validation-2", "test-3"]
    assert ids(held_out=str(tmp_path / "other.json")) == ["validation-2", "test-3"]


@needs_data
def test_published_test_references():
    env = make(dataset=str(TEST), split="test")
    got = Counter()
    for task in env.unwrapped.tasks:
        got[vector(play(env, task.id, task.data.truth.text)[1])] += 1
        assert 1 <= len(task.data.tools) <= 7
    assert got == {(0.5, 1.0, 1.5, 1.0): 71, (0.0, 0.0, 0.0, 1.0): 9}
    assert sum(len(task.data.truth.calls or ()) for task in env.unwrapped.tasks) == 123
    assert Counter(task.kind for task in env.unwrapped.tasks) == {"single": 36, "several": 35, "none": 9}
    with pytest.raises(ValueError, match=r"split 'train' .* is empty"):
        make(dataset=str(TEST)).reset()


@needs_data
def test_published_test_references_with_one_newline_between_blocks():
    env = make(dataset=str(TEST), split="test", separator="newline", scoring="toolrl")
    got = Counter(
        tuple(play(env, task.id, task.data.truth.text)[1]["reward_components"].values()) for task in env.unwrapped.tasks
    )
    assert got == {(3.0, 1.0): 71, (0.0, 1.0): 9}


@needs_data
def test_published_prompts_are_kept():
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(TEST).to_pylist()
    env = make(dataset=str(TEST), split="test")
    for row in rows:
        obs, _ = env.reset(options={"task_id": f"test-{row['extra_info']['index']}"})
        expected = [(m["role"], m["content"]) for m in row["prompt"]]
        assert [(m["role"], m["content"]) for m in obs["messages"]] == expected


@needs_data
def test_published_sft_outputs():
    # 329 with calls and 54 responses score the maximum; 17 name the tag in the thought.
    env = make(dataset=str(SFT), split="all")
    got, ignoring, references = Counter(), Counter(), Counter()
    lenient = make(dataset=str(SFT), split="all", tag_in_thought="ignore")
    for task in env.unwrapped.tasks:
        got[play(env, task.id, task.data.truth.text)[0]] += 1
        ignoring[play(lenient, task.id, task.data.truth.text)[0]] += 1
        references[play(env, task.id, env.unwrapped.reference()[0])[0]] += 1
    assert got == {4.0: 329, 1.0: 54, -3.0: 17}
    assert ignoring == references == {4.0: 346, 1.0: 54}


@needs_data
def test_the_one_overlapping_sft_row_is_dropped():
    everything = make(dataset=str(SFT), split="all").unwrapped.tasks
    kept = make(dataset=str(SFT), split="all", held_out=str(TEST)).unwrapped.tasks
    assert {task.id for task in everything} - {task.id for task in kept} == {"rlla_sft-393"}
