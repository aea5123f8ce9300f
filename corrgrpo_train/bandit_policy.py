"""A policy of a few numbers for `CorrelatedBandit`, trained as language models are, in seconds and with many seeds.

The policy is a table: for every task the logits of its arms. Estimators and objectives are the trainer's own; an
answer counts as one token. All seeds are trained at once, each as if it were alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corrgrpo_envs.errors import unknown
from corrgrpo_envs.synthetic import CorrelatedBandit
from corrgrpo_train.advantages import ESTIMATORS, Batch
from corrgrpo_train.advantages.groups import Groups
from corrgrpo_train.objectives import OBJECTIVES, kl_k3

OPTIMIZERS = ("sgd", "adamw")
CHUNK = 64
"""Steps for which random numbers are drawn at a time."""


@dataclass(frozen=True, eq=False)
class BanditRun:
    """What `train_bandit` returns; S seeds, E measurements, K components, T tasks, A arms.

    Attributes:
        steps: steps done at each measurement, length E, 0 first.
        components: exact mean of every component under the policy, over all tasks, shape (S, E, K).
        reward: their weighted sum, shape (S, E).
        best_arm: probability of the arm with the largest weighted mean, shape (S, E).
        kl: KL(policy ‖ first policy), shape (S, E), nats.
        step_size: mean abs(A) of the steps since the measurement before, shape (S, E); 0 first.
        logits: the trained table, shape (S, T, A).
    """

    steps: list[int]
    components: Tensor
    reward: Tensor
    best_arm: Tensor
    kl: Tensor
    step_size: Tensor
    logits: Tensor


def train_bandit(
    method: str = "corrgrpo",
    objective: str = "grpo",
    seeds: Sequence[int] = range(8),
    *,
    steps: int = 300,
    groups_per_step: int = 8,
    group_size: int = 8,
    updates_per_rollout: int = 1,
    learning_rate: float = 8.0,
    optimizer: str = "sgd",
    kl_coefficient: float = 0.0,
    method_args: Mapping[str, Any] | None = None,
    objective_args: Mapping[str, Any] | None = None,
    env_args: Mapping[str, Any] | None = None,
    measure_every: int = 10,
) -> BanditRun:
    """Train a table of logits, beginning with all arms equally likely.

    A step draws `groups_per_step` tasks without replacement and pulls `group_size` arms of each. The loss is the
    objective's mean over pulls plus `kl_coefficient` times the mean of k3 to the first policy. With several
    updates per rollout each takes its own part of the groups, so that ratios leave 1 and clipping acts.

    Args:
        method: estimator.
        objective: surrogate.
        seeds: each decides tasks, pulls and noise of its own run; equal seeds see equal random numbers under every
            method, so that methods can be compared in pairs.
        steps: rollouts.
        groups_per_step: groups per rollout, at most the number of tasks.
        group_size: pulls per group.
        updates_per_rollout: optimiser updates per rollout, at most `groups_per_step`.
        learning_rate: constant; the default suits SGD, whose steps the mean over groups makes small (AdamW: 0.05).
        optimizer: "sgd", or "adamw" (β 0.9, 0.999, no weight decay), which undoes a common factor of all advantages.
        kl_coefficient: weight of the divergence.
        method_args: options of the estimator.
        objective_args: options of the objective.
        env_args: constructor arguments of `CorrelatedBandit`; the split is "all" unless given.
        measure_every: steps between measurements; the last step is always measured.

    Raises:
        ValueError: for an unknown name or option, a number out of range, or advantages that are not numbers.
    """
    for what, name, known in (
        ("method", method, ESTIMATORS),
        ("objective", objective, OBJECTIVES),
        ("optimizer", optimizer, OPTIMIZERS),
    ):
        if name not in known:
            raise unknown(what, name, known)
    ESTIMATORS[method].check_options(method_args or {})
    bandit = CorrelatedBandit(**{"split": "all", **(env_args or {})})
    levels = np.array([task.data for task in bandit.tasks])  # (T, A, K)
    if not 1 <= groups_per_step <= len(levels):
        raise ValueError(f"groups_per_step must be from 1 to the {len(levels)} tasks, not {groups_per_step}")
    if not 1 <= updates_per_rollout <= groups_per_step:
        raise ValueError(f"updates_per_rollout must be from 1 to groups_per_step, not {updates_per_rollout}")
    logits = torch.zeros(len(seeds), *levels.shape[:2], requires_grad=True)
    stepper = _optimizer(optimizer, logits, learning_rate)
    reference = logits.detach().log_softmax(dim=-1)
    rows = torch.arange(len(seeds))[:, None]
    measured: list[dict[str, Tensor]] = [_measured(logits.detach(), bandit, levels, reference)]
    at, sizes = [0], [torch.zeros(len(seeds), dtype=torch.float64)]
    size = torch.zeros(len(seeds), dtype=torch.float64)
    draws = _draws(seeds, steps, len(levels), groups_per_step, group_size, levels.shape[2])
    for step, (tasks, uniform, normal) in enumerate(draws, start=1):
        with torch.no_grad():
            old = logits[rows, tasks].log_softmax(dim=-1)  # (S, G, A)
            # The last arm takes what rounding leaves of 1.
            pulls = torch.searchsorted(old.exp().cumsum(dim=-1)[..., :-1].contiguous(), uniform)  # (S, G, n)
            paid = bandit.pay(levels[tasks[..., None].numpy(), pulls.numpy()], normal.numpy())
            advantages = _advantages(method, torch.from_numpy(paid), bandit, method_args or {}, step, seeds)
            old = old.gather(-1, pulls)
        size += advantages.abs().mean(dim=(1, 2), dtype=torch.float64)
        for part in torch.arange(groups_per_step).tensor_split(updates_per_rollout):
            logprobs = logits[rows, tasks[:, part]].log_softmax(dim=-1).gather(-1, pulls[:, part])
            surrogate = OBJECTIVES[objective](
                logprobs.flatten(), old[:, part].flatten(), advantages[:, part].flatten(), **(objective_args or {})
            )
            losses = surrogate.losses
            if kl_coefficient:
                towards = reference[rows, tasks[:, part]].gather(-1, pulls[:, part])
                losses = losses + kl_coefficient * kl_k3(logprobs.flatten(), towards.flatten())
            stepper.zero_grad(set_to_none=True)
            # A sum over seeds of means over pulls: no seed's gradient depends on the others.
            (losses.sum() / (len(part) * group_size)).backward()  # type: ignore[no-untyped-call]
            stepper.step()
        if step % measure_every == 0 or step == steps:
            measured.append(_measured(logits.detach(), bandit, levels, reference))
            sizes.append(size / (step - at[-1]))
            size = torch.zeros_like(size)
            at.append(step)
    curves = {name: torch.stack([one[name] for one in measured], dim=1) for name in measured[0]}
    return BanditRun(steps=at, step_size=torch.stack(sizes, dim=1), logits=logits.detach(), **curves)


def _optimizer(name: str, logits: Tensor, learning_rate: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD([logits], lr=learning_rate)
    return torch.optim.AdamW([logits], lr=learning_rate, weight_decay=0.0)


def _draws(
    seeds: Sequence[int], steps: int, tasks: int, groups: int, size: int, components: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Each step's tasks (S, G), uniform numbers (S, G, n) and normal ones (S, G, n, K), a stream per seed."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    for begin in range(0, steps, CHUNK):
        count = min(CHUNK, steps - begin)
        drawn = [
            (
                torch.rand(CHUNK, tasks, generator=generator).argsort(dim=1)[:, :groups],
                torch.rand(CHUNK, groups, size, generator=generator),
                torch.randn(CHUNK, groups, size, components, generator=generator, dtype=torch.float64),
            )
            for generator in generators
        ]
        chosen, uniform, normal = (torch.stack(parts, dim=1) for parts in zip(*drawn, strict=True))
        yield from zip(chosen[:count], uniform[:count], normal[:count], strict=True)


def _advantages(
    method: str, paid: Tensor, bandit: CorrelatedBandit, options: Mapping[str, Any], step: int, seeds: Sequence[int]
) -> Tensor:
    """Advantages (S, G, n) of components (S, G, n, K): every seed's rollout is a batch of its own."""
    estimator = ESTIMATORS[method]
    weights = torch.tensor([component.weight for component in bandit.reward_spec], dtype=torch.float64)
    counted = weights != 0
    count, groups, size = paid.shape[:3]

    def run(rollouts: Tensor, **extra: int) -> Tensor:
        labels = torch.arange(len(rollouts) * groups).repeat_interleave(size)
        rows = rollouts[..., counted].flatten(0, 2)
        batch = Batch(rows, weights[counted], Groups(labels, len(rollouts) * groups), torch.ones(len(rows)).double())
        return estimator(batch, {**extra, **options}).reshape(len(rollouts), groups, size)

    if estimator.per_group:
        return run(paid).float()
    seeded = "seed" in estimator.options
    each = [run(paid[i : i + 1], **({"seed": _mixed(seeds[i], step)} if seeded else {})) for i in range(count)]
    return torch.cat(each).float()


def _mixed(seed: int, step: int) -> int:
    return (seed * 1_000_003 + step) % 2**31


def _measured(logits: Tensor, bandit: CorrelatedBandit, levels: Any, reference: Tensor) -> dict[str, Tensor]:
    """Exact expectations over the policy's arms, mean over tasks."""
    logprobs = logits.double().log_softmax(dim=-1)
    probabilities = logprobs.exp()  # (S, T, A)
    means = torch.from_numpy(bandit.means(levels))  # (T, A, K)
    weights = torch.tensor([component.weight for component in bandit.reward_spec], dtype=torch.float64)
    components = torch.einsum("sta,tak->sk", probabilities, means) / len(levels)
    best = (means @ weights).argmax(dim=1)  # (T,)
    return {
        "components": components,
        "reward": components @ weights,
        "best_arm": probabilities[:, torch.arange(len(best)), best].mean(dim=1),
        "kl": (probabilities * (logprobs - reference)).sum(dim=-1).mean(dim=1),
    }
