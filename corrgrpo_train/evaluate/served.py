"""`ServedSampler`: a model behind an OpenAI-compatible server, many conversations at the same time."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from corrgrpo_train.engines.sampling import seed_of
from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.chat_client import ChatClient, Reply, RequestFailedError, TooLongError
from corrgrpo_train.evaluate.conversation import TOOL_MODES, call_format_of, text_of
from corrgrpo_train.evaluate.sample import Job, Sample, sample_of
from corrgrpo_train.evaluate.sampler import Done
from corrgrpo_train.evaluate.settings import EnvironmentChoice, Settings
from corrgrpo_train.rollout.chat import Message
from corrgrpo_train.rollout.environment import EnvironmentFailedError, EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.turns import break_off, fail, reset, step, take

REQUEST_FAILED = "request_failed"
FAILURES_IN_A_ROW = 8
"""So many episodes without an answer, one after the other, end the evaluation: it is the server that fails."""


@dataclass(slots=True)
class ServedSampler:
    """Plays episodes against a server.

    Attributes:
        settings: of the evaluation.
        client: how the server is asked.
        concurrency: conversations at the same time.
        workers: threads in which environments step.
        timeout: seconds after which a call of an environment counts as failed; None waits for ever.
    """

    settings: Settings
    client: ChatClient
    concurrency: int = 16
    workers: int = 4
    timeout: float | None = 600.0
    _failures: int = field(default=0, init=False)

    def play(
        self, choice: EnvironmentChoice, units: Sequence[Sequence[Job]], starts: Mapping[str, Start], done: Done
    ) -> None:
        """Play all jobs; each is done when its own conversation is."""
        jobs = [job for unit in units for job in unit]
        count = min(self.concurrency, len(jobs))
        runners = [EpisodeRunner(choice.name, choice.arguments, timeout=self.timeout) for _ in range(count)]
        try:
            asyncio.run(self._play_all(iter(jobs), runners, starts, done))
        except BaseExceptionGroup as group:
            told = group.subgroup(UsageError)
            if told is None:
                raise
            raise _first(told) from group
        finally:
            for runner in runners:
                runner.close()

    def close(self) -> None:
        """Nothing to do: connections are closed after each environment."""

    async def _play_all(
        self, jobs: Iterator[Job], runners: Sequence[EpisodeRunner], starts: Mapping[str, Start], done: Done
    ) -> None:
        with ThreadPoolExecutor(max_workers=max(1, self.workers)) as pool:
            async with self.client, asyncio.TaskGroup() as group:
                known = tuple(await self.client.models())

                async def work(runner: EpisodeRunner) -> None:
                    # Each takes the next job as soon as it is done with one.
                    for job in jobs:
                        sample = await _Talk(self, runner, pool, known).play(job, starts[job.task])
                        self._watch(sample)
                        done([sample])

                for runner in runners:
                    group.create_task(work(runner))

    def _watch(self, sample: Sample) -> None:
        """End the evaluation when nothing but failures comes back."""
        self._failures = self._failures + 1 if sample.status == REQUEST_FAILED else 0
        if self._failures >= FAILURES_IN_A_ROW:
            raise UsageError(
                f"{self._failures} episodes in a row failed, the last: {sample.error}; what is finished is kept: run "
                "the same command with --retry when the server is well"
            )


@dataclass(slots=True)
class _Talk:
    """One conversation."""

    sampler: ServedSampler
    runner: EpisodeRunner
    pool: ThreadPoolExecutor
    known: tuple[str, ...]
    replies: list[Reply] = field(default_factory=list)
    tokens: int | None = 0

    async def play(self, job: Job, start: Start) -> Sample:
        episode = Episode(job.index, job.sample, job.task)
        try:
            await self._play(episode, start)
        except RequestFailedError as error:
            fail(episode, EnvironmentFailedError(str(error)))
            episode.status = REQUEST_FAILED
        return sample_of(job, episode, self.tokens)

    async def _play(self, episode: Episode, start: Start) -> None:
        loop, settings = asyncio.get_running_loop(), self.sampler.settings
        first = await loop.run_in_executor(self.pool, reset, self.runner, start)
        if isinstance(first, EnvironmentFailedError):
            fail(episode, first)
            return
        opening = tuple(dict(message) for message in first["messages"])
        schemas = json.loads(first.get("tools", "[]"))
        written = call_format_of(self.runner.env.unwrapped)
        messages: tuple[Message, ...] | None = opening
        while messages is not None:
            try:
                reply = await self._asked(messages, len(opening), schemas, (episode.group, episode.member))
            except TooLongError as error:
                if self.replies:
                    await loop.run_in_executor(self.pool, break_off, episode, self.runner)
                else:
                    fail(episode, EnvironmentFailedError(f"the first messages are too long for the server: {error}"))
                return
            self.replies.append(reply)
            self.tokens = None if self.tokens is None or reply.tokens is None else self.tokens + reply.tokens
            text = text_of(reply, written, settings.reasoning)
            # Cut before the turn's own limit: the context is full.
            full = reply.finish == "length" and reply.tokens is not None and reply.tokens < settings.max_new_tokens
            result = await loop.run_in_executor(self.pool, step, self.runner, text, full)
            messages = take(episode, messages, text, result)

    async def _asked(
        self, messages: Sequence[Message], opening: int, schemas: list[Any], key: tuple[int, int]
    ) -> Reply:
        settings = self.sampler.settings
        mode = TOOL_MODES[settings.tool_mode]
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": mode.messages(messages, opening, self.replies, schemas),
            "max_tokens": settings.max_new_tokens,
            "temperature": settings.temperature,
            "seed": seed_of((settings.seed, *key, len(self.replies))),
            **mode.fields(schemas),
            **settings.request_args,
        }
        body = {name: value for name, value in body.items() if value is not None}
        try:
            return await self.sampler.client.complete(body, self.known)
        except TooLongError:
            if "max_tokens" not in body:
                raise
        # A server may refuse a limit that is more than what is left, and without one it takes what is left.
        del body["max_tokens"]
        return await self.sampler.client.complete(body, self.known)


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
