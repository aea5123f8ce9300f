"""The paper's worked numbers (arXiv 2609.36820), computed with this package and drawn.

    python examples/paper_figures.py              # print the numbers
    python examples/paper_figures.py --output .   # and write figure_2.png, appendix_c.png, appendix_k.png

Figure 2: in a group of four with three rewards, the one of large scale makes 91.1 % of GRPO's variance, and the two
correlated ones (0.9756) count by their scale alone. Appendix C: the correlation of nested run and pass rewards.
Appendix K: what a reward's scale, and a small change of a correlation, do to both denominators.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from corrgrpo_train.advantages import estimate

FIGURE_2 = [[0.1, 0.18, 0.8], [0.18, 0.1, 7.28], [0.82, 0.9, 8.0], [0.9, 0.82, 1.52]]
"""Rewards of Figure 2: four completions, three rewards."""

APPENDIX_K = ((1.0, 0.9, 0.1), (0.9, 1.0, 0.1), (0.1, 0.1, 1.0))
"""Correlations of Appendix K; the third reward has standard deviation a, the others 1."""


@dataclass(frozen=True)
class Group:
    """What both methods say of one group.

    Attributes:
        correlation: of the rewards, shape (K, K).
        correlation_sum: Q.
        variance_share: each reward's part of the sum of their variances and covariances, by its own variance, (K,).
        multipliers: what a centred total is multiplied by, per method.
        advantages: per method, shape (n,).
    """

    correlation: Tensor
    correlation_sum: float
    variance_share: Tensor
    multipliers: dict[str, float]
    advantages: dict[str, Tensor]


def group_of(rewards: Any) -> Group:
    """Estimate one group with weights 1."""
    rewards = torch.as_tensor(rewards, dtype=torch.float64)
    found = {
        method: estimate(method, rewards, [0] * len(rewards), [1.0] * rewards.shape[1])
        for method in ("grpo", "corrgrpo")
    }
    diagnostics = found["grpo"].diagnostics
    variances = torch.as_tensor(diagnostics["component_std"]) ** 2
    return Group(
        correlation=torch.as_tensor(diagnostics["correlation"]),
        correlation_sum=float(torch.as_tensor(diagnostics["correlation_sum"])),
        variance_share=variances / rewards.sum(dim=1).var(),
        multipliers={m: 1 / float(torch.as_tensor(out.diagnostics["denominator"])) for m, out in found.items()},
        advantages={m: out.advantages for m, out in found.items()},
    )


def with_correlations(matrix: Any, deviations: tuple[float, ...]) -> Tensor:
    """Four completions whose three rewards have exactly these sample correlations and standard deviations."""
    contrasts = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    root = torch.linalg.cholesky(torch.tensor(matrix, dtype=torch.float64))
    return contrasts * math.sqrt(3) / 2 @ root.T * torch.tensor(deviations, dtype=torch.float64)


def appendix_k(scale: float, pair: tuple[int, int] | None = None, change: float = 0.0) -> Group:
    """The group of Appendix K.

    Args:
        scale: a, the third reward's standard deviation.
        pair: two rewards whose correlation is changed.
        change: by how much.
    """
    matrix = [list(row) for row in APPENDIX_K]
    if pair is not None:
        for i, j in (pair, pair[::-1]):
            matrix[i][j] += change
    return group_of(with_correlations(matrix, (1.0, 1.0, scale)))


def total_variance(group: Group) -> float:
    """GRPO's sum, the variance of the total (its ε of 1e-6 taken off the standard deviation)."""
    return (1 / group.multipliers["grpo"] - 1e-6) ** 2


def changes_of_sums(scale: float, pair: tuple[int, int], change: float) -> dict[str, float]:
    """By how much each method's sum under the root grows when one correlation grows."""
    before, after = appendix_k(scale), appendix_k(scale, pair, change)
    return {
        "grpo": total_variance(after) - total_variance(before),
        "corrgrpo": after.correlation_sum - before.correlation_sum,
    }


