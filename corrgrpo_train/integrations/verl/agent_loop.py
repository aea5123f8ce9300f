"""`EnvironmentAgentLoop`: one episode of an environment, each turn sampled by verl's servers."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar
from uuid import uuid4

from omegaconf import OmegaConf
from transformers import GenerationConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from corrgrpo_train.config import Config
from corrgrpo_train.engines import Completion
from corrgrpo_train.integrations.verl.components import COMPONENTS, WEIGHTS
from corrgrpo_train.integrations.verl.names import AGENT_LOOP
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.turns import Limits, context_full, opened, record, reset, step, turn_request
from corrgrpo_train.step_rollout import overlong_penalty

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
            **row: of `TaskDataset`: `task_id`, `start_seed` and `split` say what the episode is of.

        Raises:
            RuntimeError: if the server broke a turn off; verl then counts the whole group as failed.
        """
        settings, chat = self.settings, self.chat
        response_length = int(self.rollout_config.response_length)
        # An episode begins only if its prompt fits, and then has verl's response length to itself.
        limits = Limits(settings.max_new_tokens, int(self.rollout_config.prompt_length) + 1)
        start = Start(row["task_id"], int(row["start_seed"]))
        runner = await self._in_thread(
            lambda: EpisodeRunner(settings.env, arguments_for(settings, row["split"]), timeout=settings.env_timeout)
        )
        episode, clock, versions = Episode(0, 0, start.label), _Clock(), _Versions()
        request_id = uuid4().hex  # one for all turns: they go to the server that has the episode's cache
        names = component_names(runner)
        metric_names = tuple(getattr(runner.env.unwrapped, "metric_names", ()))
        try:
            first = await self._in_thread(lambda: reset(runner, start), clock)
            one = opened(episode, runner, first, chat, limits)
            prompt = len(episode.tokens)
            limits = Limits(settings.max_new_tokens, prompt + response_length)
            while one is not None:
                asked = turn_request(one, limits, ())
                began = time.perf_counter()
                output = await self.server_manager.generate(
                    request_id=request_id,
                    prompt_ids=list(asked.prompt_ids),
                    sampling_params={**sampling_params, "max_tokens": asked.max_new_tokens},
                )
                clock.generating += time.perf_counter() - began
                versions.add(output.extra_fields)
                completion = completion_of(output, chat)
                text, full = chat.text(completion.token_ids), context_full(completion, limits)
                result = await self._in_thread(
                    lambda text=text, full=full: step(runner, text, full),  # type: ignore[misc]
                    clock,
                )
                if not record(one, completion, text, result, chat, limits):
                    break
        finally:
            await self._in_thread(runner.close)
        # Validation shows the environment's own reward.
        penalty = overlong_penalty(settings) if row["split"] == "train" else None
        if penalty is not None:
            penalty.add_to([episode])
            names = (*names, penalty.component.name) if names else ()
        return output_of(
            episode,
            prompt,
            chat,
            names=names or tuple(episode.components),
            metric_names=metric_names,
            validating=row["split"] != "train",
            with_logprobs=bool(sampling_params.get("logprobs")),
            clock=clock,
            versions=versions.fields(row),
        )

    async def _in_thread(self, call: Callable[[], Answer], clock: "_Clock | None" = None) -> Answer:
        began = time.perf_counter()
        answer = await asyncio.get_running_loop().run_in_executor(None, call)
        if clock is not None:
            clock.stepping += time.perf_counter() - began
        return answer


class _Clock:
    """Seconds spent on the two sides of an episode."""

    def __init__(self) -> None:
        self.generating = self.stepping = 0.0


