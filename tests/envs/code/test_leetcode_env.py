"""`corrgrpo/LeetCode-v0`: stages, gates, options, data, hostile answers."""

import copy
import gzip
import json
import math
import pickle
from collections import Counter
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import corrgrpo_envs  # noqa: F401
from corrgrpo_envs.code import scoring
from corrgrpo_envs.code.builtin import read_problems
from corrgrpo_envs.code.problems import from_completion, from_response
from corrgrpo_envs.code.sources import problems
from corrgrpo_envs.errors import DatasetError
from corrgrpo_envs.sandbox import Limits, Outcome, Returned, Sandbox, Verdict

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "leetcode"
V031, V020 = DATA / "LeetCodeDataset-v0.3.1-test.jsonl.gz", DATA / "LeetCodeDataset-v0.2.0-train.jsonl.gz"
EQUAL = "class Equal:\n    def __eq__(self, other): return True\n"
STAGES = ("format", "syntax", "compile", "runtime", "correctness")
HEADER = "from typing import *\nimport math\n"
REFERENCE = "class Solution:\n    def double(self, n: int) -> int:\n        return n * 2\n"
TEST = "def check(candidate):\n    assert candidate(n = 1) == 2\n    assert candidate(n = 4) == 8\n"


def row(**changes):
    return {
        "task_id": "double",
        "difficulty": "Easy",
        "split": "train",
        "problem_description": "Return twice n.",
        "starter_code": "class Solution:\n    def double(self, n: int) -> int:\n        ",
        "prompt": HEADER,
        "completion": REFERENCE,
        "entry_point": "Solution().double",
        "test": TEST,
        "query": "Double it.",
        "response": "",
    } | changes


@pytest.fixture
def make(tmp_path):
    """Make an environment over one row of our own."""

    def made(rows=None, **options):
        file = tmp_path / f"rows{len(list(tmp_path.iterdir()))}.jsonl"
        file.write_text("\n".join(map(json.dumps, [row()] if rows is None else rows)), encoding="utf-8")
        return gym.make("corrgrpo/LeetCode-v0", dataset=str(file), **({"split": "all", "efficiency": "off"} | options))

    return made


def step(env, answer, **options):
    env.reset(seed=0, options=options or None)
    _, reward, terminated, truncated, info = env.step(answer)
    assert (terminated, truncated) == (True, False)
    return reward, info


def solution(body, before="", fence=True):
    code = f"{before}class Solution:\n    def double(self, n):\n        {body}\n"
    return f"Text.\n```python\n{code}```\nMore." if fence else code


