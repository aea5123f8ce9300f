"""`corrgrpo/HumanEval-v0`: forms of answers, judging, the published data."""

import json
from pathlib import Path

import gymnasium as gym
import pytest
from spoiled import spoiled
from stages import step

import corrgrpo_envs  # noqa: F401
from corrgrpo_envs.code.humaneval import exercises
from corrgrpo_envs.errors import DatasetError

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"

PROMPT = """\
import math


def twice(n: int) -> int:
    return 2 * n


def four(n: int) -> int:
    '''Four times n.'''
"""
TEST = "def check(candidate):\n    assert candidate(2) == twice(twice(2))\n    assert four(-1) == -4\n"
ROW = {
    "task_id": "Own/4",
    "prompt": PROMPT,
    "entry_point": "four",
    "test": TEST,
    "canonical_solution": "    return 4 * n\n",
}


@pytest.fixture
def make(tmp_path):
    def made(rows=(ROW,), **options):
        file = tmp_path / "HumanEval.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return gym.make("corrgrpo/HumanEval-v0", disable_env_checker=True, dataset=str(file), **options)

    return made


WHOLE = "def four(n):\n    return 4 * n"
WITH_IMPORTS = """
from __future__ import annotations
import operator

def helper(n):
    return operator.mul(4, n)

def four(n):
    return helper(n)
"""


@pytest.mark.parametrize(
    ("answer", "stages", "status"),
    [
        ("    return 4 * n", "1111", "passed"),
        ("\n\n    return 4 * n\n\n\n", "1111", "passed"),
        ("return 4 * n", "1111", "passed"),
        ("if n > 0:\n    return n * 4\nreturn 4 * n", "1111", "passed"),
        ("    return twice(twice(n))", "1111", "passed"),
        ("    return math.prod((2, 2, n))", "1111", "passed"),
        ("<think>```python\nreturn 0\n```</think>    return 4 * n", "1111", "passed"),
        ("```python\n    return 4 * n\n```", "0111", "passed"),
        ("Sure:\n```\nreturn 4 * n\n```\nDone.", "0111", "passed"),
        ("```python\nreturn 0\n```\nBetter:\n```py\nreturn 4 * n\n```", "0111", "passed"),
        (f"```python\n{WHOLE}\n```", "0111", "passed"),
        (WHOLE, "0111", "passed"),
        (f"{PROMPT}    return 4 * n", "0111", "passed"),
        ("    def four(n):\n        return 4 * n", "0111", "passed"),
        (WITH_IMPORTS, "0111", "passed"),
        (f"{WHOLE}\n\nassert four(1) == 4", "0111", "passed"),
        ("    return 4 * n\n\n\ndef twice(n):\n    return 0", "1111", "passed"),  # the test's own helper stays
        ("    return 3 * n", "1110", "failed"),
        ("    return 'four'", "1110", "failed"),
        ("    return 4 * n if n > 0 else 0", "1110", "failed"),
        ("    pass", "1110", "failed"),
        ("    class Equal:\n        def __eq__(self, other): return True\n    return Equal()", "1110", "failed"),
        ("    raise ValueError(n)", "1100", "exception"),
        ("    assert False", "1100", "exception"),
        ("    import sys; sys.exit(0)", "1100", "exception"),
        ("    import os; os._exit(0)", "1100", "exception"),
        ("    import numpy as np", "1100", "missing_package:numpy"),
        ("    while True: pass", "1100", "timeout"),
        ("    return [0] * 10**10", "1100", "memory_limit"),
        ("    return (4 * n", "1000", "syntax_error"),
        ("The answer is four times n.", "1000", "syntax_error"),
        ("```python\n    return 4 * n", "1000", "syntax_error"),  # cut off
        ("", "0000", "empty_code"),
        (" \n ", "0000", "empty_code"),
        ("```python\n```", "0000", "empty_code"),
        ("<think> 4 * n </think>", "0000", "empty_code"),
    ],
)  # fmt: skip
def test_answers(make, answer, stages, status):
    assert step(make(time_limit=1.0), None, answer) == (stages, status)


def test_the_prompt_is_plain_chat(make):
    env = make()
    obs, info = env.reset(seed=0)
    system, user = obs["messages"]
    assert (system["role"], user) == ("system", {"role": "user", "content": PROMPT})
    assert (obs["tools"], info["task_id"]) == ("[]", "Own/4")
    assert env.unwrapped.reference() == (ROW["canonical_solution"],)
    assert "    return 4 * n" not in system["content"]


def test_wrong_rows_are_named(make):
    for changes, message in [
        ({"entry_point": "4"}, "jsonl, row 1: field 'entry_point' must be a function's name, found a text: '4'"),
        ({"entry_point": "other"}, "field 'prompt' must be the beginning of a program .* the head of 'other'"),
        ({"test": " "}, "field 'test' must be a text that is not empty"),
        ({"prompt": None}, "field 'prompt'"),
    ]:  # fmt: skip
        with pytest.raises(DatasetError, match=message):
            make([ROW | changes]).reset()
    without = make([{name: value for name, value in ROW.items() if name != "canonical_solution"}])
    without.reset()
    assert without.unwrapped.reference() is None


def test_a_broken_test_is_no_answer_s_fault(make):
    env = make([ROW | {"test": "def check(candidate):\n    assert undefined(candidate)\n"}])
    env.reset()
    _, reward, *_, info = env.step("    return 4 * n")
    assert info["status"] == "infrastructure_error"
    assert reward != reward


def test_built_in_references_pass_and_spoiled_ones_fail():
    judged("builtin", slice(None))


def judged(dataset, some):
    env = gym.make("corrgrpo/HumanEval-v0", dataset=str(dataset))
    for task in list(env.unwrapped.tasks)[some]:
        env.reset(options={"task_id": task.id})
        (reference,) = env.unwrapped.reference()
        *_, info = env.step(reference)
        assert set(info["reward_components"].values()) == {1.0}, (task.id, info, env.unwrapped.verdict)
        env.reset(options={"task_id": task.id})
        *_, info = env.step(spoiled(reference, task.data.entry_point, info["metrics"]["calls"]))
        assert info["reward_components"]["correctness"] == 0.0, task.id
        assert info["status"] in ("failed", "test_error"), (task.id, info)


@pytest.fixture
def published():
    if not DATA.exists():
        pytest.skip(f"no published data at {DATA}")
    return DATA


def test_sample_of_the_published_data(published):
    assert len(exercises(str(published))) == 164
    judged(published, slice(None, None, 13))


def test_all_164_published_references(published):
    judged(published, slice(None))
