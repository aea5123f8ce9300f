"""What may be handed in, and the messages for what may not."""

import math

import numpy as np
import pytest
import torch

from corrgrpo_train.advantages import ESTIMATORS, estimate

torch.set_num_threads(1)
ROWS = [[0.5, 1.0], [1.0, 0.0], [0.25, 1.0], [0.0, 0.0], [1.0, 1.0]]
LABELS = [4, 4, -1, -1, 4]
WEIGHTS = [1.0, 0.5]
NAN = math.nan
WANTED = estimate("corrgrpo", ROWS, LABELS, WEIGHTS).advantages

FORMS = {
    "float16": lambda x: torch.tensor(x, dtype=torch.float16),
    "bfloat16": lambda x: torch.tensor(x, dtype=torch.bfloat16),
    "float32": lambda x: torch.tensor(x, dtype=torch.float32),
    "float64 with gradient": lambda x: torch.tensor(x, dtype=torch.float64, requires_grad=True),
    "numpy": np.array,
    "numpy float16": lambda x: np.array(x, dtype=np.float16),
    "numpy big-endian copy": lambda x: np.array(x, dtype=np.longdouble).astype(float),
    "numpy reversed twice": lambda x: np.ascontiguousarray(np.array(x)[::-1])[::-1],
    "tuples": lambda x: tuple(tuple(row) if isinstance(row, list) else row for row in x),
    "numpy scalars": lambda x: [
        [np.float32(v) for v in row] if isinstance(row, list) else np.float32(row) for row in x
    ],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_all_forms_give_the_same(form):
    out = estimate("corrgrpo", form(ROWS), LABELS, form(WEIGHTS)).advantages
    assert out.dtype == torch.float32
    assert not out.requires_grad
    assert torch.equal(out, WANTED)


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor(LABELS, dtype=torch.int32),
        torch.tensor(LABELS, dtype=torch.int8),
        np.array(LABELS, dtype=np.int16),
        np.array([9, 9, 2, 2, 9], dtype=np.uint8),
        [2**62, 2**62, -(2**62), -(2**62), 2**62],
        tuple(LABELS),
    ],
)
def test_labels_may_be_any_integers(labels):
    assert torch.equal(estimate("corrgrpo", ROWS, labels, WEIGHTS).advantages, WANTED)


def test_python_floats_keep_their_digits():
    """float32 would make these two values equal."""
    out = estimate("grpo", [[0.1], [0.1 + 1e-8]], [0, 0], [1.0], epsilon=0.0).advantages
    assert out.tolist() == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_booleans_and_integers(dtype):
    rows = torch.tensor([[1, 0], [0, 1], [1, 1]]).to(dtype)
    assert torch.equal(
        estimate("corrgrpo", rows, [0] * 3, [1, 2]).advantages,
        estimate("corrgrpo", rows.double(), [0] * 3, [1.0, 2.0]).advantages,
    )


def test_float16_constants_are_constant():
    """0.05 in float16 is another number, and the same one everywhere."""
    rows = torch.tensor([[0.05, 0.0], [0.05, 1.0], [0.05, 1.0]], dtype=torch.float16)
    out = estimate("corrgrpo", rows, [0] * 3, [0.05, 1.0])
    assert out.diagnostics["correlation_sum"].item() == pytest.approx(1)
    assert out.advantages.tolist() == pytest.approx([-2 / 3, 1 / 3, 1 / 3], rel=1e-6)


