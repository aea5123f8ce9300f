"""Turns of an episode: what is asked of the engine, and what a step of the environment adds to the episode."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corrgrpo_train.engines import Completion, SamplingRequest
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout.chat import Chat, Message
from corrgrpo_train.rollout.environment import EnvironmentFailedError, EpisodeRunner, Start, Stepped
from corrgrpo_train.rollout.episode import Episode

_STATUS_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Limits:
    """Token limits of an episode.

    Attributes:
        new_tokens: per assistant turn.
        episode_tokens: of the whole sequence, prompt included.
    """

    new_tokens: int
    episode_tokens: int


@dataclass(slots=True)
class LiveEpisode:
    """An episode that is still running.

    Attributes:
        full: it has no room for another turn, and is to be broken off.
    """

    episode: Episode
    runner: EpisodeRunner
    messages: tuple[Message, ...]
    opening: tuple[Message, ...]
    tools: str
    full: bool = False

    @property
    def turn(self) -> int:
        """How many turns the assistant has had."""
        return len(self.episode.texts)


def reset(runner: EpisodeRunner, start: Start) -> Mapping[str, Any] | EnvironmentFailedError:
    """The first observation, or how the environment failed."""
    try:
        return runner.reset(start)
    except EnvironmentFailedError as failure:
        return failure


def step(runner: EpisodeRunner, text: str, full: bool) -> Stepped | EnvironmentFailedError:
    """What the environment makes of an assistant's text, or how it failed; `full` breaks the episode off."""
    try:
        return runner.finish(text) if full else runner.step(text)
    except EnvironmentFailedError as failure:
        return failure


def opened(
    episode: Episode,
    runner: EpisodeRunner,
    first: Mapping[str, Any] | EnvironmentFailedError,
    chat: Chat,
    limits: Limits,
) -> LiveEpisode | None:
    """Begin an episode with its first observation; None if the environment failed."""
    if isinstance(first, EnvironmentFailedError):
        fail(episode, first)
        return None
    messages = tuple(dict(message) for message in first["messages"])
    tools = first.get("tools", "[]")
    episode.tokens.add_given(chat.opening(messages, tools))
    if len(episode.tokens) >= limits.episode_tokens:  # an environment that does not repeat itself: tasks are measured
        fail(episode, EnvironmentFailedError("the first messages are longer than an episode may be"))
        return None
    return LiveEpisode(episode, runner, messages, messages, tools)


def context_full(completion: Completion, limits: Limits) -> bool:
    """Whether the turn was cut because the episode, not the turn, has no room for more tokens."""
    return not completion.finished and len(completion.token_ids) < limits.new_tokens


def turn_request(one: LiveEpisode, limits: Limits, key: tuple[int, ...]) -> SamplingRequest:
    """What the engine is asked for the episode's next turn."""
    episode = one.episode
    room = limits.episode_tokens - len(episode.tokens)
    return SamplingRequest(
        prompt_ids=tuple(episode.tokens.token_ids),
        max_new_tokens=max(1, min(limits.new_tokens, room)),
        key=(*key, episode.group, episode.member, one.turn),
    )


def record(
    one: LiveEpisode,
    completion: Completion,
    text: str,
    result: Stepped | EnvironmentFailedError,
    chat: Chat,
    limits: Limits,
) -> bool:
    """Write a turn into its episode; return whether the episode goes on.

    Where it does not because it is `full`, the caller has to `break_off`: that is the environment's work, which may
    take long and be done elsewhere.
    """
    episode = one.episode
    episode.tokens.add_sampled(completion.token_ids, completion.logprobs)
    messages = take(episode, one.messages, text, result)
    if messages is None:
        return False
    added = messages[len(one.messages) + 1 :]
    between = chat.continuation(one.opening, one.tools, added, after_eos=completion.finished)
    if len(episode.tokens) + len(between) >= limits.episode_tokens:
        one.full = True
        return False
    episode.tokens.add_given(between)
    one.messages = messages
    return True


