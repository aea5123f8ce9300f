"""`python -m corrgrpo_train.report`: what is written, from whole and from damaged run folders."""

import html
import json
import os
import resource
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from corrgrpo_train.report.__main__ import main


def write_run(folder: Path, tail: str = "", method: str = "corrgrpo", seed: int = 0, **weights: float) -> Path:
    folder.mkdir(parents=True)
    rows: list[dict[str, Any]] = [{"step": 0, "phase": "base", "validation/reward": 0.1}]
    rows += [
        {
            "step": step,
            "reward/mean": step / 10,
            "components/a/mean": step / 20,
            "components/b/mean": 1.0,
            "estimator/correlation/a/b": 0.5,
            "estimator/correlation_sum": 3.0,
            "estimator/share_without_signal": weights.get("silent", 0.25),
            "weights/base/a": 1.0,
            "weights/effective/a": weights.get("effective", 1.0),
            "policy/new_measure": step * 1.0,
            "tasks/too_long": 0.0,
        }
        for step in range(1, 11)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + tail)
    (folder / "timings.jsonl").write_text('{"step": 1, "seconds/rollout": 2.0}\n')
    (folder / "config.yaml").write_text(f"method: {method}\nseed: {seed}\nlearning_rate: 0.001\n")
    return folder


def data_of(path: Path) -> dict[str, Any]:
    """The JSON that the page holds."""
    text = path.read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    data: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
    return data


def titles(path: Path) -> list[str]:
    return [chart["title"] for chart in data_of(path)["charts"].values()]


def chart(path: Path, title: str) -> list[dict[str, Any]]:
    (found,) = [chart["data"] for chart in data_of(path)["charts"].values() if chart["title"] == title]
    traces: list[dict[str, Any]] = found
    return traces


def test_the_page_lies_in_the_first_run_and_shows_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run")
    assert main([str(run)]) == 0
    path = run / "report.html"
    assert capsys.readouterr().out == f"{path}\n"
    raw, smooth, validation = chart(path, "Total reward")
    assert (raw["x"], raw["y"]) == (list(range(1, 11)), [step / 10 for step in range(1, 11)])
    weights = [0.6**place for place in range(10)]
    total = sum(w * (10 - place) / 10 for place, w in enumerate(weights))
    assert smooth["y"][-1] == pytest.approx(total / sum(weights), rel=1e-4)
    assert (validation["x"], validation["y"]) == ([0], [0.1])


def test_everything_that_was_logged_has_its_place(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    main([str(run)])
    shown = titles(run / "report.html")
    assert {"Component: a", "Correlation: a, b", "Correlation sum Q", "policy/new_measure", "seconds/rollout"} <= set(
        shown
    )
    assert len(shown) == len(set(shown)), "nothing is drawn twice"
    text = (run / "report.html").read_text()
    assert "tasks/too_long" in text, "what never changed stands in a table"
    assert "learning_rate" in text


def test_weights_are_drawn_where_they_change(tmp_path: Path) -> None:
    fixed, changed = write_run(tmp_path / "fixed"), write_run(tmp_path / "changed", effective=0.5)
    main([str(fixed)])
    main([str(changed)])
    assert not any("weight" in title.lower() for title in titles(fixed / "report.html"))
    (smooth,) = [t for t in chart(changed / "report.html", "Effective weight: a") if t["meta"]["layer"] == "smooth"]
    assert set(smooth["y"]) == {0.5}


def test_seeds_of_one_method_are_averaged(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{m}{s}", method=m, seed=s) for m in ("grpo", "corrgrpo") for s in (0, 1)]
    path = tmp_path / "all.html"
    assert main([*map(str, runs), "--output", str(path)]) == 0
    views = {view["name"]: [label for label, _ in view["legend"]] for view in data_of(path)["views"]}
    assert views == {"runs": ["grpo0", "grpo1", "corrgrpo0", "corrgrpo1"], "methods": ["grpo", "corrgrpo"]}
    alone = tmp_path / "two.html"
    main([str(runs[0]), str(runs[2]), "--output", str(alone)])
    assert [view["name"] for view in data_of(alone)["views"]] == ["runs"]


def test_methods_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, seed=seed) for seed, name in enumerate("abcd")]
    for run in runs[2:]:
        settings = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(settings.replace("0.001", "0.002"))
    path = tmp_path / "all.html"
    main([*map(str, runs), "--output", str(path)])
    legend = [label for label, _ in data_of(path)["views"][1]["legend"]]
    assert legend == ["corrgrpo, learning_rate 0.001", "corrgrpo, learning_rate 0.002"]
    assert "Settings that differ" in path.read_text()