# ---- stages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "stages", "status"),
    [
        ("", "00000", "empty_code"),
        (" \n", "00000", "empty_code"),
        ("```python\n\n```", "00000", "empty_code"),
        ("```python\nclass Solution\n    x\n```", "10000", "syntax_error"),
        ("```python\nclass Solution:\n    pass\nreturn 1\n```", "11000", "compile_error"),
        ("```python\nclass Solution:\n    pass\nfrom __future__ import annotations\n```", "11000", "compile_error"),
        (solution("raise ValueError(n)"), "11100", "exception"),
        (solution("return n"), "11110", "failed"),
        (solution("return n * 2"), "11111", "passed"),
        (solution("return n * 2", fence=False), "01111", "passed"),
        ("```python\ndef double(n): return 2 * n\n```", "01100", "exception"),
        (solution("print('passed'); print('{\"status\": \"passed\"}'); return n * 2"), "11111", "passed"),
        (solution("return open('/etc/passwd').read()"), "11100", "exception"),
        (solution("while True: pass"), "11100", "timeout"),
        (solution("import time; time.sleep(60)"), "11100", "timeout"),
        (solution("return [0] * 10**10"), "11100", "memory_limit"),
        (solution("raise AssertionError('mine')"), "11100", "exception"),  # published: runs
        (solution("assert n > 5; return n"), "11100", "exception"),
        (solution("return n * 2", before="assert False\n"), "11100", "exception"),
        (solution("import sys; sys.exit(0)"), "11100", "exception"),
        (solution("import os; os._exit(0)"), "11100", "exception"),
        (solution("return Equal()", before=EQUAL), "11110", "failed"),
        (solution("return n * 2", before="import numpy as np\n"), "11100", "missing_package:numpy"),
        (solution("import numpy.linalg; return 2 * n"), "11100", "missing_package:numpy"),
        (solution("return n * 2", before="import zzz_nowhere\n"), "11100", "missing_package"),
        (solution("return n * 2", before="def check(candidate): pass\n"), "11111", "passed"),
        (solution("return n", before="def check(candidate): pass\n"), "11110", "failed"),
        (solution("return n * 2.0"), "11111", "passed"),  # == decides, as in the published tests
    ],
)  # fmt: skip
def test_stages(make, answer, stages, status):
    env = make(time_limit=1.0)
    reward, info = step(env, answer)
    found = info["reward_components"]
    assert ("".join(str(int(found[name])) for name in STAGES), info["status"]) == (stages, status)
    assert all(found[name] in (0.0, 1.0) for name in STAGES)
    weights = {"format": 0.05, "syntax": 0.05, "compile": 0.05, "runtime": 0.25, "correctness": 0.6}
    expected = sum(weights[name] * int(stage) for name, stage in zip(STAGES, stages, strict=True))
    assert reward == pytest.approx(expected + 0.3 * found["ast_similarity"])
    assert found["efficiency"] == 0.0


def test_weights_are_the_published_launcher_s(make):
    assert make().unwrapped.reward_spec.weights == {
        "format": 0.05,
        "syntax": 0.05,
        "compile": 0.05,
        "runtime": 0.25,
        "correctness": 0.6,
        "ast_similarity": 0.3,
        "efficiency": 0.2,
    }
    assert make(reward_weights={"correctness": 1.0}).unwrapped.reward_spec.weights["correctness"] == 1.0


def test_a_test_that_cannot_use_the_result_is_no_run(make):
    test = "def check(candidate):\n    assert len(candidate(n = 1)) == 2\n"
    _, info = step(make([row(test=test)]), solution("return None"))
    assert (info["status"], info["reward_components"]["runtime"]) == ("test_error", 0.0)


def test_similarity_does_not_depend_on_correctness(make):
    _, info = step(make(), solution("return n * 3"))
    assert info["reward_components"]["ast_similarity"] < 1  # the annotations are missing
    _, info = step(make(), "```python\n" + REFERENCE.replace("2", "3") + "```")
    assert info["reward_components"]["ast_similarity"] == 1.0
    assert (info["status"], info["metrics"]["similarity_available"]) == ("failed", 1.0)


def test_the_verdict_is_there_for_people(make):
    env = make()
    assert env.unwrapped.score is None
    step(env, solution("raise KeyError('k')"))
    assert "KeyError" in env.unwrapped.score.verdict.message
    assert "double" in env.unwrapped.score.extracted.code
    env.reset()
    assert env.unwrapped.score is None


# ---- references -------------------------------------------------------------------------------------------


RESPONSE = "It is easy.\n```python\nclass Solution:\n    def double(self, n):\n        return n + n\n```"


@pytest.mark.parametrize(
    ("changes", "option", "expected"),
    [
        ({"response": RESPONSE}, "completion", "n * 2"),
        ({"response": RESPONSE, "completion": ""}, "completion", "n + n"),
        ({"response": RESPONSE}, "response", "n + n"),
        ({"completion": f"```python\n{REFERENCE}```"}, "completion", "n * 2"),
        ({}, "response", None),
        ({"completion": ""}, "completion", None),
        ({"completion": None, "response": None}, "completion", None),
    ],
)
def test_references(make, changes, option, expected):
    env = make([row(**changes)], reference=option)
    env.reset(seed=0)
    reference = env.unwrapped.reference()
    if expected is None:
        assert reference is None
        _, info = step(env, solution("return n * 2"))
        assert info["reward_components"]["ast_similarity"] == 0.0
        assert info["metrics"]["similarity_available"] == 0.0
        assert info["reward_components"]["correctness"] == 1.0
        return
    assert expected in reference[0]
    reward, info = step(env, reference[0])
    assert info["status"] == "passed"
    assert reward == pytest.approx(1.3)
    assert info["reward_components"]["ast_similarity"] == 1.0


