"""`corrgrpo/MBPP-v0`: variants, harnesses, what tests take from the program, the published data."""

import json
from collections import Counter
from pathlib import Path

import gymnasium as gym
import pytest
from spoiled import spoiled
from stages import step

import corrgrpo_envs  # noqa: F401
from corrgrpo_envs.code.mbpp import exercises
from corrgrpo_envs.errors import DatasetError

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "mbpp"

NODE = "class Node:\r\n    def __init__(self, data):\r\n        self.data, self.left, self.right = data, None, None\r\n"
PAIR = "class Pair:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\n"
TOTAL = "def total(n): return n.data + total(n.left) + total(n.right) if n else 0"
FULL = {
    "add": {
        "text": "Write a function to add two numbers.",
        "code": "def add(a, b):\r\n    return a + b\r\n",
        "test_list": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"],
    },
    "check": {
        "text": "Write a function to tell even numbers.",
        "code": "def check(n):\n    return n % 2 == 0",
        "test_list": ["assert check(2) == True", "assert check(3) == False"],
    },
    "sum": {  # a name that is built in
        "text": "Write a function to add up to n.",
        "code": "def helper(n):\n    return n * (n + 1)\ndef sum(n):\n    return helper(n) // 2",
        "test_list": ["assert sum(3) == 6"],
    },
    "size": {  # tests use an import of the program
        "text": "Write a function for the size of an object.",
        "code": "import sys\ndef size(x):\n    return sys.getsizeof(x)",
        "test_list": ["assert size(()) == sys.getsizeof(())"],
    },
    "tree": {  # the setup uses a class of the program
        "text": "Write a function to add the numbers of a tree.",
        "code": NODE + "def total(node):\r\n    return node.data + total(node.left) + total(node.right) if node else 0",
        "test_setup_code": "root = Node(1)\r\nroot.left = Node(5)\r\nroot.left.right = Node(7)\r\nlone = Node(2)",
        "test_list": ["assert total(root) == 13", "assert total(lone) == 2"],
    },
    "pairs": {  # tests make objects of the program's class
        "text": "Write a function to count rising pairs.",
        "code": PAIR + "def rising(pairs):\n    return len([p for p in pairs if p.a < p.b])",
        "test_list": ["assert rising([Pair(1, 2), Pair(2, 1), Pair(0, 9)]) == 2"],
    },
}


@pytest.fixture
def make(tmp_path):
    def made(rows=FULL, name="mbpp.jsonl", **options):
        file = tmp_path / name
        file.write_text("\n".join(json.dumps({"task_id": key, **row}) for key, row in rows.items()), encoding="utf-8")
        return gym.make("corrgrpo/MBPP-v0", dataset=str(file), **options)

    return made


@pytest.mark.parametrize("task_id", FULL)
def test_references_pass_and_spoiled_ones_fail(make, task_id):
    env = make()
    env.reset(options={"task_id": task_id})
    (code,) = env.unwrapped.reference()
    assert step(env, task_id, code) == ("1111", "passed")
    assert step(env, task_id, f"```python\n{code}\n```") == ("0111", "passed")
    exercise = env.unwrapped.task.data
    stages, status = step(env, task_id, spoiled(code, exercise.row.entry_point, len(exercise.row.tests)))
    assert (stages, status) in (("1110", "failed"), ("1100", "test_error"))


@pytest.mark.parametrize(
    ("task_id", "answer", "stages", "status"),
    [
        ("add", "def add(*both): return sum(both)", "1111", "passed"),
        ("add", "add = lambda a, b: a + b", "1111", "passed"),
        ("add", "from __future__ import annotations\ndef add(a: Any, b): return a + b", "1111", "passed"),
        ("add", "def add(a, b): return 3", "1110", "failed"),
        ("add", "def plus(a, b): return a + b", "1100", "exception"),
        ("add", "def add(a): return a", "1100", "exception"),
        ("add", "def add(a, b) return a + b", "1000", "syntax_error"),
        ("add", "", "0000", "empty_code"),
        ("check", "def check(n): return not n % 2", "1111", "passed"),
        ("check", "def check(n): return True", "1110", "failed"),
        ("sum", "def sum(n): return n * (n + 1) // 2", "1111", "passed"),  # helpers of the reference are its own
        ("size", "def size(x): return x.__sizeof__() + 16", "1111", "passed"),
        # A class that the setup needs may be left out, or be the program's own.
        ("tree", TOTAL, "1111", "passed"),
        ("tree", f"class Node: pass\n{TOTAL}", "1111", "passed"),
        ("tree", "def total(n): return 13", "1110", "failed"),
        ("pairs", "def rising(pairs): return 2", "1100", "exception"),  # Pair is shown in the tests and missing
        ("pairs", "Pair = lambda a, b: a < b\nrising = lambda pairs: sum(pairs)", "1111", "passed"),
    ],
)  # fmt: skip
def test_answers(make, task_id, answer, stages, status):
    assert step(make(), task_id, answer) == (stages, status)


def test_the_published_harness_cannot_judge_some_rows(make):
    env = make(harness="published")
    for task_id, row in FULL.items():
        hopeless = task_id in ("check", "tree")
        expected = ("1100", "faulty_row") if hopeless else ("1111", "passed")
        assert step(env, task_id, row["code"]) == expected
        assert (env.unwrapped.reference() is None) == hopeless
    assert step(env, "check", "def check(n) return") == ("1000", "syntax_error")
    assert step(env, "tree", "") == ("0000", "empty_code")


