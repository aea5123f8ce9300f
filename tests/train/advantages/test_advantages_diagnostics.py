"""The numbers that go with every estimate."""

import math
import re

import numpy as np
import pytest
import torch

from corrgrpo_train.advantages import ESTIMATORS, diagnostics, estimate

torch.set_num_threads(1)
NAN = math.nan
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(30, 3)) * [1, 10, 0.1] + [0, 5, -2]
LABELS = RNG.permutation(np.repeat([7, -3, 20], [4, 10, 16]))
ROWS[LABELS == -3, 1] = 0.3
WEIGHTS = [1.0, 0.5, -2.0]


def plain(value):
    return value.tolist() if isinstance(value, torch.Tensor) else value


def test_the_documented_names_are_the_names():
    listed = []
    for line in diagnostics.__doc__.splitlines():
        if line.startswith("| `"):
            listed += re.findall(r"`(\w+)`", line.split("|")[1])
    assert listed == list(estimate("grpo", ROWS, LABELS, WEIGHTS).diagnostics)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_shapes_and_types(name):
    found = estimate(name, ROWS, LABELS, WEIGHTS).diagnostics
    shapes = {key: tuple(value.shape) for key, value in found.items() if isinstance(value, torch.Tensor)}
    per_group = {"group", "group_size", "correlation_sum", "corrgrpo_denominator", "grpo_denominator"}
    per_group |= {"corrgrpo_to_grpo", "denominator", "ratio_to_grpo"}
    per_component = {"constant_share", "component_mean", "component_std"}
    assert shapes == (dict.fromkeys(per_group, (3,)) | dict.fromkeys(per_component, (3,)) | {"correlation": (3, 3)})
    for key, value in found.items():
        expected = float if key not in shapes else torch.int64 if key == "group" else torch.float64
        assert (type(value) if expected is float else value.dtype) is expected, key


def test_all_but_the_advantages_own_numbers_are_the_same_for_every_estimator():
    own = {"denominator", "ratio_to_grpo", "advantage_mean", "advantage_mean_abs", "advantage_max_abs"}
    seen = {
        str({key: plain(value) for key, value in estimate(name, ROWS, LABELS, WEIGHTS).diagnostics.items()
             if key not in own})
        for name in ESTIMATORS
    }  # fmt: skip
    assert len(seen) == 1


def test_against_numpy():
    found = estimate("corrgrpo", ROWS, LABELS, WEIGHTS).diagnostics
    assert plain(found["group"]) == [-3, 7, 20]
    assert plain(found["group_size"]) == [10, 4, 16]
    groups = [ROWS[label == LABELS] for label in (-3, 7, 20)]
    live = [[0, 2], [0, 1, 2], [0, 1, 2]]
    signs = np.sign(WEIGHTS)
    matrices = []
    for rows, columns, q, own, grpo in zip(
        groups, live, found["correlation_sum"], found["denominator"], found["grpo_denominator"], strict=True
    ):
        matrix = np.corrcoef(rows[:, columns], rowvar=False)
        matrices.append(matrix)
        expected = (matrix * signs[columns][:, None] * signs[columns]).sum()
        assert q.item() == pytest.approx(expected, rel=1e-9)
        assert own.item() == pytest.approx(math.sqrt(max(expected, 0.1) + 1e-6), rel=1e-9)
        assert grpo.item() == pytest.approx((rows @ WEIGHTS).std(ddof=1) + 1e-6, rel=1e-9)
    assert found["correlation"][0, 2].item() == pytest.approx(np.mean([m[0, -1] for m in matrices]), rel=1e-9)
    assert found["correlation"][0, 1].item() == pytest.approx(np.mean([m[0, 1] for m in matrices[1:]]), rel=1e-9)
    assert found["correlation"].diagonal().tolist() == pytest.approx([1, 1, 1], rel=1e-12)
    assert plain(found["constant_share"]) == pytest.approx([0, 1 / 3, 0])
    assert plain(found["component_mean"]) == pytest.approx(ROWS.mean(axis=0).tolist(), rel=1e-12)
    deviations = np.mean([rows.std(axis=0, ddof=1) for rows in groups], axis=0)
    assert plain(found["component_std"]) == pytest.approx(deviations.tolist(), rel=1e-9)


def test_ratios_are_those_of_the_advantages():
    grpo = estimate("grpo", ROWS, LABELS, WEIGHTS)
    corrgrpo = estimate("corrgrpo", ROWS, LABELS, WEIGHTS)
    for label, ratio, common in zip(
        *(corrgrpo.diagnostics[key].tolist() for key in ("group", "ratio_to_grpo", "corrgrpo_to_grpo")),
        strict=True,
    ):
        own = torch.as_tensor(label == LABELS)
        expected = (corrgrpo.advantages[own] / grpo.advantages[own]).double()
        assert expected.tolist() == pytest.approx([ratio] * int(own.sum()), rel=1e-5)
        assert ratio == pytest.approx(common, rel=1e-9)
    assert plain(grpo.diagnostics["ratio_to_grpo"]) == pytest.approx([1, 1, 1], rel=1e-9)


def test_advantage_numbers():
    found = estimate("dr_grpo", [[0.0], [3.0], [3.0], [NAN]], [0] * 4, [1.0]).diagnostics
    assert found["advantage_mean"] == pytest.approx(0, abs=1e-12)
    assert found["advantage_mean_abs"] == pytest.approx(4 / 3)
    assert found["advantage_max_abs"] == pytest.approx(2)
    assert found["rows_left_out"] == 1


def test_groups_without_rows_and_without_signal():
    """Group 0 has a signal, group 1 none, group 2 nothing that was scored."""
    rows = [[0.0, 1.0], [1.0, 1.0], [0.5, 1.0], [0.5, 1.0], [NAN, 0.0]]
    found = estimate("corrgrpo", rows, [0, 0, 1, 1, 2], [1.0, 1.0]).diagnostics
    assert plain(found["group_size"]) == [2, 2, 0]
    assert found["share_without_signal"] == pytest.approx(2 / 3)
    assert plain(found["correlation_sum"]) == pytest.approx([1, 0, NAN], nan_ok=True)
    for key in ("denominator", "ratio_to_grpo", "corrgrpo_to_grpo"):
        assert found[key].isnan().tolist() == [False, True, True]
    assert plain(found["constant_share"]) == [0.5, 1.0]
    assert found["correlation"].isnan().tolist() == [[False, True], [True, True]]


def test_a_watched_component_may_be_nan():
    """Weight 0: its nans touch its own numbers only."""
    rows = [[0.0, 2.0], [1.0, 4.0], [0.0, NAN], [1.0, 6.0]]
    found = estimate("corrgrpo", rows, [0, 0, 1, 1], [1.0, 0.0]).diagnostics
    assert found["rows_left_out"] == 0
    assert plain(found["component_mean"]) == pytest.approx([0.5, 4.0])
    assert plain(found["component_std"]) == pytest.approx([math.sqrt(0.5), math.sqrt(2)])
    assert plain(found["constant_share"]) == [0, 0]
    assert found["correlation"][0, 1].item() == pytest.approx(1)
    assert plain(found["correlation_sum"]) == pytest.approx([1, 1])


def test_a_component_that_is_nan_throughout():
    found = estimate("corrgrpo", [[0.0, NAN], [1.0, NAN]], [0, 0], [1.0, 0.0]).diagnostics
    for key in ("component_mean", "component_std", "constant_share"):
        assert found[key].isnan().tolist() == [False, True]
