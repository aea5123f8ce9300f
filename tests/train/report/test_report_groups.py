"""Groups one by one: correlations against closed forms and against another computation."""

import math
import statistics
from typing import Any

import pytest

from corrgrpo_train.report.groups import groups_of
from corrgrpo_train.report.runs import Run


def a_run(*values: Any, names: tuple[str, ...] = ("run", "pass"), weights: dict[str, float] | None = None) -> Run:
    """One step; rows of `values` are groups of component vectors."""
    labels = [g for g, group in enumerate(values) for _ in group]
    row = {
        "step": 3,
        "names": list(names),
        "groups": labels,
        "tasks": [f"task-{g}" for g in labels],
        "values": [vector for group in values for vector in group],
    }
    metrics = {"step": 3, **{f"weights/effective/{name}": weight for name, weight in (weights or {}).items()}}
    return Run("run", [metrics], episodes=[row])


def test_nested_rewards_have_the_correlation_of_appendix_c() -> None:
    # Six of eight run and two of those pass: rho = sqrt(p (1 - u) / (u (1 - p))), u = 6/8, p = 2/8.
    (group,) = groups_of(a_run([[1, 1]] * 2 + [[1, 0]] * 4 + [[0, 0]] * 2), 100)
    u, p = 6 / 8, 2 / 8
    rho = math.sqrt(p * (1 - u) / (u * (1 - p)))
    assert group.means == {"run": u, "pass": p}
    assert group.correlations == {("run", "pass"): pytest.approx(rho)}
    assert group.correlation_sum == pytest.approx(2 + 2 * rho)
    assert (group.step, group.task, group.size) == (3, "task-0", 8)


def test_the_sum_of_the_papers_example() -> None:
    rewards = [[0.1, 0.18, 0.8], [0.18, 0.1, 7.28], [0.82, 0.9, 8], [0.9, 0.82, 1.52]]
    (group,) = groups_of(a_run(rewards, names=("a", "b", "c")), 100)
    assert group.correlation_sum == pytest.approx(5.39024, abs=1e-5)
    columns = list(zip(*rewards, strict=True))
    assert group.correlations["a", "c"] == pytest.approx(statistics.correlation(columns[0], columns[2]))


def test_constant_components_have_no_correlation() -> None:
    constant, varied = groups_of(a_run([[0.1, 0], [0.1, 1]] * 3, [[1, 0], [0, 1]]), 100)
    assert constant.correlations == {}
    assert constant.correlation_sum == pytest.approx(1)
    assert varied.correlations == {("run", "pass"): pytest.approx(-1)}
    assert varied.correlation_sum == pytest.approx(0, abs=1e-12)


def test_weights_give_signs_and_leave_out() -> None:
    opposed = [[1, 0], [0, 1]]
    (negative,) = groups_of(a_run(opposed, weights={"run": 1.0, "pass": -2.0}), 100)
    assert negative.correlation_sum == pytest.approx(4)
    (zero,) = groups_of(a_run([*opposed, [1, None]], weights={"run": 1.0, "pass": 0.0}), 100)
    assert (zero.size, zero.correlation_sum) == (3, pytest.approx(1))
    (scored,) = groups_of(a_run([*opposed, [1, None]]), 100)
    assert scored.size == 2


@pytest.mark.parametrize("damage", [{"values": [[1]]}, {"values": "x"}, {"groups": None}, {"names": []}, {"tasks": []}])
def test_a_damaged_row_has_no_groups(damage: dict[str, Any]) -> None:
    run = a_run([[1, 0], [0, 1]])
    assert groups_of(Run("run", run.rows, episodes=[dict(run.episodes[0], **damage)]), 100) == []


def test_a_long_run_gives_evenly_spaced_steps() -> None:
    row = a_run([[1, 0], [0, 1]]).episodes[0]
    run = Run("run", [], episodes=[dict(row, step=step) for step in range(1, 101)])
    assert [group.step for group in groups_of(run, 10)] == list(range(1, 101, 10))
