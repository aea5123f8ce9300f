"""A user's own estimator, and what keeps names apart."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from corrgrpo_train.advantages import ESTIMATORS, Batch, estimate, register, registry

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def registered_names(monkeypatch):
    """Names registered in a test go with it."""
    before = dict(ESTIMATORS)
    yield
    ESTIMATORS.clear()
    ESTIMATORS.update(before)


ROWS, LABELS = [[0.0, 1.0], [1.0, 1.0], [0.5, 0.0], [0.5, float("nan")]], [1, 1, 0, 0]


def test_the_names_of_the_design():
    peers = {"grpo", "dr_grpo", "centered", "rloo", "mo_grpo", "gdpo"}
    assert set(ESTIMATORS) >= peers | {"corrgrpo", "corr_gdpo", "matched", "shuffled"}
    assert ESTIMATORS["centered"] is ESTIMATORS["dr_grpo"]


def test_every_estimator_is_documented():
    for estimator in ESTIMATORS.values():
        assert estimator.summary.endswith(".")
        document = estimator.function.__doc__
        assert "weights" in document
        assert "Source:" in document
        for option in estimator.options:
            assert f"{option}:" in document, (estimator.name, option)


def test_a_users_estimator_runs_by_name():
    @register("first_minus_rest", aliases=("fmr",))
    def first_minus_rest(batch: Batch, *, size: float = 1.0) -> torch.Tensor:
        """The first component, centred."""
        return size * batch.centred[:, 0]

    for name in ("first_minus_rest", "fmr"):
        out = estimate(name, ROWS, LABELS, [1.0, 2.0], size=4.0)
        assert out.advantages.tolist() == [-2.0, 2.0, 0.0, 0.0]
        assert out.diagnostics["rows_left_out"] == 1
    assert ESTIMATORS["fmr"].options == {"size": 1.0}
    assert first_minus_rest.__name__ == "first_minus_rest"
    with pytest.raises(ValueError, match=r"estimator 'first_minus_rest': option 'sise' .* Did you mean 'size'\?"):
        estimate("fmr", ROWS, LABELS, [1.0, 2.0], sise=4.0)


@pytest.mark.parametrize("names", [("corrgrpo",), ("centered",), ("fresh", "grpo")])
def test_a_taken_name_is_refused(names):
    before = dict(ESTIMATORS)
    with pytest.raises(ValueError, match=f"estimator '{names[-1]}' is already registered"):
        register(names[0], aliases=names[1:])
    assert before == ESTIMATORS


@pytest.mark.parametrize("name", ["", "my estimator", "../x", "1st", 3, None])
def test_a_name_is_an_identifier(name):
    with pytest.raises(ValueError, match="must be a Python identifier"):
        register(name)


@pytest.mark.parametrize(
    "function",
    [
        lambda: None,
        lambda *rows: None,
        lambda batch, epsilon=1.0: None,
        lambda batch, *, epsilon: None,
        lambda batch, **options: None,
    ],
)
def test_options_are_keyword_only_with_defaults(function):
    with pytest.raises(ValueError, match=r"must (take a Batch|be keyword-only)"):
        register("odd")(function)
    assert "odd" not in ESTIMATORS


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda batch: None, r"'odd' must return a tensor of shape \(3,\), not NoneType"),
        (lambda batch: batch.centred, r"must return a tensor of shape \(3,\), not \(3, 2\)"),
        (lambda batch: batch.centred_total / 0, "'odd' gave advantages that are nan or beyond float32"),
    ],
)
def test_what_an_estimator_returns_is_checked(returned, message):
    register("odd")(returned)
    with pytest.raises(ValueError, match=message):
        estimate("odd", ROWS, LABELS, [1.0, 1.0])


def test_the_docstrings_example():
    assert doctest.testmod(registry).failed == 0
    assert doctest.testmod(registry).attempted > 3


def test_the_documentations_example():
    """`soft_corrgrpo` with power ½ is CorrGRPO without its guard."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "advantages.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "@register" in block)
    exec(code, {})
    found = estimate("soft_corrgrpo", ROWS, LABELS, [1.0, 2.0], power=0.5).advantages
    assert torch.allclose(found, estimate("corrgrpo", ROWS, LABELS, [1.0, 2.0], paper_exact=True).advantages)


@pytest.mark.parametrize("package", ["advantages", "objectives"])
def test_only_torch_is_imported(package):
    """The package can be lifted: none of our own or of the trainer's dependencies comes along."""
    root = Path(__file__).resolve().parents[3]
    code = (
        f"import sys, torch; before = set(sys.modules); import corrgrpo_train.{package};"
        "print({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'corrgrpo_train'}"
