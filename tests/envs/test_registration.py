"""Every registered id keeps Gymnasium's contract."""

import copy
import math
import pickle
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from gymnasium.utils.env_checker import check_env
from toy_envs import HOSTILE

import corrgrpo_envs
from corrgrpo_envs import MultiRewardEnv, VectorReward, register
from corrgrpo_envs.registration import full_id

IDS = sorted(env_id for env_id in gym.registry if env_id.startswith("corrgrpo/"))
TWINS = [env_id for env_id in IDS if env_id.endswith("Vector-v0")]
BASES = [env_id for env_id in IDS if env_id not in TWINS]
TEXTS = (*HOSTILE, "\ud800" * 100_000)


def test_every_id_has_a_twin():
    assert [env_id.replace("-v0", "Vector-v0") for env_id in BASES] == TWINS
    assert {"corrgrpo/RLLA-v0", "corrgrpo/CorrelatedBandit-v0"} <= set(BASES)
    for env_id in IDS:
        spec = gym.spec(env_id)
        assert isinstance(spec.entry_point, str)
        assert spec.max_episode_steps is None


def test_a_name_without_a_version_is_the_newest_one():
    for name in ("RLLA", "RLLA-v0", "corrgrpo/RLLA", "corrgrpo/RLLA-v0"):
        assert full_id(name) == "corrgrpo/RLLA-v0"
    register("RLLA", "toy_envs:CountingEnv", version=1)
    try:
        assert full_id("RLLA") == "corrgrpo/RLLA-v1"
        assert full_id("RLLA-v0") == "corrgrpo/RLLA-v0"
    finally:
        del gym.registry["corrgrpo/RLLA-v1"], gym.registry["corrgrpo/RLLAVector-v1"]
    # What is not known, or of others, is left to Gymnasium.
    assert full_id("RLA") == "corrgrpo/RLA"
    assert full_id("other/RLLA") == "other/RLLA"
    assert full_id("package:corrgrpo/RLLA") == "package:corrgrpo/RLLA"


@pytest.mark.parametrize("env_id", IDS)
def test_check_env_without_a_warning(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id).unwrapped)
        check_env(gym.make(env_id, render_mode="ansi").unwrapped)


