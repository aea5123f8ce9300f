"""Stored running times of references: measured, saved, gone on with, read by the environment."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium as gym
import pytest

import corrgrpo_envs  # noqa: F401 (registers the environments)
from corrgrpo_envs.code import calibrate
from corrgrpo_envs.code.problems import CodeProblem, from_completion
from corrgrpo_envs.sandbox import Isolation, Limits, Outcome, Verdict
from corrgrpo_envs.tasks import Task

RIGHT = "class Solution:\n    def double(self, n):\n        return n * 2\n"
HERE = Isolation("embedded", "3.11.7", True, True, 7, True, True)


def row(task_id: str, completion: str = RIGHT) -> dict[str, str]:
    return {
        "task_id": task_id,
        "query": "Double it.",
        "prompt": "from typing import *\n",
        "entry_point": "Solution().double",
        "test": "def check(candidate):\n    assert candidate(n=2) == 4\n    assert candidate(n=0) == 0\n",
        "completion": completion,
        "response": "",
    }


@dataclass
class Clockwork:
    """Stands for a sandbox whose programs take 1, 2, 3, ... seconds."""

    isolated: Isolation = HERE
    outcome: Outcome = Outcome.PASSED
    judged: list[str] = field(default_factory=list)

    def isolation(self) -> Isolation:
        return self.isolated

    def judge(self, program: str, check: object, limits: Limits) -> Verdict:
        self.judged.append(program)
        return Verdict(self.outcome, cpu_seconds=float(len(self.judged)))


def tasks(count: int) -> list[Task[CodeProblem]]:
    problem = CodeProblem("s", "", "q", "", "def check(c): c()", "f")
    return [
        Task(f"t{n}", "train", CodeProblem(*(getattr(problem, name) for name in problem.__slots__[:6]), f"f = {n}"))
        for n in range(count)
    ]


def measured(sandbox: Clockwork, count: int = 2, **options: object) -> calibrate.Times:
    return calibrate.calibrate(tasks(count), from_completion, sandbox, limits=Limits(), **options)  # type: ignore[arg-type]


def test_a_time_is_the_mean_of_all_runs() -> None:
    rows = measured(Clockwork(), runs=3)
    assert [rows["t0"]["run_times_seconds"], rows["t1"]["run_times_seconds"]] == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert [rows["t0"]["reference_runtime_seconds"], rows["t1"]["reference_runtime_seconds"]] == [2.0, 5.0]


def test_a_reference_that_does_not_pass_has_no_time() -> None:
    sandbox = Clockwork(outcome=Outcome.TIMEOUT)
    rows = measured(sandbox)
    assert (rows["t0"]["status"], rows["t0"]["reference_runtime_seconds"]) == ("timeout", None)
    assert len(sandbox.judged) == 2  # not run again


def test_a_stopped_calibration_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "times.json"

    def stop(rows: calibrate.Times) -> None:
        calibrate.write_times(file, rows)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(Clockwork(), count=25, runs=1, save=stop)
    done = calibrate.read_times(file)
    assert list(done) == [f"t{n}" for n in range(20)]
    sandbox = Clockwork()
    rows = measured(sandbox, count=25, runs=1, done=done)
    assert len(sandbox.judged) == 5
    assert rows.items() >= done.items()
    assert len(rows) == 25


@pytest.mark.parametrize(
    "changed", [{"runs": 2}, {"sandbox": Clockwork(Isolation("docker", "3.11.7", True, False, 7, True, True))}]
)
def test_what_was_measured_otherwise_is_measured_again(changed: dict[str, object]) -> None:
    done = measured(Clockwork(), runs=1)
    sandbox = changed.pop("sandbox", None) or Clockwork()
    assert isinstance(sandbox, Clockwork)
    measured(sandbox, done=done, **{"runs": 1, **changed})
    assert len(sandbox.judged) == 2 * int(changed.get("runs", 1))  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["times.json", "times.jsonl"])
def test_the_environment_reads_the_file(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data, output = tmp_path / "train.jsonl", tmp_path / name
    rows = [row("good"), row("wrong", RIGHT.replace("2", "3")), row("none", "")]
    data.write_text("\n".join(map(json.dumps, rows)))
    assert calibrate.main(["--dataset", str(data), "--output", str(output), "--runs", "2"]) == 0
    assert capsys.readouterr().out == (f"{output}: 3 tasks, 1 with a time\nfailed: wrong\nmissing_reference: none\n")
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted([name, "train.jsonl"])
    env = gym.make(
        "corrgrpo/LeetCode-v0", dataset=str(data), split="all", efficiency="stored", reference_runtimes=str(output)
    )
    for task_id, available in (("good", 1.0), ("wrong", 0.0), ("none", 0.0)):
        env.reset(options={"task_id": task_id})
        *_, info = env.step(f"```python\n{RIGHT}```")
        assert info["status"] == "passed"
        assert info["metrics"]["efficiency_available"] == available


def test_times_of_another_machine_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, output = tmp_path / "train.jsonl", tmp_path / "times.json"
    data.write_text(json.dumps(row("good")))
    text = json.dumps([{"task_id": "good", "machine": "another"}])
    output.write_text(text)
    assert calibrate.main(["--dataset", str(data), "--output", str(output)]) == 1
    assert "times of another machine (another)" in capsys.readouterr().err
    assert output.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--output", "times.csv"], "must end in .json or .jsonl"),
        (["--output", "no/such/times.json"], "there is no folder"),
        (["--output", "times.json", "--runs", "0"], "--runs must be at least 1"),
        (["--output", "times.json", "--dataset", "no-such.jsonl"], "no-such.jsonl"),
        (["--output", "times.json", "--time-limit", "0"], "--time-limit must be a positive number"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert calibrate.main(arguments) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