def test_a_reference_that_is_no_python_is_none_to_be_alike_to(make):
    _, info = step(make([row(completion="def f(:")]), solution("return n * 2"))
    assert info["metrics"]["similarity_available"] == 0.0
    assert info["reward_components"]["ast_similarity"] == 0.0


# ---- faults -----------------------------------------------------------------------------------------------


no_warning_about_nan = pytest.mark.filterwarnings("ignore:.*The reward is a NaN value")


@no_warning_about_nan
@pytest.mark.parametrize(
    "changes",
    [
        {"test": "def check(candidate:\n    pass"},
        {"test": "def other(candidate):\n    pass"},
        {"test": "import nowhere_at_all\ndef check(candidate): pass"},
        {"test": "def check(candidate):\n    undefined_name\n    assert candidate(n = 1) == 2"},
        {"prompt": "import nowhere_at_all\n"},
    ],
)
def test_a_broken_test_is_no_answer_s_fault(make, changes):
    reward, info = step(make([row(**changes)]), solution("return n * 2"))
    assert math.isnan(reward)
    assert info["status"] == "infrastructure_error"
    found = info["reward_components"]
    assert (found["format"], found["syntax"]) == (1.0, 1.0)
    assert 0 < found["ast_similarity"] <= 1
    for name in ("compile", "runtime", "correctness", "efficiency"):
        assert math.isnan(found[name])


def test_answers_that_are_not_run_need_no_test(make):
    reward, info = step(make([row(test="def check(:")]), "")
    assert (reward, info["status"]) == (0.0, "empty_code")


@no_warning_about_nan
def test_a_sandbox_that_fails_scores_nothing(make, monkeypatch):
    failed = Verdict(Outcome.INFRASTRUCTURE_ERROR, "gone")
    monkeypatch.setattr(Sandbox, "judge", lambda *_: failed)
    reward, info = step(make(), solution("return n * 2"))
    assert math.isnan(reward)
    assert math.isnan(info["reward_components"]["correctness"])
    monkeypatch.setattr(Sandbox, "call", lambda *_, **__: Returned(failed))
    reward, info = step(make(), solution("return n * 2"))
    assert (info["status"], info["reward_components"]["format"]) == ("infrastructure_error", 1.0)
    assert [name for name, value in info["reward_components"].items() if not math.isnan(value)] == ["format"]
    reward, info = step(make(reward_weights=dict.fromkeys((*STAGES[1:], "ast_similarity", "efficiency"), 0.0)), "x")
    assert reward == 0.0


# ---- efficiency -------------------------------------------------------------------------------------------

WORK = "class Solution:\n    def double(self, n):\n        return sum(2 for k in range({times})) // {times} * n\n"


def test_paired_efficiency(make):
    env = make([row(completion=WORK.format(times=40_000))], efficiency="paired")
    reward, info = step(env, f"```python\n{WORK.format(times=10_000)}```")
    found, metrics = info["reward_components"], info["metrics"]
    assert 0.6 < found["efficiency"] < 0.9  # a quarter of the work
    assert found["efficiency"] == pytest.approx(1 - metrics["efficiency_ratio"])
    assert metrics["efficiency_applied"] == metrics["efficiency_available"] == 1.0
    assert metrics["efficiency_reference_seconds"] > 0
    assert reward == pytest.approx(1.0 + 0.3 * found["ast_similarity"] + 0.2 * found["efficiency"])
    _, info = step(env, f"```python\n{WORK.format(times=120_000)}```")
    assert info["reward_components"]["efficiency"] == 0.0
    assert info["metrics"]["efficiency_ratio"] > 1.5
    _, info = step(env, env.unwrapped.reference()[0])
    assert info["reward_components"]["efficiency"] == 0.0
    assert info["metrics"]["efficiency_ratio"] == 1.0