def test_damage_is_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", tail='nonsense\n{"no": "step"}\n{"step": 1e999}\n{"step": 11, "rew')
    for name in ("timings.jsonl", "episodes.jsonl"):
        (run / name).write_text("[]\n\xff\n")
    (run / "config.yaml").write_text("a: [")
    (run / "versions.json").write_text("{")
    (run / "transcripts").mkdir()
    (run / "transcripts" / "step_000001.jsonl").write_text("no row\n")
    assert main([str(run)]) == 0
    told = capsys.readouterr().err
    page = (run / "report.html").read_text(encoding="utf-8")
    for words in (
        "metrics.jsonl: lines 12, 13, 14 are no rows and are left out",
        "metrics.jsonl: the last line is written by half and left out",
        "timings.jsonl: lines 1, 2 are no rows and are left out",
        "episodes.jsonl: lines 1, 2 are no rows and are left out",
        "config.yaml cannot be read",
        "versions.json cannot be read",
    ):
        assert words in told
        assert words in page
    assert "step_000001.jsonl: 1 lines are no transcripts" in page
    assert chart(run / "report.html", "Total reward")[0]["x"] == list(range(1, 11))


def test_a_run_without_a_signal_says_so_first(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", silent=1.0)
    main([str(run)])
    text = (run / "report.html").read_text()
    assert text.index("no group ever had a signal") < text.index("Overview</h2>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--output", "x.txt"], "may be .html, .png, .svg"),
        (["--output", "x"], "may be .html, .png, .svg"),
        (["--only", "Nothing"], "no chart's title contains any of Nothing; there are: Total reward"),
        (["--transcripts", "-1"], "--transcripts must be 0 or more"),
        (["--output", "missing/x.html"], "cannot be written"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(write_run(tmp_path / "run")), *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_pictures_and_chosen_charts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert main([str(run), "--output", str(tmp_path / "x.PNG")]) == 0
    assert (tmp_path / "x.PNG").read_bytes().startswith(b"\x89PNG")
    assert main([str(run), "--output", str(tmp_path / "x.svg"), "--only", "Total"]) == 0
    assert b"<svg" in (tmp_path / "x.svg").read_bytes()
    assert main([str(run), "--output", str(tmp_path / "x.html"), "--only", "Total", "sum Q"]) == 0
    assert titles(tmp_path / "x.html") == ["Total reward", "Correlation sum Q"]


HUGE = "9" * 400
ODD_ROWS = {
    "a phase that is a list": '{"step": 11, "phase": [1], "reward/mean": 1}',
    "a whole number beyond all floats": f'{{"step": 11, "reward/mean": {HUGE}, "components/a/mean": {HUGE}}}',
    "a sum beyond all floats": '{"step": 11, "estimator/correlation/a/b": 1e308, "estimator/correlation/a/c": 1e308}',
    "an axis beyond all floats": '{"step": 11, "reward/mean": 1.7e308}\n{"step": 12, "reward/mean": -1.7e308}',
    "a warm start's step beyond all floats": f'{{"step": 0, "phase": "warm_start", "warm_start/step": {HUGE}}}',
    "weights that are no numbers": '{"step": 1, "weights/effective/a": "x", "weights/effective/b": [1]}',
    "names that fonts can't draw": '{"step": 11, "components/\\ud800\\u0000$x/mean": 1, "metrics/%s": 1}'
    % ("n" * 5000),
}


@pytest.mark.parametrize("row", ODD_ROWS.values(), ids=list(ODD_ROWS))
@pytest.mark.parametrize("ending", ["html", "png"])
def test_rows_that_no_trainer_writes_are_survived(tmp_path: Path, row: str, ending: str) -> None:
    run = write_run(tmp_path / "run", tail=f"{row}\n")
    episodes = [[[10**400, 1], [0, 1]], [[1e308, 1], [-1e308, 2]], [[1, 2], [2, 1]]]
    (run / "episodes.jsonl").write_text(
        "".join(
            json.dumps({"step": 1, "names": ["a", "b"], "groups": [0, 0], "tasks": ["t", "t"], "values": values}) + "\n"
            for values in episodes
        )
    )
    (run / "transcripts").mkdir()
    (run / "transcripts" / "validation_base_0.jsonl").write_text(f'{{"reward": {HUGE}, "components": [1]}}\n')
    (run / "transcripts" / "validation_train_1.jsonl").write_text(f'{{"reward": {HUGE}, "components": [1]}}\n')
    path = tmp_path / f"page.{ending}"
    assert main([str(run), "--output", str(path)]) == 0
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ("method: grpo\nenv_args: {1: a, b: c}\n", '"1": "a", "b": "c"'),
        ("method: &all [grpo]\nother: *all\n", '["grpo"]'),
        ("a: &a [*a]\n", "config.yaml cannot be read"),
        ("a: !!bool foo\n", "config.yaml cannot be read"),
        ('a: !!int ""\n', "config.yaml cannot be read"),
        ("a: !!timestamp foo\n", "config.yaml cannot be read"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in pairwise("abcdefghij")),
            "config.yaml cannot be read: it has more than",
        ),
    ],
    ids=["names that are numbers", "shared lists", "holds itself", "bool", "int", "timestamp", "billions"],
)
def test_settings_of_any_shape(tmp_path: Path, settings: str, shown: str) -> None:
    run = write_run(tmp_path / "run")
    (run / "config.yaml").write_text(settings)
    assert main([str(run)]) == 0
    assert shown in html.unescape((run / "report.html").read_text())


