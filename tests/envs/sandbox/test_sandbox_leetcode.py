"""References of real data pass, and fail once one of their results is spoiled."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from corrgrpo_envs.sandbox import Check, Limits, Outcome, Sandbox

LIMITS = Limits(cpu_seconds=30.0, memory_mb=1024)
SPOILED = """
class _Spoiler:
    def __init__(self, function):
        self.function, self.count = function, 0
    def __call__(self, *positional, **named):
        self.count += 1
        result = self.function(*positional, **named)
        return {"spoiled": True} if self.count == %d else result
_spoiled = _Spoiler(%s)
"""


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def parts(row: dict[str, Any]) -> tuple[str, Check]:
    program = f"{row['prompt']}\n{row['completion']}"
    return program, Check(test=row["test"], entry_point=row["entry_point"], setup=row["prompt"])


def judged(sandbox: Sandbox, sample: list[dict[str, Any]]) -> None:
    """Judge each reference, then the same with its last compared result replaced."""
    for row in sample:
        program, check = parts(row)
        verdict = sandbox.judge(program, check, LIMITS)
        assert verdict.passed, (row["task_id"], verdict)
        spoiled = Check(check.test, "_spoiled", check.setup)
        wrong = sandbox.judge(program + SPOILED % (verdict.calls, row["entry_point"]), spoiled, LIMITS)
        assert wrong.outcome in (Outcome.FAILED, Outcome.TEST_ERROR), (row["task_id"], wrong)


def test_sample_of_the_test_split(embedded: Sandbox, data: Path) -> None:
    judged(embedded, rows(data / "leetcode" / "LeetCodeDataset-v0.3.1-test.jsonl.gz")[::20])


def test_sample_with_nodes_of_the_train_split(embedded: Sandbox, data: Path) -> None:
    with_nodes = [
        row
        for row in rows(data / "leetcode" / "LeetCodeDataset-v0.2.0-train.jsonl.gz")
        if any(helper in row["test"] for helper in ("is_same_list(", "is_same_tree(", "list_node(", "tree_node("))
    ]
    assert len(with_nodes) == 121
    judged(embedded, with_nodes[::12])


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("quarter", range(4))
def test_whole_test_split(embedded: Sandbox, data: Path, quarter: int) -> None:
    every = rows(data / "leetcode" / "LeetCodeDataset-v0.3.1-test.jsonl.gz")
    assert len(every) == 228
    judged(embedded, every[quarter::4])


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_300_of_the_train_split(embedded: Sandbox, data: Path) -> None:
    judged(embedded, rows(data / "leetcode" / "LeetCodeDataset-v0.2.0-train.jsonl.gz")[::6][:300])


def humaneval(sandbox: Sandbox, sample: list[dict[str, Any]]) -> list[Any]:
    failed = []
    for row in sample:
        # Some tests call the function by its own name too, or helpers that the prompt defines.
        entry = row["entry_point"]
        check = Check(test=row["test"], entry_point=entry, setup=row["prompt"] + "    pass\n", names=(entry,))
        verdict = sandbox.judge(row["prompt"] + row["canonical_solution"], check, LIMITS)
        if not verdict.passed:
            failed.append((row["task_id"], verdict))
    return failed


def test_sample_of_humaneval(embedded: Sandbox, data: Path) -> None:
    assert not humaneval(embedded, rows(data / "humaneval" / "HumanEval.jsonl.gz")[::16])


@pytest.mark.slow
def test_whole_humaneval(embedded: Sandbox, data: Path) -> None:
    every = rows(data / "humaneval" / "HumanEval.jsonl.gz")
    assert len(every) == 164
    assert not humaneval(embedded, every)


def mbpp(sandbox: Sandbox, sample: list[dict[str, Any]]) -> list[Any]:
    """Judge reference programs; functions and classes of a program are those that its tests may name."""
    failed = []
    for row in sample:
        names = sorted(set(re.findall(r"^(?:def|class) +(\w+)", row["code"], re.MULTILINE)))
        body = "\n".join("    " + line for text in row["test_list"] for line in text.splitlines())
        setup = "\n".join(row.get("test_imports", [row.get("test_setup_code", "")]))
        # Tests share the program's imports where there is no sandbox.
        setup += "\n" + "\n".join(re.findall(r"^(?:import|from) .*$", row["code"].replace("\r", ""), re.MULTILINE))
        entry = next(name for name in names if any(f"{name}(" in text for text in row["test_list"]))
        # A function of a program may be called `check` itself.
        check = Check(f"def check(candidate):\n    {entry} = candidate\n{body}", entry, setup=setup, names=names)
        verdict = sandbox.judge(f"{setup}\n{row['code']}", check, LIMITS)
        if not verdict.passed:
            failed.append((row["task_id"], verdict))
    return failed


def mbpp_test_split(data: Path) -> list[dict[str, Any]]:
    lines = (data / "mbpp" / "mbpp.jsonl").read_text(encoding="utf-8").splitlines()
    found = [row for row in map(json.loads, lines) if 11 <= row["task_id"] <= 510]
    assert len(found) == 500
    return found


def test_sample_of_mbpp(embedded: Sandbox, data: Path) -> None:
    assert not mbpp(embedded, mbpp_test_split(data)[::25])


def test_mbpp_with_classes_of_the_program(embedded: Sandbox, data: Path) -> None:
    lines = (data / "mbpp" / "mbpp.jsonl").read_text(encoding="utf-8").splitlines()
    assert not mbpp(embedded, [row for row in map(json.loads, lines) if row["task_id"] == 601])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_whole_mbpp(embedded: Sandbox, data: Path) -> None:
    """What is not carried: the tests of 367 set attributes of objects that the program's class makes."""
    assert {task for task, _ in mbpp(embedded, mbpp_test_split(data))} == {367}
    sanitized = json.loads((data / "mbpp" / "sanitized-mbpp.json").read_text(encoding="utf-8"))
    assert len(sanitized) == 427
    assert not mbpp(embedded, sanitized)