def nested_rewards(completions: int, running: int, passing: int) -> Tensor:
    """Binary rewards of a group in which every passing program runs, shape (completions, 2)."""
    place = torch.arange(completions)
    return torch.stack([place < running, place < passing], dim=1).double()


def run_pass_correlation(run_rate: float, pass_rate: float) -> float:
    """Appendix C's closed form, sqrt(p (1 − u) / (u (1 − p))) for rates u ≥ p."""
    return math.sqrt(pass_rate * (1 - run_rate) / (run_rate * (1 - pass_rate)))


def factor_to_grpo(rewards: Any) -> Tensor:
    """A_corrgrpo / A_grpo of every completion: one number throughout a group."""
    group = group_of(rewards)
    return group.advantages["corrgrpo"] / group.advantages["grpo"]


def rescaled(rewards: Any, factors: list[float], shifts: list[float]) -> Tensor:
    """Every reward multiplied and shifted: positive factors leave Q as it is."""
    return torch.tensor(rewards, dtype=torch.float64) * torch.tensor(factors) + torch.tensor(shifts)


def numbers() -> dict[str, str]:
    """The numbers that the paper prints, to its digits."""
    two, five = group_of(FIGURE_2), appendix_k(5.0)
    factors = factor_to_grpo(FIGURE_2)
    moved = group_of(rescaled(FIGURE_2, [3.0, 0.5, 20.0], [1.0, -2.0, 5.0]))
    pairs = {name: changes_of_sums(5.0, pair, 0.02) for name, pair in (("12", (0, 1)), ("13", (0, 2)))}
    nested = group_of(nested_rewards(10, 9, 5))
    return {
        "Figure 2: third reward's share of GRPO's variance": f"{two.variance_share[2].item():.1%}",
        "Figure 2: correlation of rewards 1 and 2": f"{two.correlation[0, 1].item():.4f}",
        "Figure 2: correlation of rewards 1 and 3": f"{two.correlation[0, 2].item():.4f}",
        "Figure 2: correlation of rewards 2 and 3": f"{two.correlation[1, 2].item():.4f}",
        "Figure 2: GRPO's multiplier": f"{two.multipliers['grpo']:.4f}",
        "Figure 2: CorrGRPO's multiplier": f"{two.multipliers['corrgrpo']:.4f}",
        "Within the group, CorrGRPO / GRPO, smallest": f"{factors.min().item():.4f}",
        "Within the group, CorrGRPO / GRPO, largest": f"{factors.max().item():.4f}",
        "Q before and after an affine map of each reward": f"{two.correlation_sum:.5f} {moved.correlation_sum:.5f}",
        "Appendix C: correlation at run rate 0.9, pass rate 0.5": f"{run_pass_correlation(0.9, 0.5):.4f}",
        "Appendix C: the same from ten completions": f"{nested.correlation[0, 1].item():.4f}",
        "Appendix K, a = 5: GRPO's multiplier": f"{five.multipliers['grpo']:.4f}",
        "Appendix K, a = 5: CorrGRPO's multiplier": f"{five.multipliers['corrgrpo']:.4f}",
        "Appendix K, a = 5: third reward's share of GRPO's variance": f"{five.variance_share[2].item():.1%}",
        "Appendix K, a = 5: GRPO's sum, per change of correlation 12": f"{pairs['12']['grpo'] / 0.02:.0f}",
        "Appendix K, a = 5: GRPO's sum, per change of correlation 13": f"{pairs['13']['grpo'] / 0.02:.0f}",
        "Appendix K, a = 5: CorrGRPO's sum, per change of correlation 12": f"{pairs['12']['corrgrpo'] / 0.02:.0f}",
        "Appendix K, a = 5: CorrGRPO's sum, per change of correlation 13": f"{pairs['13']['corrgrpo'] / 0.02:.0f}",
    }


