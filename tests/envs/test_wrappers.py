import json
import pickle

import gymnasium as gym
import mo_gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.envs.registration import EnvSpec
from mo_gymnasium.wrappers import LinearReward, MORecordEpisodeStatistics
from toy_envs import MULTI, SINGLE

from corrgrpo_envs import DictReward, VectorReward

TWIN = SINGLE.replace("Single", "SingleVector")


def test_vector_reward_is_a_new_float32_array_in_the_specs_order():
    env = VectorReward(gym.make(SINGLE))
    vectors = []
    for _ in range(2):
        env.reset(seed=0)
        vectors.append(env.step("zzz")[1])
    assert vectors[0].tolist() == [0.25, 1.0, 1.0]  # length 1/4, first, extra: raw, whatever the weights
    assert vectors[0].dtype == np.float32
    assert vectors[0] is not vectors[1]
    assert vectors[0] in env.unwrapped.reward_space
    assert env.unwrapped.reward_space.shape == (3,)


def test_a_vector_stands_at_every_step_and_changing_it_changes_nothing():
    env = VectorReward(gym.make(MULTI))
    env.reset(seed=0)
    _, vector, *_, info = env.step("a")
    assert vector.tolist() == [0.0, 0.0]
    vector += 7
    assert info["reward_components"] == {"turns": 0.0, "finished": 0.0}
    assert env.step("stop")[1].tolist() == [2.0, 1.0]


def test_dict_reward():
    env = DictReward(gym.make(SINGLE))
    env.reset(seed=0)
    _, reward, *_, info = env.step("zzz")
    assert reward == {"length": 0.25, "first": 1.0, "extra": 1.0}
    assert reward is not info["reward_components"]
    assert list(reward) == list(env.unwrapped.reward_spec.names)


@pytest.mark.parametrize("wrapper", [VectorReward, DictReward])
def test_an_environment_without_components_is_refused(wrapper):
    with pytest.raises(ValueError, match=f"{wrapper.__name__} needs an environment with a reward_spec"):
        wrapper(gym.make("CartPole-v1"))


@pytest.mark.parametrize("wrapper", [VectorReward, DictReward])
def test_wrapped_specs_go_through_json_and_pickle(wrapper):
    env = wrapper(gym.make(MULTI, max_turns=2, reward_weights={"turns": 0.5}))
    for spec in (
        env.spec,
        EnvSpec.from_json(env.spec.to_json()),
        pickle.loads(pickle.dumps(env.spec)),
    ):
        twin = gym.make(spec)
        assert isinstance(twin, wrapper)
        assert twin.spec == env.spec
        assert twin.unwrapped.max_turns == 2
        assert twin.unwrapped.reward_spec == env.unwrapped.reward_spec
    json.loads(env.spec.to_json())
    assert wrapper.__name__ in str(env)


def test_the_twin_returns_vectors():
    for make in (gym.make, mo_gymnasium.make):
        env = make(TWIN)
        env.reset(seed=0)
        assert env.step("zzz")[1].tolist() == [0.25, 1.0, 1.0]


def test_mo_gymnasium_wrappers_on_the_twin():
    env = LinearReward(mo_gymnasium.make(TWIN), weight=np.array([0.5, 2.0, 1.0]))
    env.reset(seed=0)
    _, reward, *_, info = env.step("zzz")
    assert reward == pytest.approx(0.125 + 2 + 1)
    np.testing.assert_array_equal(info["vector_reward"], np.float32([0.25, 1, 1]))
    # With the environment's own weights it is the environment's own reward.
    base = gym.make(SINGLE)
    weights = np.array(list(base.unwrapped.reward_spec.weights.values()))
    for wrapped in (LinearReward(VectorReward(mo_gymnasium.make(SINGLE)), weight=weights), base):
        wrapped.reset(seed=0)
        assert wrapped.step("zzz")[1] == pytest.approx(2.125)


def test_mo_gymnasium_statistics_and_vector_environment():
    env = MORecordEpisodeStatistics(mo_gymnasium.make(MULTI.replace("Multi", "MultiVector")))
    env.reset(seed=0)
    env.step("a")
    info = env.step("stop")[4]
    np.testing.assert_allclose(info["episode"]["r"], [2.0, 1.0])
    envs = mo_gymnasium.wrappers.vector.MOSyncVectorEnv([lambda: mo_gymnasium.make(TWIN)] * 3)
    envs.reset(seed=0)
    rewards = envs.step(["zzz", "z", "A"])[1]
    np.testing.assert_allclose(rewards, [[0.25, 1, 1], [0.5, 1, 1], [0.5, -1, 1]])
    envs.close()


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.RecordEpisodeStatistics,
        wrappers.OrderEnforcing,
        lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward),
        lambda env: wrappers.TransformObservation(env, lambda obs: obs, env.observation_space),
        lambda env: wrappers.TransformAction(env, str.strip, env.action_space),
        lambda env: wrappers.FilterObservation(env, ["messages"]),
        lambda env: wrappers.FrameStackObservation(env, 2),
        lambda env: wrappers.DelayObservation(env, 1),
        wrappers.NormalizeReward,
        wrappers.Autoreset,
    ],
)
def test_gymnasiums_wrappers_run(wrap):
    env = wrap(gym.make(MULTI))
    for seed in (0, 1):
        obs, _ = env.reset(seed=seed)
        assert obs in env.observation_space
        for text in ("a", "\ud800", " stop "):
            obs, reward, terminated, _, info = env.step(text)
            assert obs in env.observation_space
            assert float(reward) == reward
        assert terminated
        assert info["reward_components"]["turns"] == 3.0
    env.close()


def test_episode_statistics_hold_the_weighted_sum():
    env = wrappers.RecordEpisodeStatistics(gym.make(MULTI))
    env.reset(seed=0)
    env.step("a")
    info = env.step("stop")[4]
    assert (info["episode"]["r"], info["episode"]["l"]) == (3.0, 2)
