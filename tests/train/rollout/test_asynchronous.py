"""The async schedule with an engine whose sequences do not depend on their batch: results must equal lockstep's."""

import asyncio
import random
import threading

import gymnasium as gym
import pytest
import rollout_envs  # noqa: F401  (registers the environments)
from rollout_envs import LingeringEnv, ToyEnv

from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout import SCHEDULES, Chat, Limits
from corrgrpo_train.rollout.groups import GroupSampler

LIMITS = Limits(8, 4000)
ENDS = range(100, 130)  # a random model then ends some turns early and others not


class Trickling(TransformersEngine):
    """Completes one request at a time, any of those that wait."""

    def __init__(self, model, eos_ids, seed=0, fails_at=None):
        super().__init__(model, eos_ids)
        self.random, self.fails_at = random.Random(seed), fails_at
        self.waiting, self.order, self.count, self.most = {}, [], 0, 0

    def submit(self, request, *, temperature):
        self.count += 1
        self.waiting[str(self.count)] = request, temperature
        self.most = max(self.most, len(self.waiting))
        return str(self.count)

    def advance(self):
        if len(self.order) == self.fails_at:
            raise UsageError("the engine failed")
        ticket = self.random.choice(sorted(self.waiting))
        request, temperature = self.waiting.pop(ticket)
        self.order.append(request.key)
        (completion,) = self.generate([request], temperature=temperature)
        return {ticket: completion}

    def abandon(self):
        self.waiting.clear()


def rollout(tiny, env, env_args, schedule, engine=None, *, workers=1, limits=LIMITS):
    model, tokenizer = tiny
    chat = Chat(tokenizer, ENDS)
    sampler = GroupSampler(
        *(env, env_args, chat),
        **{"groups": 2, "group_size": 4, "max_prompt_tokens": 2000, "seed": 1, "workers": workers},
        schedule=SCHEDULES[schedule],
    )
    try:
        # One at a time, as in the other engine: then even the last digits are equal.
        engine = engine or TransformersEngine(model, sorted(chat.eos_ids), max_batch=1)
        return sampler.rollout(engine, limits, temperature=1.0, key=(5, 9))
    finally:
        sampler.close()


CASES = {
    "three turns": ("rollout/Toy-v0", {"turns": 3}),
    "no tasks": ("rollout/Bare-v0", {}),
    "resets that fail": ("rollout/Failing-v0", {"fail": "reset"}),
    "steps that fail": ("rollout/Failing-v0", {"fail": "always"}),
    "a rewritten conversation": ("rollout/Bare-v0", {"fault": "rewrites"}),
    "a component not scored": ("rollout/Nan-v0", {}),
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_episodes_are_those_of_lockstep_whatever_the_order(tiny, case, workers):
    env, env_args = CASES[case]
    expected = rollout(tiny, env, env_args, "lockstep")
    for seed in range(2):
        engine = Trickling(tiny[0], [2, *ENDS], seed)
        found = rollout(tiny, env, env_args, "async", engine, workers=workers)
        # Compared as text, for nan equals nothing.
        assert [repr(episode) for episode in found] == [repr(episode) for episode in expected]
        assert not engine.waiting
        if case == "three turns":
            assert engine.order != sorted(engine.order)
            assert engine.most > 1


def test_a_full_context_ends_an_episode_as_in_lockstep(tiny):
    lengths = [len(e.tokens) for e in rollout(tiny, "rollout/Toy-v0", {"turns": 3}, "lockstep")]
    limits = Limits(8, sorted(lengths)[4])
    found = [
        rollout(tiny, "rollout/Toy-v0", {"turns": 3}, schedule, engine, limits=limits)
        for schedule, engine in (("lockstep", None), ("async", Trickling(tiny[0], [2, *ENDS])))
    ]
    assert found[0] == found[1]
    assert {episode.truncated for episode in found[0]} == {True, False}
    assert all(len(episode.tokens) <= limits.episode_tokens for episode in found[0])


class PatientEnv(ToyEnv):
    """Its first step ends only when other episodes have been completed meanwhile."""

    others_done, first = threading.Semaphore(0), threading.Lock()
    waited = False

    def step(self, action):
        if PatientEnv.first.acquire(blocking=False):
            PatientEnv.waited = all(PatientEnv.others_done.acquire(timeout=60) for _ in range(7))
            return super().step(action)
        result = super().step(action)
        if result[2]:
            PatientEnv.others_done.release()
        return result


if "rollout/Patient-v0" not in gym.registry:
    gym.register("rollout/Patient-v0", PatientEnv)


def test_a_slow_environment_holds_nobody_up(tiny):
    episodes = rollout(tiny, "rollout/Patient-v0", {"turns": 2}, "async", Trickling(tiny[0], [2, *ENDS]), workers=2)
    assert PatientEnv.waited
    assert [len(episode.texts) for episode in episodes] == [2] * 8


@pytest.mark.parametrize("schedule", ["async", "lockstep"])
def test_one_that_is_slow_to_be_broken_off_holds_nobody_up(tiny, schedule):
    LingeringEnv.begin()
    # Room for one turn, whatever its length, and not for what stands before the next.
    limits = Limits(8, max(len(e.tokens) for e in rollout(tiny, "rollout/Toy-v0", {}, "lockstep")) + 1)
    arguments = {"turns": 2, "others": 7}
    engine = Trickling(tiny[0], [2, *ENDS]) if schedule == "async" else None
    episodes = rollout(tiny, "rollout/Lingering-v0", arguments, schedule, engine, workers=2, limits=limits)
    assert LingeringEnv.waited
    assert [(len(episode.texts), episode.status) for episode in episodes] == [(1, "length")] * 8


@pytest.mark.parametrize("fails_at", [0, 3, 9])
def test_an_error_of_the_engine_ends_the_rollout(tiny, fails_at):
    engine = Trickling(tiny[0], [2, *ENDS], fails_at=fails_at)
    with pytest.raises(UsageError, match="the engine failed"):
        rollout(tiny, "rollout/Toy-v0", {"turns": 3}, "async", engine)
    assert not engine.waiting


def test_an_environment_of_the_wrong_kind_ends_the_rollout(tiny):
    engine = Trickling(tiny[0], [2, *ENDS])
    with pytest.raises(UsageError, match="reward_components"):
        rollout(tiny, "rollout/Bare-v0", {"fault": "no components"}, "async", engine, workers=2)
    assert not engine.waiting


def test_an_engine_of_whole_batches_is_refused(tiny):
    with pytest.raises(UsageError, match="schedule 'async' needs engine 'vllm'"):
        rollout(tiny, "rollout/Toy-v0", {}, "async")


def test_inside_an_event_loop_the_other_schedule_is_named(tiny):
    async def inside():
        rollout(tiny, "rollout/Toy-v0", {}, "async", Trickling(tiny[0], [2]))

    with pytest.raises(UsageError, match=r"event loop .* use 'lockstep'"):
        asyncio.run(inside())


def test_first_messages_that_outgrow_the_episode_cost_the_episode(tiny):
    # A context that no prompt fits into stands for an environment whose prompts differ from those measured.
    for schedule, engine in (("lockstep", None), ("async", Trickling(tiny[0], [2]))):
        episodes = rollout(tiny, "rollout/Toy-v0", {}, schedule, engine, limits=Limits(8, 10))
        assert {episode.status for episode in episodes} == {"environment_error"}
        assert not any(episode.valid for episode in episodes)
