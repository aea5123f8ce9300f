"""One rollout's updates: old log-probabilities, losses over micro-batches, optimiser steps."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from corrgrpo_train.config import Config
from corrgrpo_train.objectives import AGGREGATIONS, IMPORTANCE_CORRECTIONS, OBJECTIVES, kl_k3, options_of
from corrgrpo_train.packing import MicroBatch, micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence
from corrgrpo_train.update_sums import TokenSums

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


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    config: Config,
    *,
    done: int,
) -> dict[str, float]:
    """Improve the policy on a rollout.

    Args:
        policy: changed in place; has a reference policy where `kl_coefficient` is not 0.
        optimizer: over the policy's parameters.
        samples: every scored episode; those with advantage 0 count in every normaliser, and are left out of the
            backward pass where neither KL nor entropy has a part in the loss.
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
            part.old_logprobs = [_logprobs(policy, batch, config) for batch in part.batches]
    sums = TokenSums()
    for number, part in enumerate(parts):
        if not part.sequences:
            continue
        for batch, old_logprobs in zip(part.batches, part.old_logprobs, strict=True):
            _backward(policy, batch, old_logprobs, part, config, sums)
        scale = min(1.0, (done + number + 1) / config.warmup_steps) if config.warmup_steps else 1.0
        for settings in optimizer.param_groups:
            settings["lr"] = config.learning_rate * scale
        sums.add_update(clipped_step(policy, optimizer, config.max_grad_norm))
    return TokenSums.joined(policy.processes.gather(sums)).metrics()


def clipped_step(policy: Policy, optimizer: torch.optim.Optimizer, max_grad_norm: float) -> float:
    """Take one optimiser step with the gradient scaled down to `max_grad_norm` and return its norm before.

    A gradient that is not finite is thrown away: the step would make every weight nan, for good, and the next
    checkpoints with it.
    """
    norm = policy.clip_gradients(max_grad_norm)
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
        batches: this process's micro-batches of `sequences`.
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
    everything = config.kl_coefficient != 0 or config.entropy_coefficient != 0
    live = [index for index, sample in enumerate(samples) if everything or sample.advantage != 0]
    sequences = [samples[index].tokens for index in live]
    weights = AGGREGATIONS[config.aggregation](lengths, config.aggregation_length) if samples else lengths.double()
    batches = micro_batches(
        sequences, [samples[index].group for index in live], config.token_budget, shared=policy.shares_prompts
    )
    batches = policy.deal(batches)
    return _Part(
        sequences,
        torch.tensor([samples[i].advantage for i in live]),
        weights[live],
        batches,
        [None] * len(batches),
    )


@torch.no_grad()
def _logprobs(policy: Policy, batch: MicroBatch, config: Config) -> Tensor:
    return policy.score(batch, config.temperature).logprobs


def _backward(
    policy: Policy,
    batch: MicroBatch,
    old_logprobs: Tensor | None,
    part: _Part,
    config: Config,
    sums: TokenSums,
) -> None:
    """Add a micro-batch's gradient and its sums."""
    reference_logprobs = None
    if config.kl_coefficient:
        with policy.reference():
            reference_logprobs = policy.score(batch, config.temperature).logprobs
    scores = policy.score(batch, config.temperature, entropy_gradient=config.entropy_coefficient != 0)
    if not len(batch.targets):
        scores.logprobs.sum().backward()  # type: ignore[no-untyped-call]
        return
    device = scores.logprobs.device
    old = scores.logprobs.detach() if old_logprobs is None else old_logprobs
    options = {name: getattr(config, name) for name in options_of(config.objective)}
    surrogate = OBJECTIVES[config.objective](
        scores.logprobs,
        old,
        part.advantages[batch.owners].to(device),
        **{name: value for name, value in options.items() if value is not None},
    )
    behaviour = _behaviour(batch, part).to(device)
    cap = {} if config.importance_cap is None else {"importance_cap": config.importance_cap}
    importance = IMPORTANCE_CORRECTIONS[config.importance_correction](old, behaviour, **cap)
    weights = part.weights[batch.owners].to(device, torch.float32)
    policy_loss = (surrogate.losses * importance * weights).sum()
    loss = policy_loss
    divergence = None
    if reference_logprobs is not None:
        divergence = kl_k3(scores.logprobs, reference_logprobs)
        loss = loss + config.kl_coefficient * (divergence * weights).sum()
    if config.entropy_coefficient:
        loss = loss - config.entropy_coefficient * (scores.entropies * weights).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    sums.add_tokens(surrogate, scores.entropies, divergence, importance, (old - behaviour).abs(), policy_loss)


def _behaviour(batch: MicroBatch, part: _Part) -> Tensor:
    """The engine's log-probabilities of the batch's sampled tokens, (T,)."""
    places = zip(batch.owners.tolist(), batch.places.tolist(), strict=True)
    return torch.tensor([part.sequences[owner].behaviour_logprobs[place] for owner, place in places])
