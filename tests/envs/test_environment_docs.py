"""The documentation's code runs."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")


def test_every_block_runs_in_order_without_a_warning(tmp_path):
    blocks = re.findall(r"^(<!-- example: (\S+) -->\n)?```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    script = []
    for _, file, code in blocks:
        if file:
            (tmp_path / file).write_text(code)
        else:
            script.append(code)
    script.append(
        "env = gym.make('sums/Arithmetic-v0', split='all')\n"
        "env.reset(options={'task_id': '7+8'})\n"
        "step = env.step(env.unwrapped.reference()[0])\n"
        "assert step[1] == 1.2 and step[4]['metrics'] == {'characters': 2.0}, step\n"
        "env.reset(options={'task_id': '7+8'})\n"
        "assert env.step('fourteen or so')[4]['reward_components'] == {'correct': 0.0, 'brief': 3 / 14}\n"
        "envs = gym.make_vec('sums/Arithmetic-v0', 2, 'async')\n"
        "envs.reset(seed=[1, 1]); envs.step(['1', '2']); envs.close()\n"
    )
    (tmp_path / "page.py").write_text("\n".join(script))
    run = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_the_example_is_short():
    code = re.search(r"<!-- example: \S+ -->\n```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]
    assert len([line for line in code.splitlines() if line.strip()]) < 40
