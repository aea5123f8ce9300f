"""What can happen to a run: it goes on, or it stops with one line; nothing saved is lost."""

import errno
import json
import multiprocessing
import os
import random
import signal
import time

import pytest
import rollout_envs
import torch
from safetensors.torch import load_file

from corrgrpo_train import checkpoint
from corrgrpo_train.cli import main
from corrgrpo_train.engines.transformers import TransformersEngine

SMALL = [
    *("--env", "rollout_envs:rollout/Toy-v0", "--model", "tiny", "--groups-per-step", "3", "--group-size", "4"),
    *("--max-new-tokens", "6", "--max-prompt-tokens", "600", "--learning-rate", "1e-3", "--validation-tasks", "2"),
    *("--validation-every", "3", "--checkpoint-every", "2", "--threads", "1", "--no-tensorboard", "--no-report"),
]


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def same_weights(one, other, step):
    first, second = (load_file(run / f"checkpoints/step_{step:06d}/policy/model.safetensors") for run in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def one_line(capsys):
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing happens to."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main([*SMALL, "--steps", "6", "--output", str(run)]) == 0
    return run


# ---- killed ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_at_ten_random_moments(tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    fork, moments = multiprocessing.get_context("fork"), random.Random(0)
    # More steps than ten lives can do: how fast this machine is does not matter.
    arguments = [*SMALL, "--steps", "100000", "--output", str(run)]
    for life in range(100):
        resumed = ["--resume"] if (run / "config.yaml").exists() else []
        process = fork.Process(target=main, args=([*arguments, *resumed],))
        process.start()
        # Lives grow until the first checkpoint is reached on a slow machine.
        time.sleep(moments.uniform(0.1, 2.0) * (1 + life / 10))
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        found = checkpoint.latest_checkpoint(run)
        if life >= 9 and found is not None and checkpoint.step_of(found) >= 4:
            break
    steps = checkpoint.step_of(found) + 3
    assert main(["--resume", "--output", str(run), "--steps", str(steps)]) == 0
    assert main([*SMALL, "--steps", str(steps), "--output", str(whole)]) == 0
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert same_weights(run, whole, steps)


def test_sigterm_in_the_middle_of_a_step(tmp_path, capsys, monkeypatch, whole):
    run, real, calls = tmp_path / "run", TransformersEngine._batch, []

    def batch(self, requests, temperature):
        calls.append(len(requests))
        if len(calls) == 6:  # validation, steps 1 to 3, validation, step 4
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, requests, temperature)

    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "_batch", batch)
        assert main([*SMALL, "--steps", "6", "--output", str(run)]) == 143
    assert f"ended; continue with: python -m corrgrpo_train --resume --output {run}" in one_line(capsys)
    assert main(["--resume", "--output", str(run)]) == 0
    assert rows(run) == rows(whole)
    assert same_weights(run, whole, 6)


