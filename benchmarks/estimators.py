"""How long advantages take: against a loop over groups, against the number of rows, against `grpo`; and the memory.

Run from the repository's root: `python -m benchmarks.estimators`. One thread, the CPU, seeded rewards. Rounds
alternate between what is compared, so that a busy machine slows all of them; the median round counts.
"""

import argparse
import ctypes
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable

import torch

from corrgrpo_train.advantages import ESTIMATORS, estimate

REQUIRED = 8.0
"""How many times faster than the loop CorrGRPO must be, diagnostics included; the exit code says whether it is."""
LOAD = (32, 128, 512, 2048, 8192)
"""Numbers of groups for the tables over N."""


def rewards(
    groups: int, group_size: int, components: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Components (binary, graded and a constant one), labels in random order, weights, lengths."""
    generator = torch.Generator().manual_seed(0)
    rows = groups * group_size
    values = torch.rand(rows, components, generator=generator, dtype=torch.float64)
    values[:, :3] = (values[:, :3] < 0.8).double()
    values[:, 3:4] = 0.05
    labels = (torch.arange(rows) // group_size)[torch.randperm(rows, generator=generator)]
    lengths = torch.randint(1, 1000, (rows,), generator=generator)
    weights = torch.tensor([0.05, 0.05, 0.05, 0.25, 0.60, 0.30, 0.20]).repeat(components // 7 + 1)[:components]
    return values, labels, weights, lengths


def corrgrpo_by_loop(
    components: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, diagnostics: bool = False
) -> torch.Tensor:
    """CorrGRPO as one would write it down: a dict of groups, and a K × K correlation matrix for each."""
    members = defaultdict(list)
    for row, label in enumerate(labels.tolist()):
        members[label].append(row)
    advantages = torch.zeros(len(labels), dtype=torch.float64)
    weights = weights.double()
    kept = []
    for rows in members.values():
        values = components[rows].double()
        live = values.amax(dim=0) - values.amin(dim=0) > 1e-9 * values.abs().amax(dim=0)
        centred = (values - values.mean(dim=0)) * live
        covariance = centred.T @ centred / max(len(rows) - 1, 1)
        inverse = torch.where(live, covariance.diagonal().rsqrt(), 0.0)
        correlation = covariance * inverse[:, None] * inverse
        total = (correlation * weights.sign()[:, None] * weights.sign()).sum()
        own = centred @ weights
        denominator = (total.clamp(min=0.1) + 1e-6).sqrt()
        advantages[rows] = own / denominator
        if diagnostics:
            kept.append(
                {
                    "correlation_sum": total.item(),
                    "ratio": ((own.std() + 1e-6) / denominator).item(),
                    "correlation": correlation,
                    "constant": ~live,
                    "mean": values.mean(dim=0),
                    "std": centred.std(dim=0),
                    "size": own.abs().mean().item(),
                }
            )
    for name in ("correlation", "constant", "mean", "std") if diagnostics else ():
        torch.stack([one[name] for one in kept]).double().mean(dim=0)
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


def against_the_loop(groups: int, group_size: int, components: int, rounds: int) -> float:
    """Print the comparison with the loop; return how many times faster `estimate` is, diagnostics in both."""
    values, labels, weights, _ = rewards(groups, group_size, components)
    ours = estimate("corrgrpo", values, labels, weights).advantages
    torch.testing.assert_close(ours, corrgrpo_by_loop(values, labels, weights), rtol=1e-5, atol=1e-7)
    found = medians(
        {
            "estimate(), checks and diagnostics included": lambda: estimate("corrgrpo", values, labels, weights),
            "loop over groups, advantages alone": lambda: corrgrpo_by_loop(values, labels, weights),
            "loop over groups, with diagnostics": lambda: corrgrpo_by_loop(values, labels, weights, diagnostics=True),
        },
        rounds,
    )
    fast = next(iter(found.values()))
    for name, seconds in found.items():
        print(f"{name:46}{seconds * 1e3:9.2f} ms{seconds / fast:8.1f} times")
    return list(found.values())[2] / fast


def over_rows(group_size: int, components: int, rounds: int) -> None:
    """Print time per row over N."""
    print(f"{'groups':>8}{'N':>9}{'ms':>10}{'µs per row':>13}")
    for groups in LOAD:
        values, labels, weights, _ = rewards(groups, group_size, components)

        def call(values=values, labels=labels, weights=weights) -> object:  # type: ignore[no-untyped-def]
            return estimate("corrgrpo", values, labels, weights)

        (seconds,) = medians({"": call}, rounds).values()
        rows = groups * group_size
        print(f"{groups:8}{rows:9}{seconds * 1e3:10.2f}{seconds / rows * 1e6:13.3f}")


def over_memory(group_size: int) -> None:
    """Print the most memory that one call takes beyond its input, each in a process of its own."""
    head = f"{'groups':>8}{'N':>9}{'K':>5}{'MiB':>9}{'bytes per N × K':>17}"
    print(head + f"{'N × N would be':>17}{'N × K × K':>15}")
    for groups, components in ((512, 7), (2048, 7), (8192, 7), (2048, 14), (2048, 28)):
        rows = groups * group_size
        code = f"from benchmarks.estimators import peak; print(peak({groups}, {group_size}, {components}))"
        peak_bytes = int(
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        )
        square, cube = rows * rows * 8 / 2**20, rows * components**2 * 8 / 2**20
        print(
            f"{groups:8}{rows:9}{components:5}{peak_bytes / 2**20:9.1f}{peak_bytes / rows / components:17.0f}"
            f"{square:13.0f} MiB{cube:11.1f} MiB"
        )


def peak(groups: int, group_size: int, components: int) -> int:
    """Bytes by which a call raises the process's largest resident size (Linux)."""
    torch.set_num_threads(1)
    warm = rewards(8, group_size, components)
    estimate("corrgrpo", *warm[:3])
    values, labels, weights, _ = rewards(groups, group_size, components)
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    before = _status("VmRSS")
    estimate("corrgrpo", values, labels, weights)
    return _status("VmHWM") - before


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def against_grpo(groups: int, group_size: int, components: int, rounds: int) -> None:
    """Print every estimator's time."""
    values, labels, weights, lengths = rewards(groups, group_size, components)
    calls: dict[str, Callable[[], object]] = {
        name: lambda name=name: estimate(name, values, labels, weights) for name in sorted(ESTIMATORS)
    }
    for name in ("gdpo", "corr_gdpo"):
        calls[f"{name} (tokens)"] = lambda name=name: estimate(
            name, values, labels, weights, lengths, whitening="tokens"
        )
    found = medians(calls, rounds)
    print(f"{'estimator':24}{'ms':>8}{'times grpo':>12}")
    for name, seconds in found.items():
        print(f"{name:24}{seconds * 1e3:8.2f}{seconds / found['grpo']:12.2f}")


def main() -> int:
    """Print all tables; 1 if CorrGRPO is not fast enough against the loop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=512, help="prompts in the batch (default 512)")
    parser.add_argument("--group-size", type=int, default=16, help="completions per prompt (default 16)")
    parser.add_argument("--components", type=int, default=7, help="reward components (default 7)")
    parser.add_argument("--rounds", type=int, default=15, help="alternating rounds (default 15)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size = (arguments.groups, arguments.group_size, arguments.components)
    print("CorrGRPO, {} groups × {} completions × {} components".format(*size))
    ratio = against_the_loop(*size, arguments.rounds)
    enough = ratio >= REQUIRED
    print(f"ratio {ratio:.1f}, at least {REQUIRED:g} wanted: {'yes' if enough else 'NO'}")
    print(f"\nTime over N, groups of {arguments.group_size}, {arguments.components} components")
    over_rows(arguments.group_size, arguments.components, arguments.rounds)
    print(f"\nMemory of one call beyond its input, groups of {arguments.group_size}")
    over_memory(arguments.group_size)
    print("\nEvery estimator, {} groups × {} completions × {} components".format(*size))
    against_grpo(*size, arguments.rounds)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
