"""Transcripts on the page: which are taken, what of them is kept, and that damage is told."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from corrgrpo_train.report import transcripts
from corrgrpo_train.report.runs import Run
from corrgrpo_train.report.transcripts import Sample, read_transcripts


def row(**more: Any) -> dict[str, Any]:
    return {
        "task_id": "t",
        "group": 1,
        "member": 2,
        "prompt": "Question",
        "texts": ["an answer"],
        "status": "ok",
        "error": None,
        "reward": 0.5,
        "components": {"a": 1.0},
        "metrics": {},
        "advantage": -0.25,
        "tokens": ["Question", "an", "Ġanswer", "Ġtool", "done"],
        "sampled": [False, True, True, False, True],
        "logprobs": [0.0, -0.12345, -1.0, 0.0, -2.0],
    } | more


def read(folder: Path, files: dict[str, list[Any]], limit: int = 100) -> Sample:
    (folder / "transcripts").mkdir()
    for name, rows in files.items():
        text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)
        (folder / "transcripts" / name).write_text(text, encoding="ascii")
    return read_transcripts([Run("run", [], folder)], limit)


def test_an_episode_in_parts(tmp_path: Path) -> None:
    (shown,) = read(tmp_path, {"step_000003.jsonl": [row()]}).rows
    assert shown == {
        **{"run": 0, "kind": "step", "step": 3, "task": "t", "group": 1, "member": 2, "status": "ok", "error": None},
        **{"reward": 0.5, "advantage": -0.25, "components": {"a": 1.0}, "metrics": {}, "prompt": 0},
        "parts": [
            {"said": ["an", " answer"], "logprobs": [-0.123, -1.0]},
            {"given": " tool"},
            {"said": ["done"], "logprobs": [-2.0]},
        ],
    }


def test_a_prompt_of_a_group_stands_there_once(tmp_path: Path) -> None:
    sample = read(tmp_path, {"step_000001.jsonl": [row(), row(), row(prompt="Other")]})
    assert list(sample.prompts) == ["Question", "Other"]
    assert [shown["prompt"] for shown in sample.rows] == [0, 0, 1]


def test_a_sample_comes_from_the_whole_run(tmp_path: Path) -> None:
    files = {f"step_{step:06d}.jsonl": [row() for _ in range(4)] for step in range(1, 101)}
    sample = read(tmp_path, files, limit=40)
    assert (len(sample.rows), sample.total) == (40, 400)
    steps = sorted({shown["step"] for shown in sample.rows})
    assert (steps[0], steps[-1], len(steps)) == (1, 100, 10)
    assert max(b - a for a, b in pairwise(steps)) <= 12


def test_runs_share_the_page(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        read(tmp_path / name, {"step_000001.jsonl": [row() for _ in range(10)]})
    sample = read_transcripts([Run(name, [], tmp_path / name) for name in ("a", "b")], 7)
    assert [shown["run"] for shown in sample.rows] == [0] * 3 + [1] * 4


def test_huge_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    many = 10_000
    huge = row(
        prompt="x" * 1_000_000,
        tokens=["y"] * many,
        sampled=[True] * many,
        logprobs=[-1.0] * many,
    )
    sample = read(tmp_path, {"step_000001.jsonl": [huge]})
    (shown,) = sample.rows
    (prompt,) = sample.prompts
    assert len(prompt) < 21_000
    assert "980000 characters are left out" in prompt
    assert len(shown["parts"][0]["said"]) == transcripts.MOST_TOKENS
    assert shown["parts"][0]["cut"] == many - transcripts.MOST_TOKENS


def test_a_page_that_would_be_too_large_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "SPACE", 1_000)
    sample = read(tmp_path, {"step_000001.jsonl": [row() for _ in range(50)]})
    assert 0 < len(sample.rows) < 50
    assert sample.notes == [f"only {len(sample.rows)} transcripts are on this page: they are long"]


@pytest.mark.parametrize(
    "damage",
    [
        {"tokens": None, "sampled": None, "logprobs": None},
        {"tokens": ["a"], "sampled": [True, True, True], "logprobs": []},
        {"tokens": [1, None], "sampled": [1, 0], "logprobs": ["x", {}]},
        {"components": [1], "metrics": None, "reward": "x", "task_id": None, "prompt": 3},
        {"reward": 10**400, "texts": "no list", "error": {"a": 1}, "group": None},
    ],
)
def test_odd_rows_are_shown_as_far_as_they_go(tmp_path: Path, damage: dict[str, Any]) -> None:
    sample = read(tmp_path, {"step_000001.jsonl": [row(**damage), row()]})
    assert len(sample.rows) == 2
    json.dumps(sample.rows, allow_nan=False)


def test_lines_that_are_none_are_told(tmp_path: Path) -> None:
    files = {"step_000001.jsonl": [row(), "nonsense", "[1]", "[" * 100_000], "notes.jsonl": ["other"]}
    sample = read(tmp_path, files)
    assert len(sample.rows) == 1
    assert sample.notes == ["step_000001.jsonl: 3 lines are no transcripts and are left out"]


def test_no_tokens_still_shows_what_was_said(tmp_path: Path) -> None:
    (shown,) = read(tmp_path, {"step_000001.jsonl": [row(tokens=[], sampled=[], logprobs=[])]}).rows
    assert shown["parts"] == [{"said": ["an answer"], "logprobs": [None]}]


@pytest.mark.parametrize(
    "huge",
    [
        {"tokens": ["A" * 1_000_000, "b"], "sampled": [True, True]},
        {"task_id": "T" * 1_000_000},
        {"status": "S" * 1_000_000},
        {"components": {"C" * 1_000_000: 1.0}},
        {"prompt": "P" * 1_000_000},
        {"error": "E" * 1_000_000},
    ],
    ids=lambda huge: next(iter(huge)),
)
def test_no_single_text_makes_the_page_large(tmp_path: Path, huge: dict[str, Any]) -> None:
    sample = read(tmp_path, {"step_1.jsonl": [row(**huge)]})
    assert len(json.dumps(sample.data([]))) < 30_000