def take(
    episode: Episode, messages: tuple[Message, ...], text: str, result: Stepped | EnvironmentFailedError
) -> tuple[Message, ...] | None:
    """Write the assistant's text and what came of it into the episode.

    Args:
        episode: the episode.
        messages: the conversation that the text answers.
        text: the assistant's text.
        result: what the environment made of it.

    Returns:
        the conversation that goes on, or None where the episode has ended.
    """
    episode.texts.append(text)
    if isinstance(result, EnvironmentFailedError):
        fail(episode, result)
        return None
    try:
        _add(episode, result)
    except EnvironmentFailedError as failure:
        fail(episode, failure)
        return None
    if result.ended:
        return None
    following = tuple(dict(message) for message in result.observation["messages"])
    seen = len(messages)
    if following[:seen] != messages or len(following) <= seen or following[seen]["role"] != "assistant":
        fail(episode, EnvironmentFailedError("the conversation was rewritten: messages may only be added"))
        return None
    return following


def break_off(episode: Episode, runner: EpisodeRunner) -> None:
    """End an episode that has no room for another turn, and score it."""
    try:
        _add(episode, runner.finish(""))
    except EnvironmentFailedError as failure:
        fail(episode, failure)


def _add(episode: Episode, result: Stepped) -> None:
    """Add a step's reward; an episode's vector is the sum over its steps.

    Raises:
        EnvironmentFailedError: if a component or the reward is infinite: no reward, so the episode is not scored.
        UsageError: if names, weights or the sum break the contract: training could not mean what it reports.
    """
    components, weights = _vector(result.info, "reward_components"), _vector(result.info, "reward_weights")
    if set(components) != set(weights) or (episode.components and set(components) != set(episode.components)):
        raise UsageError(
            f"the environment's reward components must keep one set of names: {sorted(components)} with weights "
            f"{sorted(weights)}" + (f", before {sorted(episode.components)}" if episode.components else "")
        )
    if not all(map(math.isfinite, weights.values())):
        raise UsageError(f"the environment's reward_weights must be finite, not {weights}")
    if any(map(math.isinf, (result.reward, *components.values()))):
        raise EnvironmentFailedError(f"infinite rewards: {result.reward:g} of components {components}")
    total = sum(weights[name] * value for name, value in components.items() if weights[name] != 0)
    # Either way of comparing must hold, for nothing compares with nan.
    if not (abs(result.reward - total) <= 1e-4 * (1 + abs(total)) or (math.isnan(result.reward) and math.isnan(total))):
        raise UsageError(
            f"the environment returned reward {result.reward:g}, but its weighted components sum to {total:g}; "
            "training would use other weights than it reports"
        )
    episode.components = {name: episode.components.get(name, 0.0) + value for name, value in components.items()}
    episode.weights = weights
    episode.reward += result.reward
    # It becomes the name of a measure: a word, not an essay.
    episode.status = str(result.info.get("status", ""))[:_STATUS_LENGTH]
    episode.metrics = _metrics(result.info.get("metrics"))
    episode.truncated = result.truncated


def _vector(info: Mapping[str, Any], key: str) -> dict[str, float]:
    try:
        return {str(name): _number(value) for name, value in info[key].items()}
    except (KeyError, AttributeError, TypeError, ValueError):
        raise UsageError(
            f"the environment's info must hold {key!r}, a dict of numbers by component name (see docs/environments.md)"
        ) from None


def _metrics(metrics: Any) -> dict[str, float]:
    """The numbers among the metrics: they are welcome, not required."""
    found: dict[str, float] = {}
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        with contextlib.suppress(TypeError, ValueError):
            found[str(name)] = _number(value)
    return found


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):  # which float() would read
        raise TypeError(f"a text is no number: {value!r}")
    return float(value)


def fail(episode: Episode, failure: EnvironmentFailedError) -> None:
    """Leave the episode unscored: it is counted, and no part of it reaches the loss."""
    episode.error, episode.status = str(failure), "environment_error"
    episode.components, episode.reward = {}, float("nan")
