"""One rollout's updates: old log-probabilities, losses over micro-batches, optimiser steps."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from corrgrpo_train.config import Config
from corrgrpo_train.objectives import AGGREGATIONS, OBJECTIVES
from corrgrpo_train.packing import MicroBatch, micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Sample:
    """What the update needs of one episode.

    Attributes:
        tokens: its tokens.
        group: label of its group.
        advantage: one number for all its sampled tokens.
    """

    tokens: TokenSequence
    group: int
    advantage: float


@dataclass(slots=True)
class _Sums:
    """Sums over the tokens of an update, for logging."""

    tokens: int = 0
    entropy: float = 0.0
    clipped: float = 0.0
    ratio: float = 0.0
    mismatch: float = 0.0
    loss: float = 0.0
    skipped: int = 0
    grad_norms: list[float] = field(default_factory=list)


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, samples: Sequence[Sample], config: Config, *, done: int
) -> dict[str, float]:
    """Improve the policy on a rollout.

    Args:
        policy: changed in place.
        optimizer: over the policy's parameters.
        samples: every scored episode; those with advantage 0 are left out of the backward pass but count in every
            normaliser.
        config: settings of the objective and the optimiser.
        done: optimiser updates before this call, for the learning rate's warm-up.

    Returns:
        `loss/policy` (mean over the updates), `policy/grad_norm` (their largest, before clipping), `policy/…` (means
        over the tokens) and `tokens/trained`; `nan` where no token was trained on.
    """
    parts = [_prepared(policy, part, config) for part in _parts(samples, config.updates_per_rollout)]
    if config.updates_per_rollout > 1:
        # Before the first update; with a single one the current log-probabilities, detached, are the old ones.
        for part in parts:
            part.old_logprobs = [_old_logprobs(policy, batch, config) for batch in part.batches]
    sums = _Sums()
    for number, part in enumerate(parts):
        if not part.batches:
            continue
        for batch, old_logprobs in zip(part.batches, part.old_logprobs, strict=True):
            _backward(policy, batch, old_logprobs, part, config, sums)
        scale = min(1.0, (done + number + 1) / config.warmup_steps) if config.warmup_steps else 1.0
        for settings in optimizer.param_groups:
            settings["lr"] = config.learning_rate * scale
        norm = clipped_step(policy, optimizer, config.max_grad_norm)
        sums.grad_norms.append(norm)
        sums.skipped += not math.isfinite(norm)
    return _metrics(sums)


def clipped_step(policy: Policy, optimizer: torch.optim.Optimizer, max_grad_norm: float) -> float:
    """Take one optimiser step with the gradient scaled down to `max_grad_norm` and return its norm before.

    A gradient that is not finite is thrown away: the step would make every weight nan, for good, and the next
    checkpoints with it.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm))
    if math.isfinite(norm):
        optimizer.step()
    else:
        logger.warning("an update is left out: its gradient is not finite (norm %s)", norm)
    optimizer.zero_grad(set_to_none=True)
    return norm


@dataclass(slots=True)
class _Part:
    """The episodes of one optimiser update.

    Attributes:
        sequences: tokens of the episodes with an advantage.
        advantages: (S,) theirs.
        weights: (S,) float64, weight of each token's loss, from the lengths of all episodes of the part.
        batches: micro-batches of `sequences`.
        old_logprobs: for each micro-batch (T,), or None for the current ones.
    """

    sequences: list[TokenSequence]
    advantages: Tensor
    weights: Tensor
    batches: list[MicroBatch]
    old_logprobs: list[Tensor | None]


def _parts(samples: Sequence[Sample], count: int) -> list[list[Sample]]:
    """Cut the rollout into `count` parts of whole groups, as even as may be."""
    groups = list(dict.fromkeys(sample.group for sample in samples))
    place = {group: index * count // len(groups) for index, group in enumerate(groups)}
    return [[sample for sample in samples if place[sample.group] == part] for part in range(count)]


def _prepared(policy: Policy, samples: Sequence[Sample], config: Config) -> _Part:
    lengths = torch.tensor([sample.tokens.completion_length for sample in samples])
    live = [index for index, sample in enumerate(samples) if sample.advantage != 0]
    sequences = [samples[index].tokens for index in live]
    weights = AGGREGATIONS[config.aggregation](lengths, config.aggregation_length) if samples else lengths.double()
    batches = micro_batches(
        sequences, [samples[index].group for index in live], config.token_budget, shared=policy.shares_prompts
    )
    return _Part(
        sequences,
        torch.tensor([samples[i].advantage for i in live]),
        weights[live],
        batches,
        [None] * len(batches),
    )


@torch.no_grad()
def _old_logprobs(policy: Policy, batch: MicroBatch, config: Config) -> Tensor:
    return policy.score(batch, config.temperature).logprobs


def _backward(
    policy: Policy, batch: MicroBatch, old_logprobs: Tensor | None, part: _Part, config: Config, sums: _Sums
) -> None:
    """Add a micro-batch's gradient and its sums."""
    scores = policy.score(batch, config.temperature)
    device = scores.logprobs.device
    old = scores.logprobs.detach() if old_logprobs is None else old_logprobs
    surrogate = OBJECTIVES[config.objective](
        scores.logprobs,
        old,
        part.advantages[batch.owners].to(device),
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )
    loss = (surrogate.losses * part.weights[batch.owners].to(device, torch.float32)).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    behaviour = torch.tensor(
        [
            part.sequences[owner].behaviour_logprobs[place]
            for owner, place in zip(batch.owners.tolist(), batch.places.tolist(), strict=True)
        ]
    )
    sums.tokens += len(batch.targets)
    sums.loss += float(loss.detach())
    sums.entropy += float(scores.entropies.sum())
    sums.clipped += float(surrogate.clipped.sum())
    sums.ratio += float(surrogate.ratios.sum())
    sums.mismatch += float((old.cpu() - behaviour).abs().sum())


def _metrics(sums: _Sums) -> dict[str, float]:
    def per_token(value: float) -> float:
        return value / sums.tokens if sums.tokens else math.nan

    return {
        "loss/policy": sums.loss / len(sums.grad_norms) if sums.grad_norms else math.nan,
        "policy/entropy": per_token(sums.entropy),
        "policy/clip_share": per_token(sums.clipped),
        "policy/ratio_mean": per_token(sums.ratio),
        "policy/engine_mismatch": per_token(sums.mismatch),
        "policy/grad_norm": max(filter(math.isfinite, sums.grad_norms), default=math.nan),
        "policy/updates_skipped": float(sums.skipped),
        "tokens/trained": float(sums.tokens),
    }
