"""Episodes as rows for people to read and programs to check."""

from collections.abc import Sequence
from typing import Any

from corrgrpo_train.rollout import Episode


def transcripts(
    episodes: Sequence[Episode], advantages: Sequence[float] | None, tokenizer: Any
) -> list[dict[str, Any]]:
    """One row of JSON values for each episode: texts, tokens with their log-probabilities, rewards and what came of it.

    Args:
        episodes: what was said and scored.
        advantages: one for each, or more; None where none were estimated.
        tokenizer: the policy's.
    """
    rows = []
    for index, episode in enumerate(episodes):
        tokens = episode.tokens
        rows.append(
            {
                "task_id": episode.task_id,
                "group": episode.group,
                "member": episode.member,
                "prompt": tokenizer.decode(tokens.token_ids[: tokens.prompt_length]),
                "texts": episode.texts,
                "status": episode.status,
                "error": episode.error,
                "reward": episode.reward,
                "components": episode.components,
                "metrics": episode.metrics,
                "advantage": None if advantages is None else advantages[index],
                "tokens": tokenizer.convert_ids_to_tokens(tokens.token_ids),
                "sampled": tokens.sampled,
                "logprobs": tokens.behaviour_logprobs,
            }
        )
    return rows
