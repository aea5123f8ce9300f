"""Curves: what is read, what is smoothed, and that the picture shows what the rows hold."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from corrgrpo_train.advantages import estimate
from corrgrpo_train.errors import UsageError
from corrgrpo_train.measures import step_metrics
from corrgrpo_train.report import curves
from corrgrpo_train.report.__main__ import main
from corrgrpo_train.report.curves import draw_curves, panels
from corrgrpo_train.report.runs import EMA, read_run, smooth
from corrgrpo_train.rollout import Episode, TokenSequence


def write(folder: Path, rows: list[dict[str, Any]], tail: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return folder


def a_run(folder: Path, warm: bool = True) -> Path:
    rows: list[dict[str, Any]] = [
        {"step": 0, "phase": "base", "validation/reward": 0.1, "validation/metrics/exact": 0.0}
    ]
    if warm:
        rows += [
            {"step": 0, "phase": "warm_start", "warm_start/step": 1, "warm_start/loss": 2.0},
            {"step": 0, "phase": "warm_start", "validation/reward": 0.4, "validation/metrics/exact": 0.25},
        ]
    for step in range(1, 6):
        rows.append(
            {
                "step": step,
                "reward/mean": step / 5,
                "components/format/mean": 1.0,
                "components/$cost/mean": None if step == 2 else step / 10,
                "estimator/correlation_sum": 4.0,
                "estimator/advantage_mean": 9.0,
                "estimator/correlation/a/b": 0.5,
                "estimator/correlation/a/c": None if step == 1 else 1.0,
                "tokens/completion_mean": 30.0,
                "policy/entropy": 0.5,
            }
        )
    rows.append(
        {
            "step": 5,
            "validation/reward": 0.9,
            "validation/components/format": 1.0,
            "validation/metrics/exact": 0.5,
        }
    )
    return write(folder, rows)


def test_series_leave_null_out_and_keep_phases_apart(tmp_path: Path) -> None:
    run = read_run(a_run(tmp_path / "run"))
    assert run.series("components/$cost/mean") == [(1, 0.1), (3, 0.3), (4, 0.4), (5, 0.5)]
    assert run.series("validation/reward") == [(5, 0.9)]
    assert run.series("validation/reward", ("base",)) == [(0, 0.1)]
    assert run.series("validation/reward", ("warm_start", "train")) == [(0, 0.4), (5, 0.9)]


def test_the_mean_correlation_leaves_out_pairs_that_do_not_vary(tmp_path: Path) -> None:
    run = read_run(a_run(tmp_path / "run"))
    assert run.series("estimator/correlation_mean")[:2] == [(1, 0.5), (2, 0.75)]


def test_every_diagnostic_of_a_trained_step_is_drawn(tmp_path: Path) -> None:
    # What the trainer writes, not names written down here: a renamed diagnostic would lose its plot.
    tokens, weights = TokenSequence([1, 2], [False, True], [0.0, -1.0]), {"a": 1.0, "b": 0.5}
    episodes = [
        Episode(n // 2, n % 2, "t", tokens, {"a": a, "b": b}, weights)
        for n, (a, b) in enumerate([(0.0, 1.0), (1.0, 0.0), (0.0, 0.5), (1.0, 2.0)])
    ]
    components = [list(episode.components.values()) for episode in episodes]
    result = estimate("grpo", components, [0, 0, 1, 1], [1.0, 0.5])
    row = {"step": 1, **step_metrics(episodes, ["a", "b"], result, {})}
    titles = [panel.title for panel in panels([read_run(write(tmp_path / "run", [row]))])]
    assert [title for title, _ in curves.DIAGNOSTICS.values() if title not in titles] == []


def test_corrgrpos_advantages_are_drawn_once(tmp_path: Path) -> None:
    def titles(**ratios: float) -> list[str]:
        row = {"step": 1, **{f"estimator/{name}": value for name, value in ratios.items()}}
        folder = write(tmp_path / str(len(list(tmp_path.iterdir()))), [row])
        return [panel.title for panel in panels([read_run(folder)])]

    assert titles(ratio_to_grpo=0.7, corrgrpo_to_grpo=0.7) == ["This method's advantage over GRPO's"]
    assert len(titles(ratio_to_grpo=1.0, corrgrpo_to_grpo=0.7)) == 2


def test_smoothing_is_the_weighted_mean_of_the_past() -> None:
    values = [3.0, -1.0, 4.0, 1.0, -5.0]
    expected = []
    for last in range(len(values)):
        weights = [0.6 ** (last - place) for place in range(last + 1)]
        expected.append(sum(w * v for w, v in zip(weights, values, strict=False)) / sum(weights))
    assert [value for _, value in smooth(list(enumerate(values)))] == pytest.approx(expected)
    assert smooth([]) == []


def test_panels_are_those_with_data(tmp_path: Path) -> None:
    titles = [panel.title for panel in panels([read_run(a_run(tmp_path / "run"))])]
    assert titles == [
        "Total reward",
        "Component: format",
        "Component: $cost",
        "Metric: exact",
        "Correlation sum Q",
        "Correlation of components",
        "Completion length",
        "Policy entropy",
    ]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they are when they are saved."""
    seen: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        seen.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return seen


