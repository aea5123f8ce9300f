"""The Python of docs/trl.md is run, with a tiny model in place of the one that it names, and for one step."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

from trl_models import tiny_policy

pytestmark = pytest.mark.trl

ROOT = Path(__file__).resolve().parents[3]
SMALLER = {
    "max_steps=100": "max_steps=1, max_completion_length=8, logging_steps=1, report_to='none', use_cpu=True",
    ", max_completion_length=4096": "",
    "limit=200": "limit=1",
}


def test_the_pages_python_runs(tmp_path):
    pytest.importorskip("agentdojo")
    page = (ROOT / "docs" / "trl.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert [("environment_factory" in block, "trainer.train()" in block) for block in blocks] == [
        (False, True),
        (True, True),
    ]
    model, tokenizer = tiny_policy(tools=True)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    code = "\n".join(blocks)
    for text, instead in {"Qwen/Qwen2.5-1.5B-Instruct": str(tmp_path / "model"), **SMALLER}.items():
        assert text in code
        code = code.replace(text, instead)
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("'estimator/correlation_sum'") == 2
