"""Runs of two processes against the same run of one."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import rollout_envs  # noqa: F401  (registers the environments)
import torch
from safetensors.torch import load_file

from corrgrpo_train.cli import main
from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.packing import micro_batches, without_targets
from corrgrpo_train.policy import Policy
from corrgrpo_train.processes import Processes
from corrgrpo_train.rollout import Chat, Limits
from corrgrpo_train.rollout.episode import TokenSequence
from corrgrpo_train.rollout.groups import GroupSampler

ROOT = Path(__file__).parents[2]
RATE = 1e-3
# Five groups for two processes, and micro-batches of a group at most: uneven shares of both.
SMALL = [
    *("--env", "rollout_envs:rollout/Toy-v0", "--model", "tiny", "--groups-per-step", "5", "--group-size", "3"),
    *("--max-new-tokens", "6", "--max-prompt-tokens", "600", "--learning-rate", str(RATE), "--validation-tasks", "3"),
    *("--validation-every", "0", "--checkpoint-every", "1", "--keep-checkpoints", "9", "--threads", "1"),
    *("--no-tensorboard", "--no-report", "--autocast", "off", "--token-budget", "400"),
]


def torchrun(*arguments, start=("-m", "corrgrpo_train"), count=2):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/train'}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *start, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process, timeout=150):
    """Output and error output; the processes are ended where they take too long."""
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate(timeout=30)
        pytest.fail(f"no end after {timeout} s\n{out}\n{err}")


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def saved(run, step, name="model"):
    folder = run / f"checkpoints/step_{step:06d}"
    moments = torch.load(folder / "optimizer.pt")["state"]
    return load_file(folder / "policy" / f"{name}.safetensors"), moments


def assert_close(found, expected, tolerance):
    """Every number of the rows is equal within a relative tolerance; the names are the same."""
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for mine, row in zip(found, expected, strict=True):
        for name, value in row.items():
            same = value is None or isinstance(value, str)
            wanted = value if same else pytest.approx(value, rel=tolerance, abs=tolerance)
            assert mine[name] == wanted, f"{name} of step {row['step']}"


CASES = {
    "each has all weights": (
        ["--method", "shuffled", "--kl-coefficient", "0.1", "--entropy-coefficient", "0.01", "--warm-start", "5"],
        ["--warm-start-batch", "3"],
        "model",
    ),
    "each has a part of the weights": (
        ["--method", "gdpo", "--kl-coefficient", "0.1", "--updates-per-rollout", "2", "--gradient-checkpointing"],
        ["--sharding", "fsdp"],
        "model",
    ),
    "each has a part, with an adapter": (
        ["--method", "matched", "--kl-coefficient", "0.1", "--lora-rank", "4", "--env-args", '{"turns": 2}'],
        ["--sharding", "fsdp"],
        "adapter_model",
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if "adapter" in case else []) for case in CASES]
)
def test_two_processes_do_what_one_does(tmp_path, case):
    options, extra, name = CASES[case]
    one, two = tmp_path / "one", tmp_path / "two"
    process = torchrun(*SMALL, *options, *extra, "--steps", "2", "--output", str(two))
    assert main([*SMALL, *options, *extra, "--steps", "2", "--output", str(one)]) == 0
    out, err = finished(process)
    assert process.returncode == 0, err
    # The first process alone speaks and writes.
    assert out.count("step 1/2") == 1
    assert len((two / "timings.jsonl").read_text().splitlines()) == 2
    assert sorted(path.name for path in two.iterdir()) == sorted(path.name for path in one.iterdir())
    # Before the first update everything is the same up to rounding, its gradient too.
    first = next(number for number, row in enumerate(rows(one)) if row["step"] == 1 and "reward/mean" in row)
    once = "--updates-per-rollout" not in options
    assert_close(rows(two)[: first + once], rows(one)[: first + once], 1e-4)
    weights, moments = saved(one, 1, name)
    others, other_moments = saved(two, 1, name)
    assert weights.keys() == others.keys()
    assert moments.keys() == other_moments.keys()
    if once:
        for index, entry in moments.items():
            scale = entry["exp_avg"].abs().max()
            assert torch.allclose(entry["exp_avg"], other_moments[index]["exp_avg"], rtol=1e-3, atol=1e-4 * scale)
    # Adam divides a gradient by its size: where it is nothing but rounding, the weight moves either way by as much as
    # the learning rate. Everywhere else it moves the same way.
    moved = torch.cat([(weights[key] - others[key]).abs().flatten() for key in weights])
    assert moved.max() <= 4.1 * RATE
    assert moved.mean() < 0.01 * RATE
    assert (moved > 0.01 * RATE).float().mean() < 0.01


@pytest.mark.slow
def test_a_run_goes_on_under_another_number_of_processes(tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    options = ["--kl-coefficient", "0.1", "--sharding", "fsdp"]
    assert main([*SMALL, *options, "--steps", "1", "--output", str(run)]) == 0
    assert main([*SMALL, *options, "--steps", "2", "--output", str(whole)]) == 0
    process = torchrun("--resume", "--output", str(run), "--steps", "2")
    _, err = finished(process)
    assert process.returncode == 0, err
    assert_close(rows(run)[-2:], rows(whole)[-2:], 1e-3)
    assert main(["--resume", "--output", str(run), "--steps", "3"]) == 0
    assert [row["step"] for row in rows(run) if "reward/mean" in row] == [1, 2, 3]


FAILING = """
import os, sys
import corrgrpo_train.update
if os.environ["RANK"] == "1":
    from corrgrpo_train.errors import UsageError
    def fails(*arguments, **options):
        {fault}
    corrgrpo_train.update.clipped_step = fails
