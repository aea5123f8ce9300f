"""An episode in the form in which verl's agent loops return it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from corrgrpo_train.integrations.verl.components import COMPONENTS, WEIGHTS
from corrgrpo_train.rollout.episode import Episode


@dataclass(slots=True)
class EpisodeNotes:
    """What verl wants to know of an episode beside its tokens and rewards.

    Attributes:
        components: names that every row has to speak of; empty where the environment does not tell them beforehand.
        metrics: names of the environment's metrics.
        prompt: tokens before the first turn.
        generating: seconds for which the episode waited for the server.
        stepping: seconds for which it waited for the environment.
        versions: of the weights that its turns were sampled from.
    """

    components: tuple[str, ...]
    metrics: tuple[str, ...]
    prompt: int = 0
    generating: float = 0.0
    stepping: float = 0.0
    versions: list[int] = field(default_factory=list)

    def add_versions(self, fields: Mapping[str, Any]) -> None:
        """Take the versions from a turn's extra fields."""
        found = (fields.get(key) for key in ("min_global_steps", "max_global_steps"))
        self.versions += [int(version) for version in found if version is not None]


def output_of(
    episode: Episode,
    notes: EpisodeNotes,
    *,
    end_token: int,
    unknown: float | None,
    with_logprobs: bool,
    version: int,
) -> AgentLoopOutput:
    """Make verl's output of an episode.

    An episode that could not be scored keeps its tokens, with a mask of zeros: none of them is trained on. Its reward
    is 0, since verl averages over all, and its components are nan or none, which the estimators leave out.

    Args:
        episode: what was rolled out.
        notes: taken meanwhile.
        end_token: stands where there is no token at all.
        unknown: what a component or metric that is not known is logged as: None, which verl's validation leaves out,
            or nan where verl wants a number.
        with_logprobs: verl asked for the server's log-probabilities.
        version: of the weights, for an episode that never sampled.
    """
    tokens, prompt = episode.tokens, notes.prompt
    prompt_ids, response_ids = tokens.token_ids[:prompt], tokens.token_ids[prompt:]
    mask, logprobs = [int(sampled) for sampled in tokens.sampled[prompt:]], tokens.behaviour_logprobs[prompt:]
    if not response_ids:  # verl puts the reward on the last token: there has to be one
        prompt_ids, response_ids, mask, logprobs = prompt_ids or [end_token], [end_token], [0], [0.0]
    if not episode.valid:
        mask = [0] * len(mask)
    versions = notes.versions or [version]
    return AgentLoopOutput(
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        response_mask=mask,
        response_logprobs=logprobs if with_logprobs else None,
        reward_score=float(episode.reward) if episode.valid else 0.0,
        num_turns=2 * len(episode.texts),
        metrics=AgentLoopMetrics(generate_sequences=notes.generating, tool_calls=notes.stepping),
        extra_fields={
            COMPONENTS: dict(episode.components),
            WEIGHTS: dict(episode.weights),
            "task_id": episode.task_id,
            "status": episode.status,
            "reward_extra_info": _logged(episode, notes, unknown),
            "turn_scores": [],
            "tool_rewards": [],
            # verl makes arrays of them: every episode needs numbers.
            "min_global_steps": min(versions),
            "max_global_steps": max(versions),
        },
    )


def _logged(episode: Episode, notes: EpisodeNotes, unknown: float | None) -> dict[str, float | None]:
    """Components and metrics by the names under which verl logs and filters by them."""
    found = {
        f"components/{name}": episode.components.get(name, math.nan) for name in notes.components or episode.components
    }
    found |= {f"metrics/{name}": episode.metrics.get(name, math.nan) for name in notes.metrics}
    return {name: unknown if math.isnan(value) else value for name, value in found.items()}
