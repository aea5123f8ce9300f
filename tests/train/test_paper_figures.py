"""The numbers of `examples/paper_figures.py`, to the digits that the paper prints."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
PATH = Path(__file__).resolve().parents[2] / "examples" / "paper_figures.py"


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("paper_figures", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_printed_numbers(figures):
    numbers = figures.numbers()
    printed = {
        "Figure 2: third reward's share of GRPO's variance": "91.1%",
        "Figure 2: correlation of rewards 1 and 2": "0.9756",
        "Figure 2: correlation of rewards 1 and 3": "0.1098",
        "Figure 2: correlation of rewards 2 and 3": "0.1098",
        "Figure 2: GRPO's multiplier": "0.2536",
        "Figure 2: CorrGRPO's multiplier": "0.4307",
        "Q before and after an affine map of each reward": "5.39024 5.39024",
        "Appendix K, a = 5: GRPO's multiplier": "0.1802",
        "Appendix K, a = 5: CorrGRPO's multiplier": "0.4385",
        "Appendix K, a = 5: third reward's share of GRPO's variance": "81.2%",
        "Appendix K, a = 5: GRPO's sum, per change of correlation 12": "2",
        "Appendix K, a = 5: GRPO's sum, per change of correlation 13": "10",
        "Appendix K, a = 5: CorrGRPO's sum, per change of correlation 12": "2",
        "Appendix K, a = 5: CorrGRPO's sum, per change of correlation 13": "2",
    }
    assert {name: numbers[name] for name in printed} == printed
    # 0.430721 / 0.253575: one factor throughout the group.
    assert numbers["Within the group, CorrGRPO / GRPO, smallest"] == "1.6986"
    assert numbers["Within the group, CorrGRPO / GRPO, largest"] == "1.6986"


@pytest.mark.parametrize(("completions", "running", "passing"), [(10, 9, 5), (8, 7, 7), (50, 46, 18), (16, 15, 1)])
def test_nested_rewards_have_the_correlation_of_the_closed_form(figures, completions, running, passing):
    found = figures.group_of(figures.nested_rewards(completions, running, passing)).correlation[0, 1].item()
    u, p = running / completions, passing / completions
    # φ coefficient of nested events: (p − u p) / sqrt(u (1 − u) p (1 − p)).
    assert found == pytest.approx(p * (1 - u) / math.sqrt(u * (1 - u) * p * (1 - p)))
    assert found == pytest.approx(figures.run_pass_correlation(u, p))


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 10.0])
def test_appendix_k_over_the_scale(figures, scale):
    group = figures.appendix_k(scale)
    assert group.multipliers["grpo"] == pytest.approx(1 / math.sqrt(scale**2 + 0.4 * scale + 3.8), rel=1e-5)
    assert group.multipliers["corrgrpo"] == pytest.approx(1 / math.sqrt(5.2), rel=1e-5)
    assert group.variance_share[2].item() == pytest.approx(scale**2 / (scale**2 + 0.4 * scale + 3.8), rel=1e-5)


def test_the_figures_are_drawn(figures, tmp_path):
    for draw in (figures.draw_figure_2, figures.draw_appendix_c, figures.draw_appendix_k):
        path = draw(tmp_path)
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 10_000