def test_runs_have_names_that_differ_whatever_their_folders_are_called(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / place / name) for place, name in (("x", "a"), ("y", "a"), ("z", "a (2)"))]
    path = tmp_path / "all.html"
    assert main([*map(str, runs), "--output", str(path)]) == 0
    assert [label for label, _ in data_of(path)["views"][0]["legend"]] == ["1: a", "2: a", "3: a (2)"]


def test_a_pipe_in_a_run_folder_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run")
    (run / "transcripts").mkdir()
    for name in ("episodes.jsonl", "versions.json", "transcripts/step_1.jsonl"):
        os.mkfifo(run / name)
    assert main([str(run)]) == 0
    told = capsys.readouterr().err
    assert "episodes.jsonl cannot be read: it is no regular file" in told
    assert "versions.json cannot be read" in told


def test_what_is_told_on_a_terminal_does_not_steer_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "a\x1b[31m", tail='{"step": 11, "components/\\u001b]0;x\\u0007/mean": 1}\nnonsense\n')
    assert main([str(run), "--only", "zzz"]) == 2
    told = capsys.readouterr().err
    assert "a?[31m: metrics.jsonl: line 13 is not a row" in told
    assert "Component: ?]0;x?" in told
    assert "\x1b" not in told


def test_a_picture_has_its_first_plots(tmp_path: Path) -> None:
    row = {"step": 11, **{f"components/c{number}/mean": 1.0 for number in range(700)}}
    run = write_run(tmp_path / "run", tail=json.dumps(row) + "\n")
    path = tmp_path / "curves.svg"
    assert main([str(run), "--output", str(path)]) == 0
    assert path.read_text().count('<g id="axes_') == 60


@pytest.mark.parametrize("name", ["page.html", "curves.png"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run")
    path = tmp_path / name
    path.write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        assert main([str(run), "--output", str(path)]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot be written: File too large" in capsys.readouterr().err
    assert path.read_text() == "before"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([name, "run"])