def test_input_is_not_changed():
    rows = torch.tensor([[0.5, NAN], [1.0, 0.0], [NAN, 1.0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 0.0], dtype=torch.float64)
    copies = rows.clone(), weights.clone()
    for name in ESTIMATORS:
        estimate(name, rows, [0, 0, 0], weights)
    assert torch.equal(rows.nan_to_num(nan=-9), copies[0].nan_to_num(nan=-9))
    assert torch.equal(weights, copies[1])


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_torchs_default_device_and_dtype_do_not_matter(name):
    wanted = estimate(name, ROWS, LABELS, WEIGHTS).advantages
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            found = estimate(name, ROWS, LABELS, WEIGHTS).advantages
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_advantages_return_to_the_components_device():
    out = estimate("corrgrpo", torch.tensor(ROWS, device="cuda"), LABELS, WEIGHTS)
    assert out.advantages.device.type == "cuda"
    assert torch.equal(out.advantages.cpu(), WANTED)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_unscored_rows_are_as_if_absent(name):
    """A nan in a component of non-zero weight takes its row out of the group and of every batch statistic."""
    rows = [[0.5, 1.0], [NAN, 0.0], [1.0, 0.0], [0.0, NAN], [0.2, 0.3], [0.9, 0.4], [NAN, NAN]]
    labels, lengths = [0, 0, 0, 0, 1, 1, 2], [1, 9, 2, 9, 3, 4, 9]
    kept = [0, 2, 4, 5]
    out = estimate(name, rows, labels, WEIGHTS, lengths)
    without = estimate(name, [rows[i] for i in kept], [labels[i] for i in kept], WEIGHTS, [lengths[i] for i in kept])
    assert torch.equal(out.advantages[kept], without.advantages)
    assert not out.advantages[[1, 3, 6]].any()
    assert out.diagnostics["rows_left_out"] == 3
    assert out.diagnostics["advantage_mean_abs"] == without.diagnostics["advantage_mean_abs"]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_nothing_scored_at_all(name):
    out = estimate(name, [[NAN, 1.0]] * 3, [0, 0, 1], [1.0, 1.0])
    assert out.advantages.tolist() == [0, 0, 0]
    assert out.diagnostics["rows_left_out"] == 3
    assert math.isnan(out.diagnostics["advantage_mean_abs"])


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_all_weights_zero(name):
    out = estimate(name, ROWS, LABELS, [0.0, 0.0])
    assert not out.advantages.any()
    assert out.diagnostics["share_without_signal"] == 1.0
    assert out.diagnostics["component_mean"].tolist() == pytest.approx([0.55, 0.6])


def test_negative_weight_turns_correlations():
    """Two copies of a reward with weights +1 and −0.5: opposed, Q = 0."""
    rows = [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    out = estimate("corrgrpo", rows, [0] * 3, [1.0, -0.5])
    assert out.diagnostics["correlation_sum"].item() == pytest.approx(0, abs=1e-12)
    factor = 0.5 / math.sqrt(0.1 + 1e-6)
    assert out.advantages.tolist() == pytest.approx([-2 / 3 * factor, factor / 3, factor / 3], rel=1e-6)


BAD = {
    "no rows": ({"components": []}, "components must have shape"),
    "no rows, two columns": ({"components": np.zeros((0, 2)), "groups": []}, "components is empty"),
    "no columns": ({"components": [[], []], "groups": [0, 0], "weights": []}, "components is empty"),
    "one dimension": (
        {"components": [1.0, 2.0]},
        r"components must have shape \(rows, components\), not \(2,\)",
    ),
    "three dimensions": ({"components": np.zeros((2, 2, 2))}, "components must have shape"),
    "ragged": ({"components": [[1.0, 2.0], [1.0]]}, "components must be a rectangular array of numbers"),
    "text": ({"components": [["a", "b"]]}, "components must be a rectangular array of numbers"),
    "None": ({"components": None}, "components must be a rectangular array of numbers"),
    "None inside": ({"components": [[None, 1.0]]}, "components must be a rectangular array of numbers"),
    "object array": ({"components": np.array([[None, 1.0]])}, "components must be a rectangular array"),
    "complex": ({"components": np.array([[1j, 1.0]])}, "components must be real numbers"),
    "infinite": ({"components": [[0.0, 1.0], [math.inf, 0.0]]}, r"components\[1, 0\] is inf: .*finite"),
    "minus infinite": ({"components": [[0.0, -math.inf]]}, r"components\[0, 1\] is -inf"),
    "infinite beside nan": ({"components": [[NAN, math.inf]]}, r"components\[0, 1\] is inf"),
    "infinite with weight 0": (
        {"components": [[1.0, math.inf]], "weights": [1, 0]},
        r"components\[0, 1\] is inf",
    ),
    "too large": ({"components": [[1e301, 1.0]]}, r"components\[0, 0\] is 1e\+301"),
    "groups too short": ({"groups": [0, 0]}, r"groups must have shape \(5,\).*not \(2,\)"),
    "groups a column": ({"groups": [[0]] * 5}, r"groups must have shape \(5,\).*not \(5, 1\)"),
    "groups of floats": ({"groups": [0.0] * 5}, "groups must be integer labels, not torch.float32"),
    "groups of booleans": ({"groups": [True] * 5}, "groups must be integer labels, not torch.bool"),
    "groups of text": ({"groups": ["a"] * 5}, "groups must be a rectangular array of numbers"),
    "groups beyond int64": ({"groups": [2**70] * 5}, "groups must be a rectangular array of numbers"),
    "too few weights": (
        {"weights": [1.0]},
        r"weights must have shape \(2,\), one per component, not \(1,\)",
    ),
    "one number as weights": ({"weights": 1.0}, r"weights must have shape \(2,\)"),
    "nan weight": ({"weights": [1.0, NAN]}, "weights must be finite"),
    "infinite weight": ({"weights": [1.0, math.inf]}, "weights must be finite"),
    "too few lengths": ({"lengths": [1, 2]}, r"lengths must have shape \(5,\)"),
    "negative length": ({"lengths": [1, 2, 3, 4, -1]}, "lengths must be whole numbers of tokens >= 0"),
    "half a token": ({"lengths": [1, 2, 3, 4, 0.5]}, "lengths must be whole numbers of tokens >= 0"),
    "nan length": ({"lengths": [1, 2, 3, 4, NAN]}, "lengths must be whole numbers of tokens >= 0"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_wrong_input_is_named_in_one_line(change, message):
    arguments = {"components": ROWS, "groups": LABELS, "weights": WEIGHTS} | change
    with pytest.raises(ValueError, match=message) as caught:
        estimate("corrgrpo", **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("corgrpo", {}, r"estimator 'corgrpo' is unknown; allowed: .*'corrgrpo'.* Did you mean 'corrgrpo'\?"),
        ("", {}, "estimator '' is unknown; allowed"),
        (None, {}, "estimator None is unknown"),
        (["grpo"], {}, "is unknown; allowed"),
        (
            "grpo",
            {"epsilonn": 1},
            r"estimator 'grpo': option 'epsilonn' is unknown; allowed: 'epsilon'\. Did you",
        ),
        ("grpo", {"paper_exact": True}, "'paper_exact' is unknown; allowed: 'epsilon'"),
        ("dr_grpo", {"epsilon": 1}, "allowed: none"),
        ("centered", {"epsilon": 1}, "allowed: none"),
        ("corrgrpo", {"paper_exat": True}, r"Did you mean 'paper_exact'\?"),
        ("corrgrpo", {"paper_exact": 1}, "option 'paper_exact' must be True or False, not 1"),
        ("corrgrpo", {"paper_exact": "no"}, "option 'paper_exact' must be True or False"),
        (
            "corrgrpo",
            {"min_correlation_sum": -0.1},
            "option 'min_correlation_sum' must be a finite number >= 0",
        ),
        ("corrgrpo", {"epsilon": NAN}, "option 'epsilon' must be a finite number >= 0, not nan"),
        ("corrgrpo", {"epsilon": math.inf}, "option 'epsilon' must be a finite number >= 0"),
        ("corrgrpo", {"epsilon": True}, "option 'epsilon' must be a finite number >= 0"),
        ("matched", {"epsilon": "1e-6"}, "option 'epsilon' must be a finite number >= 0"),
        ("grpo", {"epsilon": None}, "option 'epsilon' must be a finite number >= 0"),
        ("mo_grpo", {"epsilon": -1.0}, "option 'epsilon' must be a finite number >= 0"),
        ("gdpo", {"epsilon": -1.0}, "option 'epsilon' must be a finite number >= 0"),
        ("corr_gdpo", {"component_epsilon": -1.0}, "option 'component_epsilon' must be a finite number >= 0"),
        (
            "gdpo",
            {"whitening": "token"},
            r"option 'whitening' 'token' is unknown; .* Did you mean 'tokens'\?",
        ),
        (
            "corr_gdpo",
            {"whitening": None},
            "option 'whitening' None is unknown; allowed: 'completions', 'tokens'",
        ),
        ("gdpo", {"whitening": "tokens"}, "whitening='tokens' needs lengths"),
        ("corr_gdpo", {"whitening": "tokens"}, "whitening='tokens' needs lengths"),
        ("shuffled", {"seed": -1}, "option 'seed' must be an integer from 0"),
        ("shuffled", {"seed": 2**63}, "option 'seed' must be an integer from 0"),
        ("shuffled", {"seed": 1.5}, "option 'seed' must be an integer from 0"),
        ("shuffled", {"seed": True}, "option 'seed' must be an integer from 0"),
    ],
)
def test_wrong_names_and_options(name, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        estimate(name, ROWS, LABELS, WEIGHTS, **options)
    assert "\n" not in str(caught.value)
