"""The example runs as its first lines say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "agent_loop.py"), *arguments],
        env={"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def total(output):
    return float(re.search(r"total +mean (\S+)", output)[1])


def test_the_reference_beats_a_random_arm():
    outputs = [run("--episodes", "40", "--policy", policy) for policy in ("random", "reference")]
    assert [output.stderr for output in outputs] == ["", ""]
    lower, higher = (total(output.stdout) for output in outputs)
    # The mean of an arm's total is 0, the expected best of 8 totals of standard deviation sqrt(3) about 2.5.
    assert abs(lower) < 1.2
    assert 1.8 < higher < 3.2
    assert "reward_3" in outputs[0].stdout


def test_any_id_also_of_another_package():
    output = run("--env", "toy_envs:toy/Multi-v0", "--episodes", "5")
    assert output.stderr == ""
    assert re.search(r"turns +weight 1 +mean 3\.000", output.stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--env", "corrgrpo/CorrelatedBandt-v0"], "CorrelatedBandit"),
        (["--split", "trian"], "Did you mean 'train'?"),
        (["--episodes", "0"], "--episodes must be at least 1"),
        (["--env", "toy_envs:toy/Multi-v0", "--policy", "reference"], "has no reference"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, words):
    output = run(*arguments)
    assert output.returncode != 0
    assert words in output.stderr.strip().splitlines()[-1]
    assert "Traceback" not in output.stderr
