"""Workers of the sandbox die while a run scores programs: no verdict is wrong, and the run goes on."""

import contextlib
import json
import os
import signal
import threading

import gymnasium as gym
import pytest

from corrgrpo_envs.code.leetcode import LeetCodeEnv
from corrgrpo_envs.sandbox import pool
from corrgrpo_train.checkpoint import latest_checkpoint, step_of
from corrgrpo_train.cli import main

SPIN = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\n"
WRONG = "class Solution:\n    def __getattr__(self, name):\n        return lambda *given, **named: 'none of these'\n"
RAISES = "class Solution:\n    def __getattr__(self, name):\n        raise KeyError(name)\n"
ENV = "faults/Canned-v0"
SMALL = [
    *("--env", ENV, "--env-args", '{"difficulty": "easy", "efficiency": "off"}', "--model", "tiny"),
    *("--groups-per-step", "2", "--group-size", "3", "--max-new-tokens", "5", "--max-prompt-tokens", "4000"),
    *("--learning-rate", "1e-3", "--steps", "3", "--validation-tasks", "2", "--checkpoint-every", "1"),
    *("--transcripts-per-step", "6", "--threads", "1", "--no-tensorboard", "--no-report", "--quiet"),
]


def kind(text):
    """Which of four programs an answer stands for: a random model writes none."""
    return sum(map(ord, text)) % 4


def kill_workers():
    for sandbox in list(pool._open):
        for worker in list(sandbox._workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker._link._process.pid, signal.SIGKILL)


class CannedEnv(LeetCodeEnv):
    """Takes a right, a wrong, a raising or an unreadable program for what the model wrote.

    Attributes:
        answered: answers scored so far by this process.
        hit: numbers of the answers during which all workers are killed once.
        storm: numbers of the answers during which they are killed again and again.
    """

    answered = 0
    hit = frozenset()
    storm = frozenset()

    def answer(self, text):
        CannedEnv.answered += 1
        right = self.reference()[0].replace("class Solution", f"{SPIN}\nclass Solution", 1)
        program = [right, f"```python\n{SPIN}{WRONG}```", f"```python\n{RAISES}```", "```python\nclass Solution(\n```"]
        over = threading.Event()
        killer = threading.Thread(target=self._kill, args=(CannedEnv.answered, over))
        killer.start()
        try:
            return super().answer(program[kind(text)])
        finally:
            over.set()
            killer.join()

    def _kill(self, number, over):
        if number in self.hit:
            over.wait(0.05)
            kill_workers()
        while number in self.storm and not over.wait(0.001):
            kill_workers()


if ENV not in gym.registry:
    gym.register(ENV, CannedEnv)


def run(folder, *, hit=(), storm=()):
    CannedEnv.answered, CannedEnv.hit, CannedEnv.storm = 0, frozenset(hit), frozenset(storm)
    assert main([*SMALL, "--output", str(folder)]) == 0
    assert CannedEnv.answered == 22  # a validation of two tasks, three steps of six episodes, a validation
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def scored(folder):
    """(task, program) to status and components, and every row of the steps' transcripts."""
    rows = [
        json.loads(line)
        for file in sorted((folder / "transcripts").glob("step_*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return {(row["task_id"], kind(row["texts"][0])): (row["status"], row["components"]) for row in rows}, rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing happens to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, run(folder)


def test_the_programs_are_what_they_are_called(whole):
    expected = {0: ("passed",), 1: ("failed", "test_error"), 2: ("exception",), 3: ("syntax_error",)}
    found, _ = scored(whole[0])
    for (_, number), (status, components) in found.items():
        assert status in expected[number]
        assert components["correctness"] == (number == 0)
    assert {number for _, number in found} >= {0, 3}


def test_workers_killed_in_the_middle_change_nothing(tmp_path, whole):
    assert run(tmp_path / "run", hit=range(1, 23, 2)) == whole[1]


def test_workers_killed_again_and_again_cost_their_episodes_only(tmp_path, whole):
    rows = run(tmp_path / "run", storm=range(9, 15))  # the whole second step
    _, episodes = scored(tmp_path / "run")
    steps = [row for row in rows if "reward/mean" in row]
    lost = [row for row in episodes if row["status"] == "infrastructure_error"]
    assert lost
    assert [row["episodes/failed"] for row in steps] == [0, len(lost), 0]
    assert steps[0] == next(row for row in whole[1] if "reward/mean" in row)
    for row in episodes:
        status, components = row["status"], row["components"]
        if row in lost:
            assert row["advantage"] == 0
            # What the sandbox did not find out is unknown, and what it did is right.
            assert components["correctness"] is None
        else:
            assert (status == "passed") == (components["correctness"] == 1) == (kind(row["texts"][0]) == 0)
    assert step_of(latest_checkpoint(tmp_path / "run")) == 3
    assert main(["--resume", "--output", str(tmp_path / "run"), "--steps", "4"]) == 0
