"""Profiles of environments that have one, with a tiny model in place of the default one."""

import importlib.util
import json

import pytest

from corrgrpo_train import cli

SMALL = [
    *("--model", "tiny", "--threads", "1", "--steps", "1", "--groups-per-step", "2", "--group-size", "2"),
    *("--max-new-tokens", "8", "--max-prompt-tokens", "2500", "--warm-start", "2", "--validation-tasks", "2"),
    *("--token-budget", "4096", "--no-tensorboard", "--no-report", "--quiet"),
]


@pytest.mark.skipif(importlib.util.find_spec("agentdojo") is None, reason="needs pip install 'corrgrpo[agentdojo]'")
def test_agentdojo(tmp_path, capsys):
    assert cli.main(["--env", "AgentDojo-v0", "--device", "cpu", *SMALL, "--output", str(tmp_path / "run")]) == 0
    told = capsys.readouterr()
    assert "profile cpu/AgentDojo-v0 sets" in told.err
    # A random model says nothing that is a call: every answer leaves the state as it is, so no group has a signal.
    assert "Groups with a signal: " in told.out
    assert "Held-out tasks since the warm start: " in told.out
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert {"components/utility/mean", "components/security/mean"} <= set(rows[-2])
    (episode, *_) = map(json.loads, (tmp_path / "run/transcripts/step_000001.jsonl").read_text().splitlines())
    assert "send_money(" in episode["prompt"] or "get_channels()" in episode["prompt"]


def test_leetcode(tmp_path, capsys):
    assert cli.main(["--env", "LeetCode-v0", "--device", "cpu", *SMALL, "--output", str(tmp_path / "run")]) == 0
    told = capsys.readouterr()
    assert "profile cpu/LeetCode-v0 sets env_args={'difficulty': 'easy'" in told.err
    assert "Groups with a signal: " in told.out
    assert "Held-out tasks since the warm start: " in told.out
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert {"components/correctness/mean", "components/ast_similarity/mean"} <= set(rows[-2])
    (episode, *_) = map(json.loads, (tmp_path / "run/transcripts/step_000001.jsonl").read_text().splitlines())
    assert "class Solution" in episode["prompt"]
