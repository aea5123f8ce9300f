"""Whole runs with vLLM; `make test-vllm` runs these with vLLM's CPU build."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import rollout_envs  # noqa: F401  (registers the environments)
import torch
from safetensors.torch import load_file

from corrgrpo_train.cli import main

pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SMALL = [
    *("--env", "rollout_envs:rollout/Toy-v0", "--model", "tiny", "--groups-per-step", "3", "--group-size", "4"),
    *("--max-new-tokens", "6", "--max-prompt-tokens", "600", "--max-episode-tokens", "1000", "--autocast", "off"),
    *("--learning-rate", "1e-3", "--validation-tasks", "3", "--validation-every", "2", "--checkpoint-every", "2"),
    *("--threads", "1", "--no-tensorboard"),
]
VLLM = ["--engine", "vllm", "--vllm-memory", "0.1"]


def rows(run, name="metrics.jsonl"):
    return [json.loads(line) for line in (Path(run) / name).read_text().splitlines()]


def weights(run, step):
    return load_file(run / f"checkpoints/step_{step:06}/policy/model.safetensors")


@pytest.mark.parametrize("schedule", ["lockstep", "async"])
def test_a_run_of_several_turns_is_that_of_the_transformers_engine_but_for_the_draws(tmp_path, schedule):
    run = tmp_path / "run"
    arguments = [*SMALL, "--warm-start", "4", "--warm-start-batch", "2"]
    environment = dict(os.environ)
    arguments += ["--env-args", '{"turns": 2}', "--env-workers", "2"]
    assert main([*arguments, *VLLM, "--schedule", schedule, "--steps", "3", "--output", str(run)]) == 0
    # Nothing is left of what vLLM needs while it starts; what its own code sets for itself is its own.
    needed = ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE")
    assert {name: os.environ.get(name) for name in needed} == {name: environment.get(name) for name in needed}
    assert not torch.distributed.is_initialized()
    train = [row for row in rows(run) if "reward/mean" in row]
    assert [row["step"] for row in train] == [1, 2, 3]
    for row in train:
        assert row["episodes/failed"] == 0
        assert row["episodes/status/ok"] == 12
        assert row["tokens/trained"] == 0 or row["policy/engine_mismatch"] < 1e-5
    for row in rows(run, "transcripts/step_000002.jsonl"):
        assert len(row["texts"]) == 2
        assert len(row["tokens"]) == len(row["sampled"]) == len(row["logprobs"])
    # Greedy answers of equal weights are equal whatever engine: those before training.
    other = tmp_path / "other"
    assert main([*arguments, "--steps", "0", "--output", str(other)]) == 0
    for phase in ("base", "warm_start"):
        found = [
            [row for row in rows(folder) if row.get("phase") == phase and "validation/reward" in row]
            for folder in (run, other)
        ]
        assert found[0] == found[1]


def test_a_killed_run_continues_as_if_it_had_not_been(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = [*SMALL, *VLLM, "--steps", "5"]
    arguments[1] = "rollout_envs:rollout/Mortal-v0"
    assert main([*arguments, "--output", str(whole)]) == 0
    # Steps of the environment: 3 tasks validated, 12 a rollout, 3 validated after step 2: the 35th is in step 3.
    code = "import rollout_envs, sys; rollout_envs.MortalEnv.left = 35; from corrgrpo_train import cli; "
    process = subprocess.run(
        [sys.executable, "-c", code + "sys.exit(cli.main())", *arguments, "--output", str(killed)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/train'}"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert [row["step"] for row in rows(killed) if "reward/mean" in row] == [1, 2]
    assert main([*arguments, "--output", str(killed), "--resume"]) == 0
    # Equal batches in equal order, so equal up to rounding; a draw is decided by it once in ten thousand tokens.
    for one, other in zip(rows(killed), rows(whole), strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            if isinstance(value, float):  # nan is written as null
                value = pytest.approx(value, rel=1e-3, abs=1e-4)
            assert other[name] == value, name
    one, other = (weights(run, 5) for run in (whole, killed))
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


def test_the_default_policy_trains(tmp_path):
    run = tmp_path / "run"
    arguments = [
        *("--env", "CorrelatedBandit-v0", "--engine", "vllm", "--schedule", "async", "--steps", "3", "--threads", "1"),
        *("--groups-per-step", "2", "--group-size", "6", "--max-new-tokens", "4", "--max-episode-tokens", "300"),
        *("--max-prompt-tokens", "250", "--warm-start", "8", "--validation-tasks", "4", "--learning-rate", "2e-5"),
        *("--autocast", "off", "--vllm-memory", "0.25", "--no-tensorboard", "--output", str(run)),
    ]
    assert main(arguments) == 0
    train = [row for row in rows(run) if "reward/mean" in row]
    assert [row["step"] for row in train] == [1, 2, 3]
    # Across three pushes, engine and trainer compute the same function.
    assert all(row["tokens/trained"] > 0 for row in train)
    assert all(row["policy/engine_mismatch"] < 1e-4 for row in train)
    assert [row["step"] for row in rows(run) if "validation/reward" in row] == [0, 0, 3]


def test_an_adapter_is_pushed_as_part_of_the_weights(tmp_path):
    run = tmp_path / "run"
    arguments = [
        *SMALL,
        *VLLM,
        "--steps",
        "2",
        "--lora-rank",
        "4",
        "--learning-rate",
        "1e-2",
        "--validation-tasks",
        "0",
    ]
    assert main([*arguments, "--output", str(run)]) == 0
    train = [row for row in rows(run) if "reward/mean" in row]
    assert all(row["tokens/trained"] == 0 or row["policy/engine_mismatch"] < 1e-5 for row in train)
    adapter = load_file(run / "checkpoints/step_000002/policy/adapter_model.safetensors")
    # It began as zeros: what was pushed in step 1 was the model without it, after that not.
    assert any(weight.abs().max() > 1e-3 for name, weight in adapter.items() if "lora_B" in name)


MISTAKES = {
    "memory": (["--vllm-memory", "0.001"], "vLLM can't start: .* vllm_memory=0.001"),
    "argument": (["--vllm-args", '{"max_num_seq": 8}'], "vllm_args 'max_num_seq' is unknown.*'max_num_seqs'"),
    "value": (["--vllm-args", '{"block_size": "big"}'], "vLLM can't start"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_vllm_refuses_is_one_line_and_leaves_no_run_folder(tmp_path, capfd, mistake):
    arguments, message = MISTAKES[mistake]
    assert main([*SMALL, *VLLM, *arguments, "--steps", "1", "--output", str(tmp_path / "run")]) == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if "error: " in line]
    assert len(lines) == 1
    assert re.search(message, lines[0])
    assert not (tmp_path / "run").exists()
