"""Collecting episodes asynchronously: each is a coroutine that goes on as soon as it can."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from corrgrpo_train.engines import AsyncEngine, Completion, Engine, SamplingRequest
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.turns import Limits, break_off, context_full, opened, record, reset, step, turn_request


def collect_async(
    starts: Sequence[tuple[int, int, Start]],
    runners: Sequence[EpisodeRunner],
    engine: Engine,
    chat: Chat,
    limits: Limits,
    *,
    temperature: float,
    key: tuple[int, ...],
    workers: int = 1,
) -> list[Episode]:
    """Run one episode for each start and return them in the same order.

    While some episodes' environments step, in `workers` threads, the engine decodes the turns of the others. Random
    keys are those of `collect`, so that only rounding depends on what happens to be decoded together.

    Raises:
        UsageError: if the engine takes whole batches only, or an event loop runs in this thread already.
    """
    if not isinstance(engine, AsyncEngine):
        raise UsageError(f"schedule 'async' needs engine 'vllm': a {type(engine).__name__} samples whole batches")
    if _loop_runs():
        raise UsageError("schedule 'async' can't be used inside an event loop (a notebook's, say); use 'lockstep'")
    episodes = [Episode(group, member, start.label) for group, member, start in starts]
    try:
        with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
            desk = _Desk(engine, temperature)

            async def run(episode: Episode, runner: EpisodeRunner, start: Start) -> None:
                loop = asyncio.get_running_loop()
                first = await loop.run_in_executor(pool, reset, runner, start)
                one = opened(episode, runner, first, chat, limits)
                while one is not None:
                    completion = await desk.sample(turn_request(one, limits, key))
                    text, full = chat.text(completion.token_ids), context_full(completion, limits)
                    result = await loop.run_in_executor(pool, step, runner, text, full)
                    if record(one, completion, text, result, chat, limits):
                        continue
                    if one.full:
                        await loop.run_in_executor(pool, break_off, episode, runner)
                    break

            async def run_all() -> None:
                begun = [
                    run(episode, runner, start)
                    for episode, runner, (_, _, start) in zip(episodes, runners, starts, strict=False)
                ]
                await _together(asyncio.gather(*begun), asyncio.create_task(desk.serve()))

            asyncio.run(run_all())
    finally:
        engine.abandon()
    return episodes


class _Desk:
    """Where coroutines leave requests and wait; the engine decodes whatever lies there."""

    def __init__(self, engine: AsyncEngine, temperature: float) -> None:
        self.engine, self.temperature = engine, temperature
        self.waiting: dict[str, asyncio.Future[Completion]] = {}
        self.filled = asyncio.Event()

    async def sample(self, request: SamplingRequest) -> Completion:
        """Wait for the request's completion."""
        ticket = self.engine.submit(request, temperature=self.temperature)
        self.waiting[ticket] = asyncio.get_running_loop().create_future()
        self.filled.set()
        return await self.waiting[ticket]

    async def serve(self) -> None:
        """Decode for ever."""
        while True:
            await self.filled.wait()
            # In this thread, where the engine was made; environments go on in theirs.
            for ticket, completion in self.engine.advance().items():
                self.waiting.pop(ticket).set_result(completion)
            if not self.waiting:
                self.filled.clear()
            # Episodes whose completion or step has come take their turn before the next token.
            await asyncio.sleep(0)


async def _together(episodes: asyncio.Future[list[None]], server: asyncio.Task[None]) -> None:
    """Wait for the episodes, or for the first error of either side."""
    try:
        sides: set[asyncio.Future[Any]] = {episodes, server}
        await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            server.result()
        await episodes
    finally:
        for task in (episodes, server):
            task.cancel()
        await asyncio.gather(episodes, server, return_exceptions=True)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
