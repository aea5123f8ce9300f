"""Areas, paired differences, the family of Holm's correction, tables."""

import json
import math

import numpy as np
import pytest

from corrgrpo_train.benchmark.comparison import compare
from corrgrpo_train.benchmark.measured import Curve, Measured, stacked
from corrgrpo_train.benchmark.plan import Cell
from corrgrpo_train.benchmark.tables import interval, markdown, text_tables

pytest.importorskip("scipy")


def cell(method, rewards, objective="grpo", **sweep):
    """Reward curves, a row per seed, and one component equal to them."""
    values = np.array(rewards, dtype=float)
    steps = tuple(float(step) for step in (0, 1, 4)[: values.shape[1]])
    curve = Curve(steps, values)
    seeds = tuple(range(len(values)))
    return Measured(Cell(method, objective, sweep), seeds, {"reward": curve, "components/r": curve}, {"r": 1.0})


def test_area_is_the_mean_height_by_trapezoids():
    curve = Curve((0.0, 1.0, 4.0), np.array([[0.0, 2.0, 4.0], [1.0, 1.0, 1.0]]))
    # (0 + 2) / 2 · 1 + (2 + 4) / 2 · 3 = 10 over 4 steps
    assert curve.area.tolist() == [2.5, 1.0]
    assert Curve((5.0,), np.array([[3.0]])).area.tolist() == [3.0]


def test_measured_goes_through_json():
    one = cell("grpo", [[0, 1, 2]], scale=5)
    again = Measured.from_json(json.loads(json.dumps(one.to_json())))
    assert again.cell == one.cell
    assert again.seeds == (0,)
    np.testing.assert_array_equal(again.curves["reward"].values, one.curves["reward"].values)


def test_runs_are_stacked_on_the_steps_that_all_have():
    runs = [
        {"reward": [(0, 1.0), (2, 3.0), (4, 5.0)], "only": [(0, 1.0)]},
        {"reward": [(0, 2.0), (4, math.nan), (2, 4.0)]},
    ]
    curves = stacked(runs)
    assert set(curves) == {"reward"}
    assert curves["reward"].steps == (0, 2)
    assert curves["reward"].values.tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_differences_are_paired_by_seed():
    base = cell("a", [[0, 0, k] for k in range(6)])
    other = cell("b", [[0, 0, k + 1.0] for k in range(6)])
    comparison = compare([base, other], "a")
    (condition,) = comparison["conditions"]
    first, second = condition["rows"]
    assert first["differences"] == {}
    one = second["differences"]["reward/final"]
    # The seeds differ by five, the pairs by exactly one.
    assert (one["mean"], one["low"], one["high"]) == (1.0, 1.0, 1.0)
    assert one["p"] == pytest.approx(2 / 2**6)
    assert one["seeds_better"] == 6
    assert second["on_front"]
    assert not first["on_front"]


def test_the_family_of_a_correction_is_all_methods_and_sweep_values():
    cells = [cell(m, [[0, 0, k + shift] for k in range(8)], s=s) for s in (1, 2) for m, shift in (("a", 0), ("b", 1))]
    comparison = compare(cells, "a")
    found = [row["differences"].get("reward/final") for one in comparison["conditions"] for row in one["rows"]]
    smallest = 2 / 2**8
    assert [one["p_holm"] for one in found if one] == pytest.approx([2 * smallest] * 2)


def test_the_baseline_is_taken_under_the_same_objective():
    cells = [
        cell("a", [[0, 0, 1.0]]),
        cell("b", [[0, 0, 2.0]]),
        cell("a", [[0, 0, 10.0]], "dapo"),
        cell("b", [[0, 0, 30.0]], "dapo"),
    ]
    rows = compare(cells, "a")["conditions"][0]["rows"]
    assert [row["differences"]["reward/final"]["mean"] for row in rows if row["differences"]] == [1.0, 20.0]


def test_text_shows_what_a_reader_needs():
    cells = [cell("a", [[0, 0, 1.0]] * 3, scale=2.0), cell("b", [[0, 0, 2.0]] * 3, scale=2.0)]
    text = text_tables(compare(cells, "a", {"env": "Some-v0"}))
    assert "scale 2: mean [95% interval]" in text
    assert "scale 2: difference from a" in text
    assert "With 3 seeds no difference can reach 5%" in text


def test_cells_of_tables():
    assert interval({"mean": 1.234, "low": 1.0, "high": 2.0}, "*") == "1.23* [1.00, 2.00]"
    assert interval({"mean": 1.0, "low": None, "high": None}) == "1.00"
    assert interval(None) == "–"
    assert markdown([["a|b", "c"], ["1", "2"]]) == "| a/b | c |\n| --- | --- |\n| 1 | 2 |\n"


def test_a_method_that_diverged_is_not_compared_at_an_earlier_step():
    base = cell("a", [[0, 1, k] for k in range(8)])
    other = cell("b", [[0, 2, k + 1.0] for k in range(8)])
    lost = cell("c", [[0, 9] for _ in range(8)])  # nothing at the last step, and better than all before
    comparison = compare([base, other, lost], "a")
    rows = comparison["conditions"][0]["rows"]
    assert rows[2]["values"] == rows[2]["differences"] == {}
    assert rows[2]["on_front"] is rows[2]["front_share"] is None
    alone = compare([base, other], "a")["conditions"][0]["rows"]
    assert rows[:2] == alone, "no test, front or volume of the others depends on it"
    text = text_tables(comparison)
    assert "c       –" in text
    assert "diverged or nothing could be scored: c." in text
    json.dumps(comparison, allow_nan=False)


def test_methods_are_compared_on_the_steps_that_all_measured():
    base = cell("a", [[0, 4, 4]])
    other = cell("b", [[0, 4, 4]])
    curves = {name: Curve((0.0, 4.0), curve.values[:, ::2]) for name, curve in other.curves.items()}
    comparison = compare([base, Measured(other.cell, other.seeds, curves, other.weights)], "a")
    assert comparison["conditions"][0]["rows"][1]["differences"]["reward/area"]["mean"] == 0.0