from corrgrpo_train.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ('raise UsageError("the second process alone has this")', "error: the second process alone has this"),
        pytest.param("os.kill(os.getpid(), 9)", "error: another process of the run has ended", marks=pytest.mark.slow),
    ],
    ids=["error", "killed"],
)
def test_an_error_of_one_process_ends_all_with_one_line(tmp_path, fault, message):
    script, run = tmp_path / "failing.py", tmp_path / "run"
    script.write_text(FAILING.format(fault=fault))
    process = torchrun(*SMALL, "--steps", "2", "--output", str(run), start=(str(script),))
    _, err = finished(process)
    assert process.returncode != 0
    said = [line for line in err.splitlines() if line.startswith("corrgrpo_train: ")]
    assert len(said) == 1, err
    assert message in said[0]
    assert "Traceback" not in err.partition("torch/distributed/elastic")[0], err
    assert (run / "checkpoints/step_000000/COMPLETE").exists()


@pytest.mark.slow
def test_wrong_settings_are_told_once(tmp_path):
    process = torchrun(*SMALL, "--method", "nope", "--output", str(tmp_path / "run"))
    _, err = finished(process)
    assert process.returncode != 0
    assert err.count("corrgrpo_train: error: ") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sigterm_ends_a_run_with_one_line_and_it_goes_on_exactly(tmp_path, count):
    run = tmp_path / "run"
    arguments = [*SMALL, "--steps", "500", "--validation-tasks", "0", "--groups-per-step", "2", "--output", str(run)]
    if count == 1:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/train'}"}
        process = subprocess.Popen(
            [sys.executable, "-m", "corrgrpo_train", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    else:
        process = torchrun(*arguments)
    for _ in range(1200):
        if (run / "checkpoints/step_000002/COMPLETE").exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = finished(process)
    said = [line for line in err.splitlines() if line.startswith("corrgrpo_train: ")]
    assert len(said) == 1, err
    assert said[0].startswith("corrgrpo_train: ended; continue with: python -m corrgrpo_train --resume --output")
    if count == 1:
        assert process.returncode == 143
        assert err.count("\n") == 1
    steps = max(int(path.name[-6:]) for path in (run / "checkpoints").glob("step_*"))
    assert main(["--resume", "--output", str(run), "--steps", str(steps + 1)]) == 0
    assert [row["step"] for row in rows(run)] == list(range(1, steps + 2))


# ---- without processes -----------------------------------------------------------------------------------


class Simulated(Processes):
    """Processes as threads of this one, which exchange through a list."""

    def __init__(self, rank, count, barrier, table):
        super().__init__(rank, count)
        self.barrier, self.table = barrier, table

    def gather(self, item):
        self.table[self.rank] = item
        self.barrier.wait(60)
        found = list(self.table)
        self.barrier.wait(60)
        return found

    def of_first(self, call):
        return self.gather(call() if self.first else None)[0]


def together(count, work):
    """Call `work(processes)` in so many threads and return what each returns."""
    barrier, table, results = threading.Barrier(count), [None] * count, [None] * count

    def run(rank):
        results[rank] = work(Simulated(rank, count, barrier, table))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("length", [0, 1, 5, 6])
def test_shares_are_put_together_again(count, length):
    items = list(range(length))
    assert together(count, lambda processes: processes.merge(processes.share(items))) == [items] * count


@pytest.mark.parametrize("count", [2, 4])
def test_every_process_has_the_episodes_that_one_would_have(tiny, count):
    model, tokenizer = tiny
    chat = Chat(tokenizer, range(100, 130))

    def rollouts(processes):
        engine = TransformersEngine(model, sorted(chat.eos_ids))
        sampler = GroupSampler(
            "rollout/Toy-v0",
            {"turns": 2},
            chat,
            groups=3,
            group_size=2,
            max_prompt_tokens=400,
            seed=1,
            processes=processes,
        )
        episodes = [
            episode
            for step in range(2)
            for episode in sampler.rollout(engine, Limits(8, 4000), temperature=1.0, key=(5, step))
        ]
        return episodes, sampler.position, sampler.too_long, len(sampler.runners)

    (alone, position, too_long, made) = rollouts(Processes())
    assert made == 6
    for episodes, *state, runners in together(count, rollouts):
        assert state == [position, too_long]
        assert runners < made
        assert [(e.group, e.member, e.task_id, e.texts) for e in episodes] == [
            (e.group, e.member, e.task_id, e.texts) for e in alone
        ]
        assert [e.components for e in episodes] == [e.components for e in alone]


def test_a_batch_without_targets_adds_nothing(tiny):
    policy = Policy(tiny[0])
    sequence = TokenSequence([5, 6, 7, 8], [False, False, True, True], [0.0] * 4)
    (batch,) = micro_batches([sequence], [0], 100)
    scores = policy.score(without_targets(batch), 1.0, entropy_gradient=True)
    assert scores.logprobs.shape == scores.entropies.shape == (0,)
    scores.logprobs.sum().backward()
    assert all(weight.grad is None or not weight.grad.any() for weight in policy.parameters())
