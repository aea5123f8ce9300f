"""The page's code and the example run."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "leetcode.md").read_text(encoding="utf-8")


def test_every_block_runs_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    names = {"__name__": "page"}
    exec(compile(blocks[0], "leetcode.md", "exec"), names)
    assert names["info"]["status"] == "passed"
    exec(compile(blocks[1], "leetcode.md", "exec"), names)
    assert names["speed"].counted == (0,) * 8  # the program of the page passes nothing


def test_components_and_weights_of_the_page():
    from corrgrpo_envs.code.leetcode import LeetCodeEnv

    rows = re.findall(r"^\| `(\w+)` \| (0\.\d+) \|", PAGE, re.MULTILINE)
    assert [(name, float(weight)) for name, weight in rows] == [(c.name, c.weight) for c in LeetCodeEnv.components]


def test_metrics_and_options_of_the_page():
    import inspect

    from corrgrpo_envs.code.leetcode import LeetCodeEnv

    for name in (*LeetCodeEnv.metric_names, *inspect.signature(LeetCodeEnv.__init__).parameters):
        assert name == "self" or f"`{name}`" in PAGE, name


def test_the_example_shows_every_kind_of_answer():
    run = subprocess.run(
        [sys.executable, "-m", "examples.leetcode_answers"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert [line.split()[-1] for line in run.stdout.splitlines()[1:]] == [
        *("passed", "passed", "passed", "failed", "exception", "syntax_error", "empty_code")
    ]