def test_the_picture_shows_the_rows(tmp_path: Path, figures: list[Figure]) -> None:
    path = draw_curves(a_run(tmp_path / "run"))
    assert path == tmp_path / "run" / "curves.png"
    assert imread(path).shape[2] == 4
    reward = figures[0].axes[0]
    drawn = [list(zip(*line.get_data(), strict=True)) for line in reward.get_lines()]
    assert [(s, s / 5) for s in range(1, 6)] in drawn
    assert [(0, 0.4), (5, 0.9)] in drawn
    assert [(0, 0.1)] in drawn
    assert reward.get_xlabel() == "training step"
    names = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert {"run", "training step", "validation", "before warm start", "end of warm start"} <= set(names)
    lengths = next(axes for axes in figures[0].axes if axes.get_title(loc="left") == "Completion length")
    assert lengths.get_ylabel() == "tokens"


def test_without_a_warm_start_the_first_validation_is_part_of_the_line(tmp_path: Path, figures: list[Figure]) -> None:
    draw_curves(a_run(tmp_path / "run", warm=False))
    drawn = [list(zip(*line.get_data(), strict=True)) for line in figures[0].axes[0].get_lines()]
    assert [(0, 0.1), (5, 0.9)] in drawn
    assert "before warm start" not in [text.get_text() for text in figures[0].legends[0].get_texts()]


def test_runs_are_overlaid_and_told_apart(tmp_path: Path, figures: list[Figure]) -> None:
    first, second = a_run(tmp_path / "one" / "run"), a_run(tmp_path / "two" / "run")
    assert main([str(first), str(second), "--output", str(tmp_path / "both.png")]) == 0
    assert (tmp_path / "both.png").stat().st_size > 10_000
    names = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert names[:2] == ["run (1)", "run (2)"]
    colors = {line.get_color() for line in figures[0].axes[0].get_lines()}
    assert {"C0", "C1"} <= colors


def test_chosen_plots_only(tmp_path: Path, figures: list[Figure]) -> None:
    draw_curves(a_run(tmp_path / "run"), only=["Total", "length"])
    assert [axes.get_title(loc="left") or axes.get_title() for axes in figures[0].axes] == [
        "Total reward",
        "Completion length",
    ]
    with pytest.raises(UsageError, match=r"Nothing.*Total reward"):
        draw_curves(tmp_path / "run", only=["Nothing"])


def test_a_run_that_is_being_written_is_drawn(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "run", [{"step": 1, "reward/mean": 1.0}], tail='{"step": 2, "rew'))
    assert [row["step"] for row in run.rows] == [1]


def test_a_constant_curve_is_not_blown_up(tmp_path: Path, figures: list[Figure]) -> None:
    draw_curves(write(tmp_path / "run", [{"step": s, "reward/mean": 0.3 + s * 1e-6} for s in range(1, 4)]))
    low, high = figures[0].axes[0].get_ylim()
    assert high - low > 0.05
    assert math.isclose((low + high) / 2, 0.3, abs_tol=0.02)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not a run folder"),
        ("", "has no rows yet"),
        ("nonsense\n", "has no rows yet: metrics.jsonl: line 1 is not a row and is left out"),
        ('{"step": 1, "other": 2}\n', "has no rewards yet"),
    ],
)
def test_wrong_folders_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    assert main([str(tmp_path), "--output", str(tmp_path / "curves.png")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert words in err
    assert str(tmp_path) in err


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(a_run(tmp_path / "run")), "--output", str(tmp_path / "no" / "x.png")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_smoothing_weight_is_told_in_the_legend(tmp_path: Path, figures: list[Figure]) -> None:
    draw_curves(a_run(tmp_path / "run"))
    names = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert f"moving average (EMA {EMA:g})" in names