def test_equal_programs_are_within_the_band(make):
    env = make([row(completion=WORK.format(times=30_000))], efficiency="paired")
    for number in range(3):
        _, info = step(env, f"```python\n{WORK.format(times=30_000)}# {number}\n```")
        assert info["reward_components"]["efficiency"] == 0.0
        assert info["metrics"]["efficiency_applied"] == 1.0


def test_wrong_programs_are_not_timed(make, monkeypatch):
    monkeypatch.setattr(Sandbox, "measure", lambda *_, **__: pytest.fail("timed"))
    _, info = step(make(efficiency="paired"), solution("return n"))
    assert (info["metrics"]["efficiency_available"], info["metrics"]["efficiency_applied"]) == (1.0, 0.0)
    _, info = step(make(efficiency="off"), solution("return n * 2"))
    assert (info["metrics"]["efficiency_available"], info["metrics"]["efficiency_applied"]) == (0.0, 0.0)
    _, info = step(make([row(completion="")], efficiency="paired"), solution("return n * 2"))
    assert info["metrics"]["efficiency_available"] == 0.0


def test_a_reference_that_fails_is_no_yardstick(make):
    env = make([row(completion=REFERENCE.replace("2", "3"))], efficiency="paired")
    _, info = step(env, solution("return n * 2"))
    assert info["status"] == "passed"
    assert (info["metrics"]["efficiency_available"], info["metrics"]["efficiency_applied"]) == (0.0, 0.0)


def test_stored_efficiency(make, tmp_path):
    stored = [
        {"split": "train", "task_id": "double", "status": "ok", "reference_runtime_seconds": 1000.0},
        {"split": "train", "task_id": "other", "status": "reference_failed", "reference_runtime_seconds": None},
    ]
    file = tmp_path / "calibration.jsonl"
    file.write_text("\n".join(map(json.dumps, stored)))
    rows = [row(), row(task_id="other"), row(task_id="own", reference_runtime_seconds=1000.0)]
    env = make(rows, efficiency="stored", tie_band=0, reference_runtimes=str(file))
    for task_id, applied in (("double", 1.0), ("other", 0.0), ("own", 1.0)):
        _, info = step(env, solution("return n * 2"), task_id=task_id)
        assert info["metrics"]["efficiency_applied"] == applied
        assert info["reward_components"]["efficiency"] == pytest.approx(applied, abs=0.01)
    fast = make([row(reference_runtime_seconds=1e-9)], efficiency="stored")
    assert step(fast, solution("return n * 2"))[1]["reward_components"]["efficiency"] == 0.0
    file.write_text("\n".join(map(json.dumps, [stored[0]] * 2)))
    with pytest.raises(DatasetError, match=r"calibration.jsonl, row 2: task_id 'double' occurs twice"):
        step(make(efficiency="stored", reference_runtimes=str(file)), solution("return n * 2"))


# ---- determinism, copies, vectors -------------------------------------------------------------------------


def test_equal_actions_give_equal_infos_but_for_what_is_timed(make):
    env = make(efficiency="paired")
    for answer in (solution("return n"), solution("return n + n"), "x", ""):
        infos = []
        for _ in range(2):
            _, info = step(env, answer)
            info["reward_components"].pop("efficiency")
            info["metrics"] = {k: v for k, v in info["metrics"].items() if not k.startswith("efficiency")}
            infos.append(info)
        assert infos[0] == infos[1]


def test_copies_in_the_middle_of_an_episode(make):
    env = make()
    env.reset(seed=0)
    copies = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    results = [one.step(solution("return n * 2"))[1:] for one in copies]
    assert results[0] == results[1] == results[2]
    for one in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert one.unwrapped.score.status == "passed"