def test_rows_are_on_the_disk_when_a_step_is_done(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    run = tmp_path / "run"
    assert main([*SMALL, "--steps", "2", "--validation-tasks", "0", "--output", str(run)]) == 0
    assert synced.count(str(run / "metrics.jsonl")) == len(rows(run)) == 2


# ---- the disk --------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_at_a_checkpoint(tmp_path, capsys, monkeypatch, whole):
    run, real = tmp_path / "run", os.rename

    def rename(source, target):
        if "step_000004" in str(target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        assert main([*SMALL, "--steps", "6", "--output", str(run)]) == 2
    error = one_line(capsys)
    assert "the checkpoint of step 4 could not be saved" in error
    assert "no space left on the disk" in error
    assert main(["--resume", "--output", str(run)]) == 0
    assert rows(run) == rows(whole)
    assert same_weights(run, whole, 6)


def test_a_truncated_checkpoint(tmp_path, capsys, whole):
    run = tmp_path / "run"
    assert main([*SMALL, "--steps", "4", "--output", str(run)]) == 0
    weights = run / "checkpoints/step_000004/policy/model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    before = (run / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main(["--resume", "--output", str(run), "--steps", "6"]) == 2
    error = one_line(capsys)
    assert "step_000004 is damaged (policy/model.safetensors has" in error
    assert f"delete it, and --resume takes the one before: {run}/checkpoints/step_000002" in error
    assert (run / "metrics.jsonl").read_bytes() == before
    for path in sorted((run / "checkpoints/step_000004").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert main(["--resume", "--output", str(run), "--steps", "6"]) == 0
    steps = [row["step"] for row in rows(run) if "reward/mean" in row]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert same_weights(run, whole, 6)


# ---- the engine and the environment ----------------------------------------------------------------------


def test_an_engine_that_raises(tmp_path, capsys, monkeypatch, whole):
    run, real, calls = tmp_path / "run", TransformersEngine._batch, []

    def batch(self, requests, temperature):
        calls.append(len(requests))
        if len(calls) == 6:  # validation, steps 1 to 3, validation, step 4
            raise RuntimeError("the device is lost\nat line 5")
        return real(self, requests, temperature)

    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "_batch", batch)
        assert main([*SMALL, "--steps", "6", "--output", str(run)]) == 2
    error = one_line(capsys)
    assert "error: generation failed: the device is lost; what the run folder holds is kept" in error
    assert [row["step"] for row in rows(run) if "reward/mean" in row] == [1, 2, 3]
    assert main(["--resume", "--output", str(run)]) == 0
    assert rows(run) == rows(whole)


@pytest.mark.parametrize(("env", "failed"), [("Failing-v0", 12), ("Faulty-v0", 12)])
def test_an_environment_that_always_fails(tmp_path, env, failed):
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "2", "--validation-tasks", "0", "--output", str(run)]
    arguments[1] = f"rollout_envs:rollout/{env}"
    extra = {"fail": "always"} if env == "Failing-v0" else {"fault": "memory"}
    assert main([*arguments, "--env-args", json.dumps(extra)]) == 0
    for row in rows(run):
        assert row["episodes/failed"] == failed
        assert row["tokens/trained"] == 0
        assert row["reward/mean"] is None


@pytest.mark.parametrize("scored", [1, 3])
def test_groups_that_lose_members(tmp_path, scored):
    """Of each group of four the first `scored` count; one group of three loses everyone."""
    run = tmp_path / "run"
    rollout_envs.PartlyNanEnv.seen.clear()
    arguments = [*SMALL, "--steps", "2", "--validation-tasks", "0", "--transcripts-per-step", "12"]
    arguments[1] = "rollout_envs:rollout/PartlyNan-v0"
    env_args = json.dumps({"scored": scored, "dead": "toy-2"})
    assert main([*arguments, "--env-args", env_args, "--reward-weights.letters", "1", "--output", str(run)]) == 0
    groups = {}
    for step in (1, 2):
        for line in (run / f"transcripts/step_00000{step}.jsonl").read_text().splitlines():
            row = json.loads(line)
            groups.setdefault(row["task_id"], []).append(row)
    assert len(groups) == 6
    for task, members in groups.items():
        valid = [row for row in members if row["status"] == "ok"]
        assert len(valid) == (0 if task == "toy-2" else scored)
        for row in members:
            if row not in valid:
                assert row["status"] == "infrastructure_error"
                assert row["advantage"] == 0
        # A group that has lost all but one has nothing to compare; others are compared among those left.
        assert sum(row["advantage"] for row in valid) == pytest.approx(0, abs=1e-6)
        if len(valid) == 1:
            assert valid[0]["advantage"] == 0
    failed = [row["episodes/failed"] for row in rows(run)]
    assert sum(failed) == 24 - 5 * scored
    # The policy is still one of numbers, and goes on.
    assert main(["--resume", "--output", str(run), "--steps", "3"]) == 0
