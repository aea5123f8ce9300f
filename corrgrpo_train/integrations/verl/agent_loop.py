"""`EnvironmentAgentLoop`: one episode of an environment, each turn sampled by verl's servers."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

from corrgrpo_train.config import Config
from corrgrpo_train.engines import Completion
from corrgrpo_train.integrations.verl.episode_output import EpisodeNotes, output_of
from corrgrpo_train.integrations.verl.names import AGENT_LOOP
from corrgrpo_train.models.end_tokens import end_tokens
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import EpisodeRunner, Start, arguments_for
from corrgrpo_train.rollout.episode import Episode, TokenSequence
from corrgrpo_train.rollout.turns import Limits, break_off, context_full, opened, record, reset, step, turn_request
from corrgrpo_train.step_rollout import overlong_penalty

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class EnvironmentAgentLoop(AgentLoopBase):  # type: ignore[misc]  # verl has no types
    """`actor_rollout_ref.rollout.agent.default_agent_loop=corrgrpo`; verl makes one for each episode.

    Tokens are exact as in our own rollouts: what the server sampled is kept, and only the text between two turns is
    rendered and tokenised. The environment's calls run in threads; a failing one costs its episode, not its group.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Read the settings under `data.corrgrpo`."""
        super().__init__(*args, **kwargs)
        self.settings = Config(**OmegaConf.to_container(self.data_config.corrgrpo, resolve=True))
        self.chat = chat_of(self.tokenizer, str(self.config.actor_rollout_ref.model.path))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Run the episode.

        Args:
            sampling_params: verl's, for every turn.
            **row: of `TaskDataset`: `task_id`, `start_seed` and `split` say what the episode is of, `validation` what
                it is for.

        Raises:
            RuntimeError: if the server broke a turn off; verl then counts the whole group as failed.
        """
        settings, training = self.settings, not row["validation"]
        start = Start(row["task_id"], int(row["start_seed"]))
        arguments = arguments_for(settings.env_arguments, row["split"])
        runner = await self._in_thread(lambda: EpisodeRunner(settings.env, arguments, timeout=settings.env_timeout))
        notes = EpisodeNotes(component_names(runner), tuple(getattr(runner.env.unwrapped, "metric_names", ())))
        episode = Episode(0, 0, start.label)
        try:
            await self._play(episode, runner, start, sampling_params, notes)
        finally:
            await self._in_thread(runner.close)
        if episode.error is not None:
            logger.warning("an episode of task %s costs its place in the group: %s", episode.task_id, episode.error)
        # Validation shows the environment's own reward.
        penalty = overlong_penalty(settings) if training else None
        if penalty is not None:
            penalty.add_to([episode])
            notes.components = (*notes.components, penalty.component.name) if notes.components else ()
        return output_of(
            episode,
            notes,
            end_token=self.chat.turn_end,
            unknown=math.nan if training else None,
            with_logprobs=bool(sampling_params.get("logprobs")),
            version=int(row.get("global_steps", 0)),
        )

    async def _play(
        self,
        episode: Episode,
        runner: EpisodeRunner,
        start: Start,
        sampling_params: dict[str, Any],
        notes: EpisodeNotes,
    ) -> None:
        """Fill the episode, turn by turn."""
        chat, new_tokens = self.chat, self.settings.max_new_tokens
        # An episode begins only if its prompt fits, and then has verl's response length to itself.
        limits = Limits(new_tokens, int(self.rollout_config.prompt_length) + 1)
        first = await self._in_thread(lambda: reset(runner, start), notes)
        one = opened(episode, runner, first, chat, limits)
        if one is None:
            episode.tokens = TokenSequence()
            return
        notes.prompt = len(episode.tokens)
        limits = Limits(new_tokens, notes.prompt + int(self.rollout_config.response_length))
        request_id = uuid4().hex  # one for all turns: they go to the server that has the episode's cache
        while True:
            asked = turn_request(one, limits, ())
            began = time.perf_counter()
            output = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=list(asked.prompt_ids),
                sampling_params={**sampling_params, "max_tokens": asked.max_new_tokens},
            )
            notes.generating += time.perf_counter() - began
            notes.add_versions(output.extra_fields)
            completion = completion_of(output, chat)
            text, full = chat.text(completion.token_ids), context_full(completion, limits)
            result = await self._in_thread(
                lambda text=text, full=full: step(runner, text, full),  # type: ignore[misc]
                notes,
            )
            if not record(one, completion, text, result, chat, limits):
                break
        if one.full:
            await self._in_thread(lambda: break_off(episode, runner), notes)

    async def _in_thread(self, call: Callable[[], Answer], notes: EpisodeNotes | None = None) -> Answer:
        began = time.perf_counter()
        answer = await asyncio.get_running_loop().run_in_executor(None, call)
        if notes is not None:
            notes.stepping += time.perf_counter() - began
        return answer


@lru_cache(maxsize=4)
def chat_of(tokenizer: Any, model: str) -> Chat:
    """The tokenizer's chat, ended by every token at which verl's servers stop. Probed once, not for each episode."""
    return Chat(tokenizer, end_tokens(model))


def completion_of(output: Any, chat: Chat) -> Completion:
    """What verl's server sampled, as ours; log-probabilities are 0 where the server gave none.

    Raises:
        RuntimeError: if the turn was broken off before an end token or its limit.
    """
    if output.stop_reason == "aborted":
        raise RuntimeError("the server broke a turn off (aborted)")
    ids = tuple(int(token) for token in output.token_ids)
    logprobs = tuple(float(value) for value in output.log_probs or [0.0] * len(ids))
    if len(logprobs) != len(ids):
        raise RuntimeError(f"the server gave {len(logprobs)} log-probabilities for {len(ids)} tokens")
    return Completion(ids, logprobs, finished=bool(ids) and ids[-1] in chat.eos_ids)


def component_names(runner: EpisodeRunner) -> tuple[str, ...]:
    """Names of the components, in order; empty where the environment does not tell them before the first step."""
    return tuple(getattr(getattr(runner.env.unwrapped, "reward_spec", None), "names", ()))


register(AGENT_LOOP)(EnvironmentAgentLoop)