def test_finish_scores_what_there_is(make):
    env = make()
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.unwrapped.finish(solution("return n * 2"))
    assert (terminated, truncated, info["status"]) == (False, True, "length")
    assert reward > 1


def test_async_vector_scores_in_every_process():
    envs = gym.make_vec("corrgrpo/LeetCode-v0", 2, "async", split="all", difficulty="easy", efficiency="off")
    try:
        envs.reset(seed=[3, 4])
        references = envs.call("reference")
        _, rewards, *_ = envs.step([reference[0] for reference in references])
        np.testing.assert_allclose(rewards, 1.3)
    finally:
        envs.close()


def test_many_live_environments_share_workers():
    envs = [gym.make("corrgrpo/LeetCode-v0") for _ in range(1000)]
    for number in (0, 500, 999):
        envs[number].reset(seed=number)
        assert envs[number].step("x = 1")[4]["status"] == "exception"
    assert len({id(env.unwrapped._scorer.runner.sandbox()) for env in envs}) == 1
    assert len({id(env.unwrapped.tasks[0]) for env in envs[:10]}) == 1


# ---- options and data -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"difficulty": "hardest"}, r"difficulty 'hardest' is unknown; allowed: 'easy', 'medium', 'hard'.*'hard'"),
        ({"difficulty": []}, "difficulty must name at least one"),
        ({"difficulty": 3}, "difficulty must name at least one"),
        ({"sandbox": "dcoker"}, r"sandbox 'dcoker' is unknown.*Did you mean 'docker'"),
        ({"isolation": "ful"}, r"isolation 'ful' is unknown.*Did you mean 'full'"),
        ({"efficiency": "pairs"}, r"efficiency 'pairs' is unknown.*Did you mean 'paired'"),
        ({"reference": "answer"}, "reference 'answer' is unknown; allowed: 'completion', 'response'"),
        ({"tie_band": 1}, "tie_band must be a number from 0 up to 1"),
        ({"tie_band": True}, "tie_band must be a number from 0 up to 1"),
        ({"time_limit": 0}, "time_limit must be a positive number, not 0"),
        ({"memory_limit": 10}, "memory_limit must be at least 64"),
        ({"prompt_template": "nowhere.txt"}, "prompt_template 'nowhere.txt' cannot be read"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        gym.make("corrgrpo/LeetCode-v0", **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": None}, r"rows0.jsonl, row 1: field 'test' must be a text, found null"),
        ({"test": " "}, r"rows0.jsonl, row 1: field 'test' must be a text that is not empty"),
        ({"entry_point": 3}, r"field 'entry_point' must be a text, found a whole number: 3"),
        ({"completion": []}, r"field 'completion' must be a text"),
        ({"query": "", "problem_description": ""}, r"field 'query' must be a text that is not empty"),
        ({"reference_runtime_seconds": "fast"}, r"field 'reference_runtime_seconds' must be a number"),
        ({"split": "trian"}, r"field 'split' must be"),
        ({"meta": "x"}, r"field 'meta' must be an object"),
    ],
)
def test_wrong_rows_are_named(make, changes, message):
    with pytest.raises(DatasetError, match=message):
        make([row(**changes)]).reset()


def test_missing_fields_are_named(make):
    for field in ("task_id", "test", "entry_point", "prompt"):
        short = row()
        del short[field]
        with pytest.raises(DatasetError, match=f"field '{field}' .* is missing"):
            make([short]).reset()


def test_a_row_s_query_is_kept_and_templates_replace_it(make, tmp_path):
    assert make().reset()[0]["messages"] == ({"role": "user", "content": "Double it."},)
    (message,) = make([row(query="")]).reset()[0]["messages"]
    assert "Return twice n." in message["content"]
    assert "def double(self, n: int)" in message["content"]
    template = tmp_path / "template.txt"
    template.write_text("[system]\nBe brief.\n[user]\n$statement|$starter_code|$$")
    messages = make(prompt_template=str(template)).reset()[0]["messages"]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[1]["content"] == f"Return twice n.|{row()['starter_code'].rstrip()}|$"
    with pytest.raises(ValueError, match="has no statement of its own"):
        make([row(problem_description="")], prompt_template=str(template)).reset()
    template.write_text("$question")
    with pytest.raises(ValueError, match="placeholder 'question' is unknown"):
        make(prompt_template=str(template))
    template.write_text("$starter_code")
    with pytest.raises(ValueError, match=r"must contain \$statement"):
        make(prompt_template=str(template))


