"""Whole runs with modes, dynamic sampling, the length penalty and a reference policy."""

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

from corrgrpo_train.bundles import MODES
from corrgrpo_train.checkpoint import load_checkpoint
from corrgrpo_train.cli import main

ROOT = Path(__file__).parents[2]
SMALL = [
    *("--env", "rollout_envs:rollout/Toy-v0", "--model", "tiny", "--groups-per-step", "3", "--group-size", "4"),
    *("--max-new-tokens", "6", "--max-prompt-tokens", "600", "--learning-rate", "1e-3", "--validation-tasks", "0"),
    *("--checkpoint-every", "2", "--threads", "1", "--no-tensorboard", "--quiet"),
]


def rows(run):
    return [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def weights(checkpoint):
    from safetensors.torch import load_file

    return load_file(checkpoint / "policy" / "model.safetensors")


def test_a_killed_run_with_dynamic_sampling_and_a_reference_continues_bit_for_bit(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = [*SMALL, "--steps", "3", "--warm-start", "2", "--mode", "dapo", "--dynamic-sampling", "letters"]
    arguments += ["--dynamic-sampling-attempts", "2", "--kl-coefficient", "0.05", "--entropy-coefficient", "0.01"]
    arguments += ["--updates-per-rollout", "2", "--group-size", "3", "--checkpoint-every", "1"]
    arguments[1] = "rollout_envs:rollout/Mortal-v0"
    assert main([*arguments, "--output", str(whole)]) == 0
    drawn = [row["groups/drawn"] for row in rows(whole) if "groups/drawn" in row]
    assert sum(drawn) > 3 * 3  # groups were replaced
    # The third step's first environment step; the two reference answers took one each.
    moment = 2 + int(3 * sum(drawn[:2])) + 1
    code = f"import rollout_envs, sys; rollout_envs.MortalEnv.left = {moment}; from corrgrpo_train import cli; "
    process = subprocess.run(
        [sys.executable, "-c", code + "sys.exit(cli.main())", *arguments, "--output", str(killed)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/train'}"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert [row["step"] for row in rows(killed) if "reward/mean" in row] == [1, 2]
    assert main([*arguments, "--output", str(killed), "--resume"]) == 0
    assert rows(killed) == rows(whole)
    one, other = (weights(run / "checkpoints/step_000003") for run in (whole, killed))
    assert all(torch.equal(one[name], other[name]) for name in one)
    states = [load_checkpoint(run / "checkpoints/step_000003") for run in (whole, killed)]
    assert states[0].state == states[1].state
    assert states[0].state["position"] == 2 + sum(drawn)  # 2 tasks of the warm start
    assert rows(whole)[-1]["policy/kl"] > 0


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_runs_and_logs_what_belongs_to_it(tmp_path, mode):
    run = tmp_path / "run"
    assert main([*SMALL, "--steps", "2", "--mode", mode, "--output", str(run)]) == 0
    for row in rows(run):
        if "reward/mean" not in row:
            continue
        assert {"policy/clip_share_low", "policy/clip_share_high", "policy/ratio_max"} <= row.keys()
        assert ("groups/kept" in row) == (mode == "dapo")
        assert ("components/overlong/mean" in row) == (mode == "dapo")
        assert "policy/kl" not in row
    assert not (run / "reference.safetensors").exists()


def test_the_length_penalty_is_a_component_like_any_other(tmp_path):
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "1", "--overlong-share", "0.5", "--transcripts-per-step", "12"]
    arguments += ["--reward-weights", '{"overlong": 0.25, "short": 2}', "--method", "corrgrpo"]
    assert main([*arguments, "--output", str(run)]) == 0
    (row,) = [row for row in rows(run) if "reward/mean" in row]
    means = {name: row[f"components/{name}/mean"] for name in ("letters", "short", "overlong")}
    assert -1 <= means["overlong"] < 0
    assert row["reward/mean"] == pytest.approx(means["letters"] + 2 * means["short"] + 0.25 * means["overlong"])
    assert "estimator/constant_share/overlong" in row  # the estimator has seen it
    for line in (run / "transcripts/step_000001.jsonl").read_text().splitlines():
        episode = json.loads(line)
        length = sum(episode["sampled"])
        assert episode["components"]["overlong"] == pytest.approx(max(-1.0, min(0.0, (3 - length) / 3)))


def test_a_run_whose_reference_is_lost_is_told_in_one_line(tmp_path, capsys):
    run = tmp_path / "run"
    arguments = [*SMALL, "--kl-coefficient", "0.1", "--output", str(run)]
    assert main([*arguments, "--steps", "1"]) == 0
    lost = tmp_path / "lost"
    shutil.copytree(run, lost)
    for damage in ("cut", "gone"):
        file = lost / "reference.safetensors"
        file.write_bytes(file.read_bytes()[:5000]) if damage == "cut" else file.unlink()
        capsys.readouterr()
        assert main([*arguments, "--steps", "2", "--output", str(lost), "--resume"]) == 2
        error = capsys.readouterr().err
        assert "reference.safetensors, the policy that the KL term compares with, is missing or damaged" in error
        assert error.count("\n") == 1
    assert main([*arguments, "--steps", "2", "--resume"]) == 0


def test_a_dynamic_sampling_component_that_does_not_exist_is_told_in_one_line(tmp_path, capsys):
    run = tmp_path / "run"
    assert main([*SMALL, "--steps", "1", "--dynamic-sampling", "lettres", "--output", str(run)]) == 2
    error = capsys.readouterr().err
    assert "dynamic_sampling 'lettres' is unknown" in error
    assert error.count("\n") == 1
    assert not run.exists()