def test_the_prompt_shows_task_and_tests(make):
    obs, _ = make().reset(options={"task_id": "add"})
    system, user = obs["messages"]
    assert system["role"] == "system"
    for text in (FULL["add"]["text"], *FULL["add"]["test_list"]):
        assert text in user["content"]
    assert "a + b" not in user["content"]


def test_sanitized_rows(make):
    rows = {
        "root": {
            "prompt": "Write a function for the root.",
            "code": "def root(x):\n    return math.sqrt(x)",
            "test_imports": ["import math"],
            "test_list": ["assert math.isclose(root(4), 2)"],
        }
    }
    env = make(rows, name="sanitized-mbpp.jsonl", variant="sanitized")
    assert step(env, "root", rows["root"]["code"]) == ("1111", "passed")
    assert step(env, "root", "def root(x): return x") == ("1110", "failed")
    with pytest.raises(DatasetError, match=r"row 1: is a row of MBPP's sanitized variant; make .*'sanitized'"):
        make(rows).reset()
    with pytest.raises(DatasetError, match="is a row of MBPP's full variant"):
        make(variant="sanitized").reset()


def test_published_splits(tmp_path):
    numbers = {1: "train", 10: "train", 11: "test", 510: "test", 511: "validation", 600: "validation", 601: "train"}
    file = tmp_path / "mbpp.jsonl"
    file.write_text("\n".join(json.dumps({"task_id": number, **FULL["add"]}) for number in numbers))
    assert {int(task.id): task.split for task in exercises(str(file))} == numbers
    env = gym.make("corrgrpo/MBPP-v0", dataset=str(tmp_path))
    assert [task.id for task in env.unwrapped.tasks] == ["11", "510"]
    with pytest.raises(ValueError, match="task_id '601' is in split 'train'"):
        env.reset(options={"task_id": "601"})


def test_hub_ids_take_the_variant_s_configuration(monkeypatch):
    asked = []
    monkeypatch.setattr("corrgrpo_envs.code.mbpp_rows.read_rows", lambda path: asked.append(path) or [])
    for dataset in ("google-research-datasets/mbpp", "owner/mbpp@main", "owner/mbpp:own"):
        exercises(dataset, "sanitized")
    assert asked == ["google-research-datasets/mbpp:sanitized", "owner/mbpp:sanitized@main", "owner/mbpp:own"]


def test_wrong_options_and_rows_are_named(make):
    for options, message in [
        ({"variant": "small"}, "variant 'small' is unknown; allowed: 'full', 'sanitized'"),
        ({"harness": "publised"}, "harness 'publised' is unknown; .*Did you mean 'published'"),
    ]:
        with pytest.raises(ValueError, match=message):
            gym.make("corrgrpo/MBPP-v0", **options)
    for changes, message in [
        ({"test_list": []}, "field 'test_list' must be a list of assertions"),
        ({"test_list": [3]}, r"field 'test_list\[0\]' must be a text, found a whole number: 3"),
        ({"test_list": ["assert other(1)"]}, "field 'test_list' must be assertions that call a function of 'code'"),
        ({"code": "def add("}, "field 'code' must be Python source"),
        ({"text": 3}, "field 'text'"),
    ]:
        with pytest.raises(DatasetError, match=message):
            make({"add": FULL["add"] | changes}).reset()


# ---- built-in and published data ----


def judged(some=slice(None), **options):
    env = gym.make("corrgrpo/MBPP-v0", **options)
    statuses = Counter()
    for task in list(env.unwrapped.tasks)[some]:
        env.reset(options={"task_id": task.id})
        *_, info = env.step(task.data.row.code)
        statuses[info["status"]] += 1
        if info["status"] != "passed":
            continue
        assert set(info["reward_components"].values()) == {1.0}
        env.reset(options={"task_id": task.id})
        wrong = spoiled(task.data.row.code, task.data.row.entry_point, info["metrics"]["calls"])
        *_, info = env.step(wrong)
        assert info["status"] in ("failed", "test_error"), (task.id, info)
        assert info["reward_components"]["correctness"] == 0.0
    return statuses


@pytest.mark.parametrize("variant", ["full", "sanitized"])
def test_built_in_references(variant):
    assert judged(variant=variant) == {"passed": 8}


@pytest.fixture
def published():
    if not DATA.is_dir():
        pytest.skip(f"no published data at {DATA}")
    return str(DATA)


def test_sample_of_the_published_data(published):
    tasks = exercises(published)
    assert Counter(task.split for task in tasks) == {"test": 500, "train": 384, "validation": 90}
    assert [task.id for task in tasks if task.split == "test" and not task.data.row.judged_as_published] == [
        *("56", "349", "367")
    ]
    assert len(exercises(published, "sanitized")) == 427
    assert judged(slice(4, None, 45), dataset=published) == {"passed": 12}
    assert judged(slice(4, None, 60), dataset=published, variant="sanitized") == {"passed": 8}


def test_the_rows_that_need_care(published):
    env = gym.make("corrgrpo/MBPP-v0", dataset=published, split="all")
    for task_id in ("56", "349", "367", "596", "601", "899", "927"):
        code = env.unwrapped.tasks.get(task_id).data.row.code
        assert step(env, task_id, code) == ("1111", "passed")


@pytest.mark.slow
def test_all_published_references(published):
    assert judged(dataset=published) == {"passed": 500}
    assert judged(dataset=published, harness="published") == {"passed": 497, "faulty_row": 3}
    assert judged(dataset=published, variant="sanitized") == {"passed": 427}