def test_difficulties():
    easy = gym.make("corrgrpo/LeetCode-v0", split="all", difficulty="Easy").unwrapped.tasks
    others = gym.make("corrgrpo/LeetCode-v0", split="all", difficulty=["medium", "hard"]).unwrapped.tasks
    assert {task.kind for task in easy} == {"easy"}
    assert {task.kind for task in others} == {"medium", "hard"}
    assert len(easy) + len(others) == len(read_problems())


def test_a_difficulty_that_no_task_has(make):
    with pytest.raises(
        ValueError, match=r"difficulty=\('hard',\) leaves no task .* 1 tasks of difficulties \['easy'\]"
    ):
        make(difficulty="hard").reset()


def test_builtin_prompts():
    for problem in problems("builtin"):
        assert problem.data.query == ""
        assert problem.data.statement
    env = gym.make("corrgrpo/LeetCode-v0", split="all")
    (message,) = env.reset(options={"task_id": "top-letter"})[0]["messages"]
    assert message["content"].count("```") == 2
    assert "class Solution:" in message["content"]
    assert env.reset()[0]["tools"] == "[]"


# ---- hostile answers --------------------------------------------------------------------------------------

HOSTILE = {
    "empty": "",
    "spaces": " " * 200_000,
    "null bytes": "```python\nclass Solution:\n    x = '\x00'\n```",
    "surrogates": "```python\nclass Solution:\n    x = '\ud800'\n```",
    "surrogates in names": "class Solution: \udc00 = 1",
    "operators": "```python\nclass Solution:\n    x = " + "+".join(["1"] * 3000) + "\n```",
    "signs": "class Solution:\n    x = " + "-" * 5000 + "1",
    "200 KB of code": "```python\nclass Solution:\n" + "    x = [1, 2, 3]\n" * 12_000 + "```",
    "200 KB of a line": "class Solution: x = [" + "1," * 100_000 + "]",
    "brackets": "class Solution: x = " + "[" * 100_000,
    "fences": "```" * 70_000,
    "open fence": "```python\n" + " \t" * 100_000,
    "recursion": solution("return self.double(n)"),
    "limitless recursion": solution("import sys; sys.setrecursionlimit(10**9); return self.double(n)"),
    "deep result": solution("x = []\n        for _ in range(10**6): x = [x]\n        return x"),
    "huge result": solution("return 'x' * 10**8"),
    "huge number": solution("return 10**100000"),
    "killer": solution("import os; os.kill(os.getppid(), 9); os.kill(-1, 9)"),
    "threads": solution("[Thread(target=int).start() for _ in range(100)]; return n", "from threading import *\n"),
    "output": solution("print('x' * 10**7); return n * 3"),
    "message": solution("raise ValueError('\\x1b[31m' + 'x' * 10**6)"),
    "crash": solution("import ctypes; ctypes.string_at(0)"),
    "prelude broken": solution("return n", before="import builtins\nbuiltins.len = builtins.all = lambda *a: True\n"),
}  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_hostile_answers_score_and_end(make, answer):
    env = make(time_limit=1.0, efficiency="paired")
    reward, info = step(env, answer)
    assert math.isfinite(reward)
    assert info["status"] != "infrastructure_error"
    assert info["reward_components"]["correctness"] == 0.0
    assert len(info["status"]) < 60
    _, info = step(env, solution("return n * 2"))  # the sandbox goes on
    assert info["status"] == "passed"


# ---- whole data sets --------------------------------------------------------------------------------------


