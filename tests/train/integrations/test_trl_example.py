"""The example is run as a person would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

pytestmark = pytest.mark.trl

ROOT = Path(__file__).resolve().parents[3]


def test_the_example_trains(tmp_path):
    ended = subprocess.run(
        [
            *(sys.executable, "examples/trl_training.py", "--env", "CorrelatedBandit-v0", "--model", "tiny"),
            *("--steps", "2", "--groups", "2", "--group-size", "4", "--max-new-tokens", "4", "--limit", "8"),
            *("--estimator", "gdpo", "--output", str(tmp_path / "run")),
        ],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "'estimator/correlation_sum'" in ended.stdout
    assert (tmp_path / "run" / "model.safetensors").is_file()
