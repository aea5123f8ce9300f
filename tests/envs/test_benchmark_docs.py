"""The examples on the pages of the evaluation benchmarks run, and say what they claim."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["apibank", "asb", "humaneval", "injecagent", "livecodebench", "mbpp"])
def test_example(page):
    (code,) = re.findall(r"^```python\n(.*?)^```", (DOCS / f"{page}.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(code, f"{page}.md", "exec"), names)
    told = re.search(r'^info\["reward_components"\]  # (.*)$', code, re.MULTILINE)[1]
    components = names["info"]["reward_components"]
    assert told == str(components).replace("'", '"') if told.startswith("{") else told.split(", ") == list(components)
    assert names["info"]["status"] in re.search(r'^info\["status"\]  # (.*)$', code, re.MULTILINE)[1]