def full_scores(env, count):
    """Answer tasks by their references: all stages full, alike to themselves."""
    tasks = env.unwrapped.tasks
    for index in range(0, len(tasks), max(1, len(tasks) // count)):
        env.reset(options={"task_index": index})
        (answer,) = env.unwrapped.reference()
        _, reward, _, _, info = env.step(answer)
        assert info["status"] == "passed", (info, env.unwrapped.score.verdict)
        assert reward == pytest.approx(1.3), info


def test_builtin_references_score_fully():
    env = gym.make("corrgrpo/LeetCode-v0", split="all", efficiency="off", time_limit=30)
    assert len(env.unwrapped.tasks) == 136
    full_scores(env, 136)


def test_builtin_wrong_answers_and_slow_references():
    env = gym.make("corrgrpo/LeetCode-v0", split="all", efficiency="off", time_limit=30)
    for problem in read_problems()[::12]:
        _, info = step(env, f"```python\n{problem.wrong_answer}```", task_id=problem.id)
        assert info["reward_components"]["correctness"] == 0.0, problem.id
        assert info["reward_components"]["format"] == info["reward_components"]["compile"] == 1.0
        _, info = step(env, f"```python\n{problem.slow_reference}```", task_id=problem.id)
        assert info["reward_components"]["correctness"] == 1.0, problem.id


needs_data = pytest.mark.skipif(not V031.is_file(), reason=f"no data at {DATA}")


@needs_data
def test_rows_of_v031():
    tasks = problems(str(V031))
    assert len(tasks) == 228
    assert Counter(task.kind for task in tasks) == {"easy": 48, "medium": 101, "hard": 79}
    assert {task.split for task in tasks} == {"test"}
    assert sum(from_response(task.data) is not None for task in tasks) == 119
    assert all(from_completion(task.data) == task.data.completion for task in tasks)
    with gzip.open(V031, "rt", encoding="utf-8") as file:
        first = json.loads(next(file))
    env = gym.make("corrgrpo/LeetCode-v0", dataset=str(V031), split="test")
    (message,) = env.reset(options={"task_id": first["task_id"]})[0]["messages"]
    assert message == {"role": "user", "content": first["query"].strip()}


@needs_data
def test_rows_of_v020():
    tasks = problems(str(V020))
    assert len(tasks) == 1890
    assert Counter(task.kind for task in tasks) == {"easy": 515, "medium": 1000, "hard": 375}
    splits = Counter(task.split for task in tasks)
    assert set(splits) == {"train", "validation"}
    assert abs(splits["validation"] / 1890 - 0.1) < 0.03
    assert all(task.data.statement and task.data.starter_code for task in tasks)


@needs_data
def test_a_folder_holds_both(tmp_path):
    for file in (V031, V020):
        (tmp_path / file.name).symlink_to(file)
    assert Counter(task.split in ("train", "validation") for task in problems(str(tmp_path))) == {
        True: 1890,
        False: 228,
    }


@needs_data
def test_a_sample_of_v031_scores_fully():
    full_scores(gym.make("corrgrpo/LeetCode-v0", dataset=str(V031), split="test", efficiency="off", time_limit=60), 12)


@needs_data
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_of_v031_scores_fully():
    full_scores(
        gym.make("corrgrpo/LeetCode-v0", dataset=str(V031), split="test", efficiency="off", time_limit=120), 228
    )


@needs_data
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_published_responses_score_fully():
    env = gym.make(
        "corrgrpo/LeetCode-v0", dataset=str(V031), split="test", efficiency="off", time_limit=120, reference="response"
    )
    passed = 0
    for task in env.unwrapped.tasks:
        env.reset(options={"task_id": task.id})
        if (reference := env.unwrapped.reference()) is not None:
            passed += env.step(reference[0])[4]["status"] == "passed"
    assert passed == 119


def test_limits_of_the_runner():
    assert scoring.Runner().limits == Limits(cpu_seconds=5.0, memory_mb=1024)
