"""How long advantages take: every estimator against `grpo`, and vectorised CorrGRPO against a loop.

Run from the repository's root: `python -m benchmarks.advantages`. One thread, the CPU, seeded rewards. Rounds
alternate between what is compared, so that a busy machine slows all of them; the median round counts.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import torch

from corrgrpo_train.advantages import ESTIMATORS, estimate

COMPONENTS = 7


def rewards(rows: int, group_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Components (binary, graded and constant ones), labels in random order, weights, lengths."""
    generator = torch.Generator().manual_seed(0)
    components = torch.rand(rows, COMPONENTS, generator=generator, dtype=torch.float64)
    components[:, :3] = (components[:, :3] < 0.8).double()
    components[:, 3] = 0.05
    labels = (torch.arange(rows) // group_size)[torch.randperm(rows, generator=generator)]
    lengths = torch.randint(1, 1000, (rows,), generator=generator)
    return components, labels, torch.tensor([0.05, 0.05, 0.05, 0.25, 0.60, 0.30, 0.20]), lengths


def corrgrpo_by_loop(components: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """CorrGRPO as one would write it down: a dict of groups, and a K × K correlation matrix for each."""
    members = defaultdict(list)
    for row, label in enumerate(labels.tolist()):
        members[label].append(row)
    advantages = torch.zeros(len(labels), dtype=torch.float64)
    weights = weights.double()
    for rows in members.values():
        values = components[rows].double()
        live = values.amax(dim=0) - values.amin(dim=0) > 1e-9 * values.abs().amax(dim=0)
        centred = (values - values.mean(dim=0)) * live
        covariance = centred.T @ centred / max(len(rows) - 1, 1)
        inverse = torch.where(live, covariance.diagonal().rsqrt(), 0.0) * weights.sign()
        correlations = (covariance * inverse[:, None] * inverse).sum()
        advantages[rows] = centred @ weights / (correlations.clamp(min=0.1) + 1e-6).sqrt()
    return advantages.float()


def medians(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each call, after one call of each to warm up."""
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=4096, help="completions in the batch (default 4096)")
    parser.add_argument("--group-size", type=int, default=8, help="completions per prompt (default 8)")
    parser.add_argument("--rounds", type=int, default=15, help="alternating rounds (default 15)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    components, labels, weights, lengths = rewards(arguments.rows, arguments.group_size)
    batch = f"{arguments.rows} completions, groups of {arguments.group_size}, {COMPONENTS} components"

    calls: dict[str, Callable[[], object]] = {
        name: lambda name=name: estimate(name, components, labels, weights) for name in sorted(ESTIMATORS)
    }
    for name in ("gdpo", "corr_gdpo"):
        calls[f"{name} (tokens)"] = lambda name=name: estimate(
            name, components, labels, weights, lengths, whitening="tokens"
        )
    found = medians(calls, arguments.rounds)
    print(f"One call of estimate(), checks and diagnostics included: {batch}\n")
    print(f"{'estimator':24}{'ms':>8}{'times grpo':>12}")
    for name, seconds in found.items():
        print(f"{name:24}{seconds * 1e3:8.2f}{seconds / found['grpo']:12.2f}")

    ours = estimate("corrgrpo", components, labels, weights).advantages
    torch.testing.assert_close(ours, corrgrpo_by_loop(components, labels, weights), rtol=1e-5, atol=1e-7)
    found = medians(
        {
            "estimate('corrgrpo')": calls["corrgrpo"],
            "loop over groups": lambda: corrgrpo_by_loop(components, labels, weights),
        },
        max(3, arguments.rounds // 3),
    )
    vectorised, loop = found.values()
    print("\nThe same advantages from estimate() (with diagnostics) and from a loop over groups (without)\n")
    for name, seconds in found.items():
        print(f"{name:24}{seconds * 1e3:8.2f} ms")
    print(f"{'the loop takes':24}{loop / vectorised:8.1f} times as long")


if __name__ == "__main__":
    main()
