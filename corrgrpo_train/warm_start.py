"""Supervised steps on reference answers, before reinforcement learning."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from corrgrpo_envs.errors import shown
from corrgrpo_train.errors import UsageError
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import EnvironmentFailedError, EpisodeRunner, Start
from corrgrpo_train.rollout.episode import TokenSequence
from corrgrpo_train.rollout.groups import GroupSampler, checked
from corrgrpo_train.update import clipped_step

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class References:
    """Reference answers to imitate.

    Attributes:
        sequences: their tokens, prompts included.
        too_long: how many more were left out because they are longer than an episode may be.
    """

    sequences: list[TokenSequence] = field(default_factory=list)
    too_long: int = 0


def reference_sequences(sampler: GroupSampler, chat: Chat, count: int, longest: int) -> References:
    """Tokenise the reference answers of the first `count` tasks in the sampler's order.

    The tasks that are drawn count as met: training goes on after them.

    Args:
        sampler: draws the tasks.
        chat: the policy's chat template.
        count: how many answers; fewer where the environment has fewer.
        longest: an answer of more tokens, its prompt included, is left out and counted: the model has no room for it.

    Raises:
        UsageError: if the environment has no references, or none that is short enough.
    """
    return sampler.of_first(lambda: _references(sampler, chat, count, longest))


def _references(sampler: GroupSampler, chat: Chat, count: int, longest: int) -> References:
    sequences: list[TokenSequence] = []
    too_long = 0
    for _ in range(sampler.tasks or count):
        if len(sequences) == count:
            break
        sequence = _sequence(sampler.runners[0], sampler, chat)
        if sequence is not None and len(sequence) <= longest:
            sequences.append(sequence)
        too_long += sequence is not None and len(sequence) > longest
    if not sequences and too_long:
        raise UsageError(
            f"all {too_long} reference answers for the warm start are longer than an episode may be, {longest} tokens "
            "(max_episode_tokens, or the model's context); raise it, or use --warm-start 0"
        )
    if not sequences:
        raise UsageError("warm_start needs reference answers and this environment has none; use --warm-start 0")
    return References(sequences, too_long)


def _sequence(runner: EpisodeRunner, sampler: GroupSampler, chat: Chat) -> TokenSequence | None:
    """Act out the next task's reference turn by turn; None if the task has none or its environment fails."""
    try:
        return _acted_out(runner, sampler.draw(), chat)
    except EnvironmentFailedError as failure:
        logger.warning("a reference answer is left out: %s", failure)
        return None


def _acted_out(runner: EpisodeRunner, start: Start, chat: Chat) -> TokenSequence | None:
    observation = runner.reset(start)
    reference = getattr(runner.env.unwrapped, "reference", None)
    turns: Sequence[str] | None = checked(lambda: runner.call(reference)) if callable(reference) else None
    if not turns:
        return None
    if not isinstance(turns, tuple | list) or not all(isinstance(text, str) for text in turns):
        raise UsageError(f"the environment's reference() must return the texts of its turns, not {shown(turns)}")
    opening = tuple(dict(message) for message in observation["messages"])
    tools = observation.get("tools", "[]")
    sequence = TokenSequence()
    sequence.add_given(chat.opening(opening, tools))
    seen = len(opening)
    for number, text in enumerate(turns):
        ids = chat.reference(text)
        sequence.add_sampled(tuple(ids), (0.0,) * len(ids))
        stepped = runner.step(text)
        if stepped.ended or number == len(turns) - 1:
            break
        messages = tuple(dict(message) for message in stepped.observation["messages"])
        sequence.add_given(chat.continuation(opening, tools, messages[seen + 1 :], after_eos=True))
        seen = len(messages)
    return sequence


def supervised_steps(
    policy: Policy,
    sequences: Sequence[TokenSequence],
    *,
    batch: int,
    epochs: int,
    learning_rate: float,
    max_grad_norm: float,
    token_budget: int,
) -> Iterator[float]:
    """Minimise the mean cross-entropy of the reference tokens; yield each step's loss in nats per token."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=learning_rate, weight_decay=0.0)
    for _ in range(epochs):
        for start in range(0, len(sequences), batch):
            chunk = sequences[start : start + batch]
            tokens = sum(sequence.completion_length for sequence in chunk)
            loss = 0.0
            for part in policy.deal(micro_batches(chunk, range(len(chunk)), token_budget, shared=False)):
                piece = -policy.score(part, 1.0).logprobs.sum() / tokens
                piece.backward()  # type: ignore[no-untyped-call]
                loss += float(piece.detach())
            clipped_step(policy, optimizer, max_grad_norm)
            yield sum(policy.processes.gather(loss))
