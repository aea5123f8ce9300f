"""Runs of the whole trainer: one folder per method and seed, one warm start for all, interrupted and resumed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from corrgrpo_train.benchmark import cli, processes, trainer_runs

pytest.importorskip("scipy")
pytest.importorskip("plotly")
torch.set_num_threads(1)

ARGUMENTS = [
    *("--env", "CorrelatedBandit-v0", "--model", "tiny", "--methods", "corrgrpo,grpo", "--seeds", "1"),
    *("--steps", "4", "--groups-per-step", "2", "--group-size", "4", "--max-new-tokens", "4"),
    *("--learning-rate", "1e-3", "--entropy-coefficient", "0.01"),
    *("--warm-start", "40", "--warm-start-epochs", "3", "--warm-start-learning-rate", "1e-3"),
    *("--validation-every", "2", "--validation-tasks", "4", "--checkpoint-every", "1", "--no-tensorboard"),
    *("--threads", "1", "--quiet"),
]


# The trainer that stays at its second step, however fast the machine is, until it is ended.
HELD = """
import sys, time
from corrgrpo_train import cli, trainer
save = trainer.Trainer._save
def save_and_stay(self, step):
    save(self, step)
    while step == 2:
        time.sleep(0.1)
trainer.Trainer._save = save_and_stay
sys.exit(cli.main())
"""


def metrics(folder):
    return {path.parent.name: path.read_text() for path in sorted(folder.glob("runs/*/metrics.jsonl"))}


@pytest.mark.slow
def test_a_comparison_of_models_is_interrupted_and_goes_on(tmp_path, monkeypatch, capsys):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli.main([*ARGUMENTS, "--jobs", "2", "--output", str(whole)]) == 0

    shutil.copytree(whole / "starts", broken / "starts")
    one = [word.replace("corrgrpo,grpo", "corrgrpo") for word in ARGUMENTS]
    waited, prepare = processes.time.sleep, trainer_runs._prepare

    def until_a_step(seconds):
        waited(seconds)
        rows = [line for text in metrics(broken).values() for line in text.splitlines()]
        if any(json.loads(line)["step"] >= 2 for line in rows):
            monkeypatch.setattr(processes.time, "sleep", waited)  # once: the wait for the run's end sleeps as well
            raise KeyboardInterrupt

    monkeypatch.setattr(processes.time, "sleep", until_a_step)
    monkeypatch.setattr(trainer_runs, "_prepare", lambda job: [sys.executable, "-c", HELD, *prepare(job)[3:]])
    assert cli.main([*one, "--output", str(broken)]) == 130
    monkeypatch.setattr(trainer_runs, "_prepare", prepare)
    assert not list(broken.glob("runs/*/result.json"))
    assert cli.main([*one, "--output", str(broken)]) == 0
    # The same bit for bit, and the one that was cut off did not begin again.
    assert len(metrics(whole)) == 2
    assert metrics(broken).items() < metrics(whole).items()
    assert any("continuing after step" in log.read_text() for log in broken.glob("runs/*.log"))

    configs = [yaml.safe_load(path.read_text()) for path in whole.glob("runs/*/config.yaml")]
    assert {config["method"] for config in configs} == {"corrgrpo", "grpo"}
    assert len({config["model"] for config in configs}) == 1, "both begin with the same policy"
    assert {config["warm_start"] for config in configs} == {0}
    assert not list(whole.glob("runs/*/checkpoints")), "checkpoints of finished runs are deleted"

    comparison = json.loads((whole / "comparison.json").read_text())
    first, second = comparison["conditions"][0]["rows"]
    rows = [json.loads(line) for line in next(whole.glob("runs/corrgrpo*/metrics.jsonl")).read_text().splitlines()]
    held_out = {row["step"]: row["validation/reward"] for row in rows if "validation/reward" in row}
    assert list(held_out) == [0, 2, 4]
    assert first["values"]["reward/final"]["mean"] == pytest.approx(held_out[4])
    area = (held_out[0] + held_out[2]) / 4 + (held_out[2] + held_out[4]) / 4
    assert first["values"]["reward/area"]["mean"] == pytest.approx(area)
    entropies = [row["policy/entropy"] for row in rows if "policy/entropy" in row]
    assert first["values"]["entropy/final"]["mean"] == pytest.approx(entropies[-1])
    assert second["differences"]["reward/final"]["count"] == 1

    # A third call trains nothing.
    monkeypatch.setattr(processes.subprocess, "Popen", None)
    assert cli.main([*ARGUMENTS, "--output", str(whole)]) == 0
    assert "reward final" in capsys.readouterr().out


def test_a_run_that_fails_is_told_with_its_last_words(tmp_path, monkeypatch, capsys):
    """The process ends with an error after the settings were found right."""
    monkeypatch.setattr(
        "corrgrpo_train.benchmark.trainer_runs._prepare",
        lambda job: _failing(job.folder.parent),
    )
    assert cli.main([*ARGUMENTS, "--warm-start", "0", "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "2 of 2 runs failed" in said
    assert "error: the machine is on fire" in said
    assert said.count("\n") == 1


def _failing(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    return ["sh", "-c", "echo 'corrgrpo_train: error: the machine is on fire' >&2; exit 2"]


def test_a_run_that_outlived_its_comparison_is_left_alone(tmp_path, monkeypatch, capsys):
    """A comparison that is killed leaves its runs going: the next one neither deletes nor resumes what they write."""
    holder = (
        "import sys, fcntl\nfile = open(sys.argv[1], 'a')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\nsys.stdin.read()\n"
    )
    one = [word.replace("corrgrpo,grpo", "grpo") for word in ARGUMENTS]
    folders = []

    def started(job):
        folders.append(job.folder)
        return _failing(job.folder.parent)

    prepare = trainer_runs._prepare
    monkeypatch.setattr(trainer_runs, "_prepare", started)
    assert cli.main([*one, "--warm-start", "0", "--output", str(tmp_path)]) == 2
    capsys.readouterr()
    (folder,) = folders
    (folder / "checkpoints" / ".tmp-step_000001").mkdir(parents=True)
    monkeypatch.setattr(trainer_runs, "_prepare", prepare)
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(folder / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"locked\n"
        assert cli.main([*one, "--warm-start", "0", "--output", str(tmp_path)]) == 2
        other.stdin.close()
    assert f"another process is writing {folder}" in capsys.readouterr().err
    assert (folder / "checkpoints" / ".tmp-step_000001").is_dir()


def test_wrong_settings_start_nothing(tmp_path, capsys):
    assert cli.main([*ARGUMENTS, "--methods", "grpo,corgrpo", "--output", str(tmp_path)]) == 2
    assert "Did you mean 'corrgrpo'" in capsys.readouterr().err
    assert cli.main([*ARGUMENTS, "--sweep", "env_args.noise=0.1,-1", "--output", str(tmp_path)]) == 2
    assert "noise" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))
