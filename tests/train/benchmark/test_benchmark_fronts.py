"""Pareto fronts by comparing all pairs, volumes by counting grid cells."""

import itertools

import numpy as np
import pytest

from corrgrpo_train.benchmark.fronts import fronts, on_front
from corrgrpo_train.benchmark.measured import Curve, Measured
from corrgrpo_train.benchmark.plan import Cell
from corrgrpo_train.weighting.hypervolume import hypervolume


def slow_front(points):
    return [
        not any(
            all(b >= a for a, b in zip(mine, other, strict=True)) and tuple(other) != tuple(mine) for other in points
        )
        for mine in points
    ]


@pytest.mark.parametrize("seed", range(8))
def test_front_by_all_pairs(seed):
    points = np.random.default_rng(seed).integers(0, 5, (9, 3)).astype(float)
    assert on_front(points).tolist() == slow_front(points.tolist())
    several = np.stack([points, points[::-1], -points])
    assert on_front(several).tolist() == [slow_front(some.tolist()) for some in several]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [2, 3])
def test_volume_by_counting_cells(seed, width):
    points = np.random.default_rng(seed).integers(0, 7, (6, width))
    cells = itertools.product(range(7), repeat=width)
    counted = sum(any(all(c < p for c, p in zip(cell, point, strict=True)) for point in points) for cell in cells)
    assert hypervolume(points.tolist(), [0] * width) == pytest.approx(counted)


def cell(method, finals, starts=None, weights=None):
    """A cell with two components; `finals` has a row (a, b) per seed."""
    finals = np.array(finals, dtype=float)
    starts = np.zeros_like(finals) if starts is None else np.array(starts, dtype=float)
    curves = {
        f"components/{name}": Curve((0.0, 1.0), np.stack([starts[:, k], finals[:, k]], axis=1))
        for k, name in enumerate("ab")
    }
    return Measured(Cell(method), tuple(range(len(finals))), curves, weights or {"a": 1.0, "b": 1.0})


def test_members_shares_and_volumes():
    found = fronts([cell("x", [(10, 0), (10, 0)]), cell("y", [(0, 10), (0, 10)]), cell("z", [(5, 0), (5, 0)])])
    assert found.members == [True, True, False]
    assert found.shares == [1.0, 1.0, 0.0]
    # On the scale from a tenth below the worst to the best: 10 is 1, 5 is 6/11, 0 is 1/11.
    np.testing.assert_allclose(found.volumes, [[1 / 11] * 2, [1 / 11] * 2, [6 / 121] * 2])
    assert found.volume == pytest.approx(1 / 11 + 1 / 11 - 1 / 121)


def test_seeds_that_disagree_make_a_share():
    found = fronts([cell("x", [(4, 0), (0, 4)]), cell("y", [(2, 2), (2, 2)])])
    # Means are equal, so neither dominates; of resamples of two seeds a quarter each are (4, 0), (0, 4).
    assert found.members == [True, True]
    assert found.shares[0] == found.shares[1] == 1.0


def test_a_negative_weight_turns_a_component_round_and_a_zero_one_takes_it_out():
    cells = [cell("x", [(1, 5)], weights={"a": -1.0, "b": 0.0}), cell("y", [(2, 9)], weights={"a": -1.0, "b": 0.0})]
    found = fronts(cells)
    assert found.components == ["a"]
    assert found.members == [True, False]


def test_components_that_never_vary_are_left_out():
    found = fronts([cell("x", [(1, 3)], starts=[(0, 3)]), cell("y", [(2, 3)], starts=[(0, 3)])])
    assert found.components == ["a"]
    same = fronts([cell("x", [(1, 3)], starts=[(1, 3)])])
    assert same.components == []
    assert same.volume == 0
    assert same.members == [True]


def test_a_large_front_in_many_components_takes_no_hours():
    """The volume's time doubles with each point: of 40 in 20 components it is left out, the rest is there."""
    points = np.random.default_rng(0).random((40, 20))
    names = [f"c{k}" for k in range(20)]
    found = fronts(
        [
            Measured(
                Cell(f"m{number}"),
                (0,),
                {f"components/{n}": Curve((0.0, 1.0), np.array([[0.0, x]])) for n, x in zip(names, point, strict=True)},
                dict.fromkeys(names, 1.0),
            )
            for number, point in enumerate(points)
        ]
    )
    assert found.volume is None
    assert sum(found.members) > 12
