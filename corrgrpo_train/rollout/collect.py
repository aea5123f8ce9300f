"""Collecting episodes in lockstep: all live episodes take their turn together, in a fixed order."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from corrgrpo_train.engines import Engine
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.turns import Limits, break_off, context_full, opened, record, reset, step, turn_request


def collect(
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

    Args:
        starts: (group, member, start) of each episode.
        runners: at least as many; the i-th runs the i-th episode.
        engine: samples the turns.
        chat: the policy's chat template.
        limits: token limits.
        temperature: of sampling; 0 is greedy.
        key: begins every sequence's random key, e.g. (run seed, step); group, member and turn follow.
        workers: threads in which environments step; the result does not depend on it.
    """
    episodes = [Episode(group, member, start.label) for group, member, start in starts]
    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        run = pool.map if workers > 1 else map
        firsts = run(reset, runners, (start for _, _, start in starts))
        begun = [
            opened(episode, runner, first, chat, limits)
            for episode, runner, first in zip(episodes, runners, firsts, strict=False)
        ]
        live = [one for one in begun if one is not None]
        while live:
            requests = [turn_request(one, limits, key) for one in live]
            completions = engine.generate(requests, temperature=temperature)
            full = [context_full(completion, limits) for completion in completions]
            texts = [chat.text(completion.token_ids) for completion in completions]
            results = list(run(step, (one.runner for one in live), texts, full))
            asked = live
            live = [
                one
                for one, completion, text, result in zip(asked, completions, texts, results, strict=True)
                if record(one, completion, text, result, chat, limits)
            ]
            cut = [one for one in asked if one.full]
            list(run(break_off, (one.episode for one in cut), (one.runner for one in cut)))
    return episodes