def draw_figure_2(folder: Path) -> Path:
    """Correlations; shares of the variance; advantages under both methods."""
    group = group_of(FIGURE_2)
    figure, (left, middle, right) = _panels(3)
    left.imshow(group.correlation.numpy(), vmin=-1, vmax=1, cmap="coolwarm")
    for i in range(3):
        for j in range(3):
            left.text(j, i, f"{group.correlation[i, j].item():.4f}", ha="center", va="center")
    _ticks(left, "correlation")
    left.set_yticks(range(3), [f"reward {k}" for k in (1, 2, 3)])
    middle.bar(range(3), group.variance_share.tolist())
    _ticks(middle, "own variance / variance of the total")
    places = torch.arange(4).numpy()
    for shift, (method, label) in zip((-0.2, 0.2), (("grpo", "GRPO"), ("corrgrpo", "CorrGRPO")), strict=True):
        text = f"{label}, multiplier {group.multipliers[method]:.4f}"
        right.bar(places + shift, group.advantages[method].numpy(), width=0.4, label=text)
    right.set_title("advantage of each completion")
    right.legend()
    return _saved(figure, folder / "figure_2.png")


def draw_appendix_c(folder: Path) -> Path:
    """Correlation of nested run and pass rewards over the pass rate, for several run rates."""
    figure, (axis,) = _panels(1)
    for run_rate in (0.5, 0.8, 0.92, 0.96):
        rates = torch.linspace(0.01, run_rate, 100).tolist()
        axis.plot(rates, [run_pass_correlation(run_rate, rate) for rate in rates], label=f"run rate {run_rate}")
    points = [(p / 50, group_of(nested_rewards(50, 46, p)).correlation[0, 1].item()) for p in range(5, 46, 5)]
    axis.plot(*zip(*points, strict=True), "k.", label="groups of 50, run rate 0.92")
    axis.set(xlabel="pass rate", ylabel="correlation of run and pass", title="nested rewards")
    axis.legend()
    return _saved(figure, folder / "appendix_c.png")


def draw_appendix_k(folder: Path) -> Path:
    """Multipliers over the third reward's scale; its share of GRPO's variance; sums over a change of correlation."""
    figure, (left, middle, right) = _panels(3)
    scales = torch.linspace(0.1, 10, 60).tolist()
    groups = [appendix_k(scale) for scale in scales]
    for method, label in (("grpo", "GRPO"), ("corrgrpo", "CorrGRPO")):
        left.plot(scales, [group.multipliers[method] for group in groups], label=label)
    left.set(xlabel="standard deviation a of reward 3", title="multiplier of the centred total")
    left.legend()
    middle.plot(scales, [group.variance_share[2].item() for group in groups])
    middle.set(xlabel="standard deviation a of reward 3", title="reward 3's share of GRPO's variance")
    changes = torch.linspace(-0.05, 0.05, 11).tolist()
    for name, pair in (("12", (0, 1)), ("13", (0, 2))):
        moved = [changes_of_sums(5.0, pair, change) for change in changes]
        for method, label in (("grpo", "GRPO"), ("corrgrpo", "CorrGRPO")):
            style = "-" if method == "grpo" else "--"
            right.plot(changes, [one[method] for one in moved], style, label=f"{label}, correlation {name}")
    right.set(xlabel="change of one correlation", title="change of the sum under the root, a = 5")
    right.legend()
    return _saved(figure, folder / "appendix_k.png")


def _panels(count: int) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * count, 4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, squeeze=False)[0]


def _ticks(axis: Any, title: str) -> None:
    axis.set_xticks(range(3), [f"reward {k}" for k in (1, 2, 3)])
    axis.set_title(title)


def _saved(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def main() -> None:
    """Print the numbers and draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, help="folder for the three figures; without it none are drawn")
    arguments = parser.parse_args()
    for name, value in numbers().items():
        print(f"{name:66}{value}")
    if arguments.output is not None:
        for draw in (draw_figure_2, draw_appendix_c, draw_appendix_k):
            print(draw(arguments.output))


if __name__ == "__main__":
    main()
