"""Vector environments give exactly what lone environments give, whatever the mode and the texts."""

import math
import multiprocessing
import random

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import DictInfoToList
from toy_envs import HOSTILE, MULTI, SINGLE

COUNT = 3
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
TEXTS = [*HOSTILE, "stop", "stop", "nan length", "zebra", np.str_("numpy"), "\ud800" * 1000]


def same(a, b):
    """Equality that takes two nan as equal and looks at types of texts and flags."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return a == b


def taken_apart(infos, i):
    """The info of one sub-environment, read by the masks."""
    mine = {}
    for key, value in infos.items():
        if key.startswith("_") or not infos[f"_{key}"][i]:
            continue
        if isinstance(value, dict):
            mine[key] = taken_apart(value, i)
        elif key == "final_obs":
            mine[key] = value[i]
        else:
            mine[key] = value[i].item() if isinstance(value[i], np.generic) else value[i]
    return mine


class Lone:
    """Environments stepped one by one, with the three ways to go on after an end written out."""

    def __init__(self, env_id, mode):
        self.envs = [gym.make(env_id) for _ in range(COUNT)]
        self.mode, self.ended = mode, [False] * COUNT

    def reset(self, seed):
        self.ended = [False] * COUNT
        return [env.reset(seed=seed if seed is None else seed + i) for i, env in enumerate(self.envs)]

    def step(self, texts):
        steps = []
        for i, (env, text) in enumerate(zip(self.envs, texts, strict=True)):
            if self.mode is AutoresetMode.NEXT_STEP and self.ended[i]:
                obs, info = env.reset()
                step = (obs, 0.0, False, False, info)
            else:
                step = env.step(text)
            self.ended[i] = step[2] or step[3]
            if self.mode is AutoresetMode.SAME_STEP and self.ended[i]:
                obs, info = env.reset()
                info = {**info, "final_obs": step[0], "final_info": step[4]}
                step = (obs, *step[1:4], info)
            steps.append(step)
        return steps


def check_observations(envs, obs, expected):
    assert obs in envs.observation_space
    assert obs["messages"] == tuple(o["messages"] for o in expected)
    assert obs["tools"] == tuple(o["tools"] for o in expected)


def check_step(envs, got, expected):
    obs, rewards, terminated, truncated, infos = got
    check_observations(envs, obs, [step[0] for step in expected])
    np.testing.assert_array_equal(rewards, [step[1] for step in expected])
    assert terminated.tolist() == [step[2] for step in expected]
    assert truncated.tolist() == [step[3] for step in expected]
    for i, step in enumerate(expected):
        assert same(taken_apart(infos, i), step[4])


def compare(envs, lone, mode, rng, steps, texts=TEXTS):
    for _ in range(3):  # an explicit reset in the middle of things must leave nothing behind
        seed = rng.randrange(1000)
        obs, infos = envs.reset(seed=seed)
        expected = lone.reset(seed)
        check_observations(envs, obs, [step[0] for step in expected])
        assert [taken_apart(infos, i) for i in range(COUNT)] == [step[1] for step in expected]
        for _ in range(steps):
            actions = [rng.choice(texts) for _ in range(COUNT)]
            expected = lone.step(actions)
            check_step(envs, envs.step(actions), expected)
            if mode is AutoresetMode.DISABLED and any(lone.ended):
                mask = np.array(lone.ended)
                obs, _ = envs.reset(options={"reset_mask": mask})
                for i in np.flatnonzero(mask):
                    fresh, _ = lone.envs[i].reset()
                    assert obs["messages"][i] == fresh["messages"]
                lone.ended = [False] * COUNT


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("env_id", [SINGLE, MULTI])
def test_like_lone_environments(env_id, vectorization, mode):
    envs = gym.make_vec(env_id, COUNT, vectorization, vector_kwargs={"autoreset_mode": mode})
    try:
        compare(envs, Lone(env_id, mode), mode, random.Random(f"{env_id} {mode}"), steps=15)
    finally:
        envs.close()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_default_arguments_reset_after_every_step(vectorization):
    # A wrong shared memory loses every second batch of this pattern.
    envs, lone = gym.make_vec(SINGLE, COUNT, vectorization), Lone(SINGLE, AutoresetMode.NEXT_STEP)
    for seed in range(6):
        envs.reset(seed=seed)
        lone.reset(seed)
        check_step(envs, envs.step(["zz"] * COUNT), lone.step(["zz"] * COUNT))
    envs.close()


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_other_start_methods(context):
    if context not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no start method {context} here")
    envs = gym.make_vec(MULTI, COUNT, "async", vector_kwargs={"context": context})
    try:
        mode = AutoresetMode.NEXT_STEP
        compare(envs, Lone(MULTI, mode), mode, random.Random(context), steps=4)
    finally:
        envs.close()


def test_large_texts_go_through_shared_memory_and_shrink_again():
    envs, lone = gym.make_vec(MULTI, COUNT, "async"), Lone(MULTI, AutoresetMode.NEXT_STEP)
    envs.reset(seed=0)
    lone.reset(0)
    for actions in (["é" * 3_000_000, "", "\x00"], ["stop", "x", "\ud800"], ["", "", ""], ["a", "b", "c"]):
        check_step(envs, envs.step(actions), lone.step(actions))
    envs.close()


def test_copies_are_kept_and_views_are_live():
    envs = gym.make_vec(SINGLE, 2, "async")
    kept, _ = envs.reset(seed=0)
    before = str(kept)
    envs.step(["one", "two"])
    assert str(kept) == before
    assert type(kept["messages"]) is tuple
    envs.close()

    envs = gym.make_vec(SINGLE, 2, "async", vector_kwargs={"copy": False})
    view, _ = envs.reset(seed=0)
    assert len(view["messages"]) == 2
    assert [len(messages) for messages in view["messages"]] == [2, 2]
    envs.step(["one", "two"])
    assert [messages[-1]["content"] for messages in view["messages"]] == ["one", "two"]
    assert view["messages"][-1][-1]["content"] == "two"
    assert view["tools"][0:2] == ("[]", "[]")
    with pytest.raises(IndexError):
        view["tools"][2]
    envs.close()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_group_on_one_task_by_equal_seeds(vectorization):
    envs = gym.make_vec(SINGLE, 4, vectorization)
    obs, infos = envs.reset(seed=[5] * 4)
    assert len(set(infos["task_id"])) == 1
    assert len({obs["messages"][i][1]["content"] for i in range(4)}) == 1
    envs.close()


def test_infos_as_a_list():
    envs = DictInfoToList(gym.make_vec(SINGLE, 2, "sync"))
    envs.reset(seed=0)
    infos = envs.step(["odd", "even"])[4]
    assert [info["status"] for info in infos] == ["ok", "ok"]
    assert "noise" in infos[0]["metrics"]
    assert "noise" not in infos[1]["metrics"]
    assert infos[1]["reward_components"]["length"] == 1 / 5
    envs.close()


@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")
def test_errors_of_a_worker_arrive_as_they_are():
    envs = gym.make_vec(SINGLE, 2, "async")
    with pytest.raises(ValueError, match="task_id 'nowhere' is not in data set 'toy'"):
        envs.reset(options={"task_id": "nowhere"})
    envs.close()
    envs = gym.make_vec(SINGLE, 2, "async", vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED})
    envs.reset(seed=0)
    envs.step(["a", "b"])
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        envs.step(["a", "b"])
    envs.close()


def test_attributes_of_sub_environments():
    envs = gym.make_vec(SINGLE, 2, "async", reward_weights={"extra": 1})
    specs = envs.get_attr("reward_spec")
    assert specs[0] == specs[1]
    assert specs[0].weights == {"length": 0.5, "first": 2.0, "extra": 1.0}
    envs.close()
