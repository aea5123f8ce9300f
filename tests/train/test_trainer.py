"""Whole runs of the tiny model on small environments, through the command line where a process matters."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import rollout_envs  # noqa: F401  (registers the environments)
import torch

from corrgrpo_train.checkpoint import load_checkpoint
from corrgrpo_train.cli import main
from corrgrpo_train.report.groups import groups_of
from corrgrpo_train.report.runs import read_run

ROOT = Path(__file__).parents[2]
SMALL = [
    *("--env", "rollout_envs:rollout/Toy-v0", "--model", "tiny", "--groups-per-step", "3", "--group-size", "4"),
    *("--max-new-tokens", "6", "--max-prompt-tokens", "600", "--learning-rate", "1e-3", "--validation-tasks", "3"),
    *("--validation-every", "2", "--checkpoint-every", "2", "--threads", "1", "--no-tensorboard"),
]


def rows(run, name="metrics.jsonl"):
    return [json.loads(line) for line in (Path(run) / name).read_text().splitlines()]


def weights(checkpoint):
    from safetensors.torch import load_file

    return load_file(checkpoint / "policy" / "model.safetensors")


@pytest.mark.parametrize("turns", [1, 2])
def test_a_run_writes_what_it_promises(tmp_path, turns):
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "3", "--warm-start", "4", "--warm-start-batch", "2", "--output", str(run)]
    assert main([*arguments, "--env-args", json.dumps({"turns": turns})]) == 0
    metrics = rows(run)
    train = [row for row in metrics if "reward/mean" in row]
    validations = [row for row in metrics if "validation/reward" in row]
    assert [row["step"] for row in train] == [1, 2, 3]
    assert [(row["step"], row.get("phase", "train")) for row in validations] == [
        (0, "base"),
        (0, "warm_start"),
        (2, "train"),
        (3, "train"),
    ]
    assert [row["warm_start/step"] for row in metrics if "warm_start/loss" in row] == [1, 2]
    for row in train:
        weighted = row["components/letters/mean"] + 0.5 * row["components/short/mean"]
        assert row["reward/mean"] == pytest.approx(weighted)
        assert row["episodes/failed"] == 0
        assert row["episodes/status/ok"] == 12
        assert row["tokens/completion_mean"] > 0
        # Engine and trainer compute the same function; "auto" may train in bfloat16.
        assert row["tokens/trained"] == 0 or row["policy/engine_mismatch"] < 0.05
    assert [row["step"] for row in rows(run, "timings.jsonl")] == [1, 2, 3]
    assert all(row["tokens_per_second/rollout"] > 0 for row in rows(run, "timings.jsonl"))
    # The components of all episodes give the numbers that the estimator gave.
    groups = groups_of(read_run(run), 1000)
    for row in train:
        sums = [group.correlation_sum for group in groups if group.step == row["step"]]
        assert len(sums) == 3
        assert sum(sums) / len(sums) == pytest.approx(row["estimator/correlation_sum"], abs=1e-5)
    (first, *_) = rows(run, "transcripts/step_000001.jsonl")
    assert len(first["tokens"]) == len(first["sampled"]) == len(first["logprobs"])
    assert len(first["texts"]) == turns
    checkpoints = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert "step_000003" in checkpoints
    assert (run / "checkpoints/step_000003/COMPLETE").exists()
    assert (run / "curves.png").stat().st_size > 10_000
    assert "reward" in (run / "report.html").read_text("utf-8")
    # The checkpoint's policy is an ordinary folder that a next run can start from.
    again = [*SMALL, "--steps", "1", "--model", str(run / "checkpoints/step_000003/policy")]
    assert main([*again, "--output", str(tmp_path / "again")]) == 0


def test_it_learns(tmp_path):
    # Reward: share of the letter e. A random byte model writes one in 256; the policy gradient finds it.
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "40", "--group-size", "24", "--learning-rate", "3e-3", "--output", str(run)]
    assert main([*arguments, "--reward-weights", '{"short": 0}', "--validation-every", "0", "--autocast", "off"]) == 0
    shares = [row["components/letters/mean"] for row in rows(run) if "reward/mean" in row]
    assert sum(shares[:5]) / 5 < 0.05
    assert sum(shares[-5:]) / 5 > 0.5


# Steps of the environment in the run below: 3 references, 3 tasks validated, 3 validated, 12 a rollout, 3 validated
# after step 2. So the 5th is in the first validation, the 53rd in the rollout of step 4, after step 2's checkpoint.
MOMENTS = {"before any checkpoint": 5, "after a checkpoint": 53}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_continues_to_the_same_metrics_and_weights(tmp_path, moment):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = [*SMALL, "--steps", "7", "--warm-start", "3", "--updates-per-rollout", "2"]
    arguments[1] = "rollout_envs:rollout/Mortal-v0"
    assert main([*arguments, "--output", str(whole)]) == 0
    code = (
        f"import rollout_envs, sys; rollout_envs.MortalEnv.left = {MOMENTS[moment]}; from corrgrpo_train import cli; "
    )
    process = subprocess.run(
        [sys.executable, "-c", code + "sys.exit(cli.main())", *arguments, "--output", str(killed)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/train'}"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    steps = [row["step"] for row in rows(killed) if "reward/mean" in row]
    assert steps == ([] if moment == "before any checkpoint" else [1, 2, 3])
    assert main([*arguments, "--output", str(killed), "--resume"]) == 0
    assert rows(killed) == rows(whole)
    one, other = (weights(run / "checkpoints/step_000007") for run in (whole, killed))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    states = [load_checkpoint(run / "checkpoints/step_000007") for run in (whole, killed)]
    assert states[0].state == states[1].state


def test_only_a_validated_checkpoint_can_be_the_best(tmp_path, monkeypatch):
    rewards = iter([0.1, 0.5, 0.9])  # before training, after steps 2 and 4: each better than the one before
    monkeypatch.setattr(
        "corrgrpo_train.validation.Validator.run", lambda *_: ({"reward": next(rewards), "failed": 0.0}, [])
    )
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "4", "--checkpoint-every", "3", "--keep-checkpoints", "9", "--output", str(run)]
    assert main(arguments) == 0
    best = {step: load_checkpoint(run / f"checkpoints/step_00000{step}").best for step in (0, 3, 4)}
    assert best == {0: True, 3: False, 4: True}


def test_a_finished_run_can_be_made_longer(tmp_path):
    whole, longer = tmp_path / "whole", tmp_path / "longer"
    assert main([*SMALL, "--steps", "4", "--output", str(whole)]) == 0
    assert main([*SMALL, "--steps", "2", "--output", str(longer)]) == 0
    assert main([*SMALL, "--steps", "4", "--output", str(longer), "--resume"]) == 0
    assert rows(longer) == rows(whole)


@pytest.mark.parametrize("fail", ["always", "reset"])
def test_failing_environments_do_not_stop_a_run(tmp_path, fail):
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "2", "--output", str(run), "--env-args", json.dumps({"fail": fail})]
    arguments[1] = "rollout_envs:rollout/Failing-v0"
    assert main([*arguments, "--validation-tasks", "0"]) == 0
    train = [row for row in rows(run) if "episodes/failed" in row]
    assert all(row["episodes/failed"] == 12 for row in train) == (fail == "always")
    assert sum(row["episodes/failed"] for row in train) > 0


def test_one_process_at_a_time_writes_a_run_folder(tmp_path, capsys):
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "1", "--output", str(run)]
    assert main(arguments) == 0
    code = f"import pathlib, time; from corrgrpo_train.run_lock import RunLock; a = RunLock(pathlib.Path({str(run)!r}))"
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "; print('held', flush=True); time.sleep(600)"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        before = (run / "metrics.jsonl").read_bytes()
        capsys.readouterr()
        assert main([*arguments, "--resume", "--steps", "2"]) == 2
        error = capsys.readouterr().err
        assert f"another process is writing {run}" in error
        assert error.count("\n") == 1
        assert (run / "metrics.jsonl").read_bytes() == before
    finally:
        holder.kill()
        holder.wait()
    # However the other ended, its lock has ended with it.
    assert main([*arguments, "--resume", "--steps", "2"]) == 0


def test_a_full_disk_is_told_in_one_line_and_the_run_goes_on_from_there(tmp_path, capsys, monkeypatch):
    run, whole = tmp_path / "run", tmp_path / "whole"
    arguments = [*SMALL, "--steps", "4"]
    assert main([*arguments, "--output", str(whole)]) == 0
    monkeypatch.setattr("corrgrpo_train.tracking._append", lambda path: FullAfter(path.open("a", encoding="ascii"), 6))
    capsys.readouterr()
    assert main([*arguments, "--output", str(run)]) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "--resume" in error
    assert error.count("\n") == 1
    monkeypatch.undo()
    assert main([*arguments, "--output", str(run), "--resume"]) == 0
    assert rows(run) == rows(whole)


def rewrite(checkpoint, name, content):
    """Change a file and its size in the marker, so that only the content is wrong."""
    if name == "optimizer.pt":
        torch.save(content, checkpoint / name)
    else:
        (checkpoint / name).write_text(json.dumps(content))
    sizes = json.loads((checkpoint / "COMPLETE").read_text())
    (checkpoint / "COMPLETE").write_text(json.dumps({**sizes, name: (checkpoint / name).stat().st_size}))


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("old") / "run"
    assert main([*SMALL, "--steps", "1", "--validation-tasks", "1", "--output", str(run)]) == 0
    return run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": "x"}, "position in its state.json is not a count"),
        ({"position": -5}, "position in its state.json is not a count"),
        ({"position": None}, "position in its state.json is not a count"),
        ({"too_long": True}, "too_long in its state.json is not a count"),
        ({"best": "x"}, "best in its state.json is not a number or null"),
        ({"validations": {"last": 5}}, "validations in its state.json is not a mapping of mappings"),
        ({"config_hash": 5}, "config_hash in its state.json is not text"),
        ({"had_signal": 1}, "had_signal in its state.json is not true or false"),
        ({"step": 7}, "state.json is of step 7"),
        ({"state": []}, "config_hash in its state.json is not text"),
        ({"optimizer.pt": {}}, "the optimiser's state"),
        ({"optimizer.pt": {"state": {}, "param_groups": []}}, "the optimiser's state"),
    ],
)
def test_a_checkpoint_of_other_content_is_told_in_one_line(tmp_path, capsys, old_run, change, message):
    run = tmp_path / "run"
    shutil.copytree(old_run, run)
    checkpoint = run / "checkpoints/step_000001"
    content = json.loads((checkpoint / "state.json").read_text())
    ((name, value),) = change.items()
    if name == "optimizer.pt":
        rewrite(checkpoint, name, value)
    elif name in ("step", "state"):
        rewrite(checkpoint, "state.json", {**content, name: value})
    else:
        rewrite(checkpoint, "state.json", {**content, "state": {**content["state"], name: value}})
    before = (run / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main(["--output", str(run), "--resume", "--steps", "2"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "resume from the one before" in error or "step_000000" in error
    assert error.count("\n") == 1
    assert (run / "metrics.jsonl").read_bytes() == before


class FullAfter:
    """A file on a disk that is full after so many lines."""

    def __init__(self, file, lines):
        self.file, self.lines = file, lines

    def write(self, text):
        self.lines -= 1
        if self.lines < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(text)

    def flush(self):
        self.file.flush()

    def fileno(self):
        return self.file.fileno()

    def close(self):
        self.file.close()
        if self.lines < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--resume", "--learning-rate", "1"], "learning_rate 0.001, not 1.0"),
        ([], "already holds a run"),
    ],
)
def test_a_run_is_never_overwritten(tmp_path, capsys, change, message):
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "1", "--output", str(run)]
    assert main(arguments) == 0
    before = (run / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main([*arguments, *change]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert (run / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--validation-split", "test"], "'test'"),
        (["--select-by", "metrics/truns"], "metrics/turns"),
        (["--max-prompt-tokens", "9000"], "lower it"),
        (["--max-prompt-tokens", "5"], "raise --max-prompt-tokens"),
        (["--model", "./nowhere"], "nowhere"),
        (["--warm-start", "3", "--env", "rollout_envs:rollout/Bare-v0"], "reference"),
    ],
)
def test_settings_that_cannot_work_are_told_in_one_line(tmp_path, capsys, change, message):
    arguments = [*SMALL, "--steps", "1", "--output", str(tmp_path / "run"), *change]
    if "--warm-start" in change:
        arguments += ["--validation-tasks", "0"]
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error


def test_a_run_that_could_not_begin_leaves_its_folder_free(tmp_path):
    run = tmp_path / "run"
    bare = [*SMALL, "--steps", "1", "--output", str(run), "--validation-tasks", "0"]
    bare[1] = "rollout_envs:rollout/Bare-v0"
    assert main([*bare, "--warm-start", "2"]) == 2
    assert main(bare) == 0


def test_fewer_steps_than_there_are_is_refused(tmp_path, capsys):
    run = tmp_path / "run"
    arguments = [*SMALL, "--output", str(run), "--validation-tasks", "0"]
    assert main([*arguments, "--steps", "2"]) == 0
    before = (run / "config.yaml").read_text()
    assert main([*arguments, "--steps", "1", "--resume"]) == 2
    assert "already has 2 steps" in capsys.readouterr().err
    assert (run / "config.yaml").read_text() == before


def test_a_run_with_an_adapter_continues_exactly_and_trains_nothing_else(tmp_path):
    from safetensors.torch import load_file

    whole, again = tmp_path / "whole", tmp_path / "again"
    arguments = [*SMALL, "--warm-start", "3", "--lora-rank", "4", "--lora-targets", "q_proj,v_proj", "--seed", "3"]
    arguments += ["--gradient-checkpointing", "--learning-rate", "1e-2"]
    assert main([*arguments, "--steps", "4", "--output", str(whole)]) == 0
    assert main([*arguments, "--steps", "2", "--output", str(again)]) == 0
    assert main(["--output", str(again), "--resume", "--steps", "4"]) == 0
    assert rows(again) == rows(whole)
    folders = [run / "checkpoints/step_000004/policy" for run in (whole, again)]
    one, other = (load_file(folder / "adapter_model.safetensors") for folder in folders)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not (folders[0] / "model.safetensors").exists()
    # Only the layers that were named differ from the model that the run began with.
    from corrgrpo_train.models import build_tiny, load_policy_model

    trained, before = load_policy_model(str(folders[0])).model.state_dict(), build_tiny(3)[0].state_dict()
    changed = {name for name in before if not torch.equal(before[name], trained[name])}
    assert changed == {f"model.layers.{i}.self_attn.{part}_proj.weight" for i in range(4) for part in "qv"}


def test_a_report_that_cannot_be_written_ends_no_run(tmp_path, capsys):
    run = tmp_path / "run"
    assert main([*SMALL, "--steps", "1", "--no-report", "--quiet", "--output", str(run)]) == 0
    shutil.rmtree(run / "checkpoints" / "step_000001")
    (run / "report.html").mkdir()
    capsys.readouterr()
    assert main(["--resume", "--output", str(run), "--report"]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "the report was not drawn" in said
    assert "Groups with a signal" in said


def test_a_finished_run_says_that_nothing_is_left(tmp_path, capsys):
    run = tmp_path / "run"
    assert main([*SMALL, "--steps", "1", "--no-report", "--output", str(run)]) == 0
    capsys.readouterr()
    assert main(["--resume", "--output", str(run)]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "all 1 steps were done before; a larger --steps goes on" in said
    assert "continuing" not in said
