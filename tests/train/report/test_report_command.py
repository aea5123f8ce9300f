"""`python -m corrgrpo_train.report`: what is written, from whole and from damaged run folders."""

import json
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
