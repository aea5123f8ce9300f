"""MO-Gymnasium's own functions and wrappers on the twin of every id, with the real package."""

import importlib.util

import gymnasium as gym
import mo_gymnasium
import numpy as np
import pytest
from mo_gymnasium.wrappers import LinearReward, MOClipReward, MONormalizeReward, MORecordEpisodeStatistics
from mo_gymnasium.wrappers.vector import MORecordEpisodeStatistics as VectorStatistics
from mo_gymnasium.wrappers.vector import MOSyncVectorEnv

import corrgrpo_envs  # noqa: F401  (registers the ids)

needs_agentdojo = pytest.mark.skipif(
    importlib.util.find_spec("agentdojo") is None, reason="the package agentdojo is not installed"
)
TRAINING = [
    "CorrelatedBandit",
    "RLLA",
    "LeetCode",
    pytest.param("AgentDojo", marks=needs_agentdojo),
]
EVALUATION = ["APIBank", "ASB", "InjecAgent"]
ARGUMENTS = {"AgentDojo": {"suites": ["banking"]}}


def make(name, **changed):
    return mo_gymnasium.make(f"corrgrpo/{name}Vector-v0", **{**ARGUMENTS.get(name, {}), **changed})


def answers(env):
    """The texts of a right answer to the task at hand, or two of rubbish where none is given."""
    return env.unwrapped.reference() or ("A", "B")


def steps(env, seed=0, texts=None):
    """Play an episode; return every step's result."""
    env.reset(seed=seed)
    found = []
    for text in [*(texts or answers(env)), *["done"] * 20]:
        found.append(env.step(text))
        if found[-1][2] or found[-1][3]:
            return found
    raise AssertionError("the episode does not end")


@pytest.mark.parametrize("name", [*TRAINING, *EVALUATION])
def test_every_step_s_reward_is_the_vector_of_raw_components(name):
    env = make(name)
    spec, space = env.unwrapped.reward_spec, env.unwrapped.reward_space
    assert space.shape == (len(spec),)
    assert (space.dtype, np.isfinite(space.low).all(), np.isfinite(space.high).all()) == (np.float32, True, True)
    for texts in (None, ("rubbish \ud800",)):
        for _, reward, *_, info in steps(env, texts=texts):
            assert reward.dtype == np.float32
            assert reward in space
            np.testing.assert_array_equal(reward, np.float32([info["reward_components"][n] for n in spec.names]))
    env.close()


@pytest.mark.parametrize("name", [*TRAINING, *EVALUATION])
def test_linear_reward_with_the_environment_s_weights_is_its_reward(name):
    env = make(name)
    spec = env.unwrapped.reward_spec
    linear = LinearReward(env, weight=np.array(list(spec.weights.values())))
    for _, reward, *_, info in steps(linear):
        assert reward == pytest.approx(spec.total(info["reward_components"]), abs=1e-5)
        np.testing.assert_array_equal(info["vector_reward"], spec.vector(info["reward_components"]))
        np.testing.assert_array_equal(info["reward_weights"], list(spec.weights.values()))
    first = np.zeros(len(spec))
    first[0] = 2.0
    linear.set_weight(first)
    for _, reward, *_, info in steps(linear):
        assert reward == pytest.approx(2 * info["reward_components"][spec.names[0]], abs=1e-5)
    with pytest.raises(AssertionError, match="different shape"):
        linear.set_weight(np.ones(len(spec) + 1))
    env.close()


@pytest.mark.parametrize("name", [*TRAINING, *EVALUATION])
def test_statistics_are_the_sums_of_an_episode_s_vectors(name):
    env = MORecordEpisodeStatistics(make(name), gamma=0.5)
    for seed in (0, 1):  # a second episode begins at zero
        found = steps(env, seed=seed)
        vectors = np.array([reward for _, reward, *_ in found])
        episode = found[-1][4]["episode"]
        np.testing.assert_allclose(episode["r"], vectors.sum(axis=0), atol=1e-6)
        discounts = 0.5 ** np.arange(len(vectors))
        np.testing.assert_allclose(episode["dr"], discounts @ vectors, atol=1e-6)
        assert episode["l"] == len(found)
    if name == "AgentDojo":
        assert len(found) > 1
    env.close()


@pytest.mark.parametrize("name", [*TRAINING, *EVALUATION])
def test_members_of_a_sync_vector_environment_are_the_lone_ones(name):
    lone = [steps(make(name), seed=seed, texts=("A",))[0] for seed in (3, 4)]
    envs = VectorStatistics(MOSyncVectorEnv([lambda: make(name)] * 2))
    envs.reset(seed=3)
    observations, rewards, terminated, truncated, infos = envs.step(["A", "A"])
    spec = make(name).unwrapped.reward_spec
    timed = [i for i, n in enumerate(spec.names) if n == "efficiency"]
    for member, (observation, reward, ended, cut, info) in enumerate(lone):
        np.testing.assert_allclose(np.delete(rewards[member], timed), np.delete(reward, timed))
        assert (terminated[member], truncated[member]) == (ended, cut)
        assert observations["messages"][member] == observation["messages"]
        for component in spec.names:
            if component != "efficiency":
                assert infos["reward_components"][component][member] == info["reward_components"][component]
        if ended:
            np.testing.assert_allclose(np.delete(infos["episode"]["r"][member], timed), np.delete(reward, timed))
    assert rewards.shape == (2, len(spec))
    # The step after an end begins the next episode; its action is not played and its vector is zeros.
    if all(terminated):
        again = envs.step(["A", "A"])
        assert not again[1].any()
        assert not again[2].any()
    envs.close()


def test_wrappers_that_change_one_component_leave_the_others_and_the_info():
    vectors = {}
    for wrap in (None, MOClipReward, MONormalizeReward):
        env = make("CorrelatedBandit")
        arguments = {MOClipReward: {"min_r": -0.1, "max_r": 0.1}}.get(wrap, {})
        env = env if wrap is None else wrap(env, idx=1, **arguments)
        ((_, vectors[wrap], *_, info),) = steps(env, texts=("A",))
        raw = list(info["reward_components"].values())
    np.testing.assert_allclose(vectors[None], raw, rtol=1e-6)
    assert abs(vectors[MOClipReward][1]) <= 0.1 < abs(raw[1])
    for changed in (MOClipReward, MONormalizeReward):
        np.testing.assert_array_equal(vectors[changed][[0, 2]], vectors[None][[0, 2]])


def test_weights_given_to_make_do_not_touch_the_vector():
    # Components are raw: weights are LinearReward's business.
    plain, weighted = make("RLLA"), make("RLLA", reward_weights={"format": 0.25})
    for (_, a, *_), (_, b, *_) in zip(steps(plain), steps(weighted), strict=True):
        np.testing.assert_array_equal(a, b)


def test_gymnasium_makes_the_same_twin():
    assert type(gym.make("corrgrpo/RLLAVector-v0").unwrapped) is type(make("RLLA").unwrapped)