class _Versions:
    """Which updates of the weights an episode's turns were sampled from: verl's names for it."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def add(self, fields: Mapping[str, Any]) -> None:
        self.seen += [
            int(fields[key]) for key in ("min_global_steps", "max_global_steps") if fields.get(key) is not None
        ]

    def fields(self, row: Mapping[str, Any]) -> dict[str, int]:
        # verl makes arrays of them: an episode that never sampled needs numbers as well.
        seen = self.seen or [int(row.get("global_steps", 0))]
        return {"min_global_steps": min(seen), "max_global_steps": max(seen)}


@lru_cache(maxsize=4)
def chat_of(tokenizer: Any, model: str) -> Chat:
    """The tokenizer's chat, ended by every token at which verl's servers stop. Probed once, not for each episode."""
    return Chat(tokenizer, end_tokens(model))


def end_tokens(model: str) -> tuple[int, ...]:
    """End tokens in the generation settings of a model's folder or hub id; none where it has no such settings."""
    if not model:
        return ()
    try:
        listed = GenerationConfig.from_pretrained(model).eos_token_id
    except (OSError, ValueError):
        return ()
    return tuple(listed if isinstance(listed, list | tuple) else () if listed is None else (listed,))


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


def arguments_for(settings: Config, split: str) -> dict[str, Any]:
    """The environment's constructor arguments; training's are as given, for not every environment knows splits."""
    return settings.env_arguments if split == "train" else {**settings.env_arguments, "split": split}


def component_names(runner: EpisodeRunner) -> tuple[str, ...]:
    """Names of the components, in order; empty where the environment does not tell them before the first step."""
    return tuple(getattr(getattr(runner.env.unwrapped, "reward_spec", None), "names", ()))


def output_of(
    episode: Episode,
    prompt: int,
    chat: Chat,
    *,
    names: tuple[str, ...],
    metric_names: tuple[str, ...],
    validating: bool,
    with_logprobs: bool,
    clock: _Clock,
    versions: Mapping[str, int],
) -> AgentLoopOutput:
    """An episode in verl's form.

    An episode that could not be scored keeps its tokens, with a mask of zeros: none of them is trained on or counted in
    the loss's normalisers. Its reward is 0, since verl averages over all, and its components are nan, which the
    estimators leave out.

    Args:
        episode: what was rolled out.
        prompt: tokens of it before the first turn.
        chat: of the policy.
        names: of the components, of which every row has to speak.
        metric_names: of the environment's metrics.
        validating: what is not known then is None, which verl's validation leaves out; in training it is nan.
        with_logprobs: verl asked for the server's log-probabilities.
        clock: seconds spent.
        versions: of the weights.
    """
    tokens, unknown = episode.tokens, None if validating else math.nan
    prompt_ids, response_ids = tokens.token_ids[:prompt], tokens.token_ids[prompt:]
    mask, logprobs = [int(sampled) for sampled in tokens.sampled[prompt:]], tokens.behaviour_logprobs[prompt:]
    if not response_ids:  # verl puts the reward on the last token: there has to be one
        prompt_ids, response_ids, mask, logprobs = prompt_ids or [chat.turn_end], [chat.turn_end], [0], [0.0]
    if not episode.valid:
        mask = [0] * len(mask)
    components = {name: episode.components.get(name, math.nan) for name in names}
    known = {f"components/{name}": value if not math.isnan(value) else unknown for name, value in components.items()}
    measured = {f"metrics/{name}": episode.metrics.get(name, unknown) for name in metric_names}
    return AgentLoopOutput(
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        response_mask=mask,
        response_logprobs=logprobs if with_logprobs else None,
        reward_score=float(episode.reward) if episode.valid else 0.0,
        num_turns=2 * len(episode.texts),
        metrics=AgentLoopMetrics(generate_sequences=clock.generating, tool_calls=clock.stepping),
        extra_fields={
            COMPONENTS: dict(episode.components),
            WEIGHTS: dict(episode.weights),
            "task_id": episode.task_id,
            "status": episode.status,
            "reward_extra_info": {**known, **measured},
            "turn_scores": [],
            "tool_rewards": [],
            **versions,
        },
    )


register(AGENT_LOOP)(EnvironmentAgentLoop)