@pytest.mark.parametrize("env_id", IDS)
def test_make_reset_step_without_a_warning(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(env_id)
        env.reset(seed=0)
        reward = env.step("A")[1]
        env.close()
        env.close()
    assert isinstance(env.unwrapped, MultiRewardEnv)
    assert isinstance(reward, np.ndarray if env_id in TWINS else float)


@pytest.mark.parametrize("env_id", BASES)
def test_any_text_gives_floats_within_the_ranges(env_id):
    env = gym.make(env_id)
    base = env.unwrapped
    for text in TEXTS:
        env.reset(seed=1)
        obs, reward, terminated, truncated, info = env.step(text)
        assert obs in env.observation_space
        assert tuple(info["reward_components"]) == base.reward_spec.names
        assert info["reward_weights"] == base.reward_spec.weights
        assert base.reward_spec.vector(info["reward_components"]) in base.reward_space
        numbers = [
            *info["reward_components"].values(),
            *info["reward_weights"].values(),
            *info["metrics"].values(),
        ]
        assert {type(number) for number in [reward, *numbers]} == {float}
        assert (type(terminated), type(truncated)) == (bool, bool)
        expected = sum(info["reward_weights"][name] * value for name, value in info["reward_components"].items())
        assert reward == pytest.approx(expected)
        assert not any(math.isnan(number) for number in numbers)
        assert info["status"] != "infrastructure_error"
    env.close()


@pytest.mark.parametrize("env_id", BASES)
def test_finish_truncates(env_id):
    env = gym.make(env_id)
    env.reset(seed=2)
    _, _, terminated, truncated, info = env.unwrapped.finish("cut o")
    assert (terminated, truncated, info["status"]) == (False, True, "length")
    with pytest.raises(gym.error.ResetNeeded):
        env.step("x")
    env.close()


@pytest.mark.parametrize("env_id", BASES)
def test_copies_and_equal_seeds_give_equal_episodes(env_id):
    if gym.spec(env_id).nondeterministic:
        pytest.skip("measures time")
    first, second = gym.make(env_id), gym.make(env_id)
    assert first.reset(seed=3) == second.reset(seed=3)
    for third in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert third.step("A") == copy.deepcopy(second).step("A")
    assert first.step("B") == second.step("B")
    first.close()
    second.close()


@pytest.mark.parametrize("env_id", BASES)
def test_references_are_texts_that_can_be_acted(env_id):
    env = gym.make(env_id, split="all")
    env.reset(seed=0)
    reference = env.unwrapped.reference()
    assert reference is None or (isinstance(reference, tuple) and all(isinstance(text, str) for text in reference))
    for text in reference or ():
        terminated = env.step(text)[2]
    assert reference is None or terminated
    env.close()


@pytest.mark.parametrize("env_id", BASES)
@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_make_vec_with_default_arguments(env_id, vectorization):
    texts = ["A", "\ud800\x00", "é" * 1000]
    envs = gym.make_vec(env_id, 3, vectorization)
    lone = [gym.make(env_id) for _ in range(3)]
    try:
        for seed in (0, 10):  # reset, step, reset, step: an autoreset flag left behind would show
            obs, infos = envs.reset(seed=seed)
            assert obs in envs.observation_space
            starts = [env.reset(seed=seed + i) for i, env in enumerate(lone)]
            assert obs["messages"] == tuple(start[0]["messages"] for start in starts)
            assert obs["tools"] == tuple(start[0]["tools"] for start in starts)
            assert list(infos["task_id"]) == [start[1]["task_id"] for start in starts]
            obs, rewards, terminated, _, infos = envs.step(texts)
            steps = [env.step(text) for env, text in zip(lone, texts, strict=True)]
            assert obs["messages"] == tuple(step[0]["messages"] for step in steps)
            assert terminated.tolist() == [step[2] for step in steps]
            if not gym.spec(env_id).nondeterministic:
                np.testing.assert_array_equal(rewards, [step[1] for step in steps])
                for name, values in infos["reward_components"].items():
                    if not name.startswith("_"):
                        assert values.tolist() == [step[4]["reward_components"][name] for step in steps]
    finally:
        envs.close()
        for env in lone:
            env.close()


@pytest.mark.parametrize("env_id", IDS)
def test_specs_go_through_json_and_pickle(env_id):
    env = gym.make(env_id, split="all")
    for spec in (env.spec, EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        twin = gym.make(spec)
        assert twin.spec == env.spec
        assert twin.unwrapped.split == "all"
        assert isinstance(twin, VectorReward) == (env_id in TWINS)


@pytest.mark.parametrize("env_id", BASES)
def test_wrong_arguments_name_what_is_allowed(env_id):
    with pytest.raises(ValueError, match=r"split 'tain' is unknown; allowed: .*Did you mean 'train'"):
        gym.make(env_id, split="tain")
    name = gym.make(env_id).unwrapped.reward_spec.names[0]
    with pytest.raises(ValueError, match=f"reward component '{name}x' is unknown; .*Did you mean '"):
        gym.make(env_id, reward_weights={f"{name}x": 1.0})
    with pytest.raises(ValueError, match="'no-such-dataset'"):
        gym.make(env_id, dataset="no-such-dataset").reset()


# ---- registering ----


def test_register_makes_both_ids():
    ids = register(
        "Made",
        "toy_envs:MultiTurn",
        namespace="toytest",
        version=3,
        kwargs={"max_turns": 1},
        nondeterministic=True,
    )
    assert ids == ("toytest/Made-v3", "toytest/MadeVector-v3")
    for env_id in ids:
        assert gym.spec(env_id).nondeterministic
        env = gym.make(env_id)
        env.reset()
        assert env.step("x")[2]


def test_wrappers_of_both_ids_go_below_the_vector():
    wrapper = WrapperSpec("RecordEpisodeStatistics", "gymnasium.wrappers:RecordEpisodeStatistics", {})
    base, twin = register("Wrapped", "toy_envs:SingleTurn", namespace="toytest", additional_wrappers=(wrapper,))
    assert isinstance(gym.make(base), gym.wrappers.RecordEpisodeStatistics)
    env = gym.make(twin)
    assert isinstance(env, VectorReward)
    env.reset(seed=0)
    _, vector, *_, info = env.step("zzz")
    assert vector.shape == (3,)
    assert info["episode"]["r"] == 2.125


def test_what_cannot_be_registered():
    with pytest.raises(ValueError, match="entry_point must be a text"):
        register("X", MultiRewardEnv)
    with pytest.raises(ValueError, match=r"'module:Class', not 'toy_envs\.SingleTurn'"):
        register("X", "toy_envs.SingleTurn")
    with pytest.raises(ValueError, match="max_turns"):
        register("X", "toy_envs:SingleTurn", max_episode_steps=3)
    assert "corrgrpo/X-v0" not in gym.registry


def test_public_names():
    assert set(corrgrpo_envs.__all__) <= set(dir(corrgrpo_envs))
    assert corrgrpo_envs.__all__ == sorted(
        corrgrpo_envs.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )


def test_no_module_needs_torch_or_the_trainer():
    code = (
        "import importlib, pkgutil, corrgrpo_envs;"
        "names = [m.name for m in pkgutil.walk_packages(corrgrpo_envs.__path__, 'corrgrpo_envs.')];"
        "assert 'corrgrpo_envs.tools.rlla' in names, names;"
        "[importlib.import_module(name) for name in names];"
        "above = {'torch', 'transformers', 'corrgrpo_train'} & set(sys.modules);"
        "assert not above, above"
    )
    paths = repr([path for path in sys.path if path])
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}; {code}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr


def test_importing_is_light_and_silent():
    code = (
        "import sys, corrgrpo_envs, gymnasium;"
        "heavy = {'torch', 'pyarrow', 'datasets', 'transformers'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "gymnasium.make('corrgrpo/CorrelatedBandit-v0')"
    )
    paths = repr([path for path in sys.path if path])
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.path[:0] = {paths}; {code}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_make_imports_the_package_by_itself():
    code = (
        "import gymnasium; env = gymnasium.make('corrgrpo_envs:corrgrpo/CorrelatedBandit-v0');"
        "print(env.reset(seed=0)[1]['status'])"
    )
    paths = repr([path for path in sys.path if path])
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}; {code}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout == "reset\n", run.stderr
