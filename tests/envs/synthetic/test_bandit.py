import math

import gymnasium as gym
import numpy as np
import pytest

import corrgrpo_envs  # noqa: F401 (registers the id)
from corrgrpo_envs.synthetic import CorrelatedBandit

MATRIX = [[1.0, 0.8, -0.3], [0.8, 1.0, 0.0], [-0.3, 0.0, 1.0]]


def means(env):
    """All arms' means over all tasks, shape (tasks · arms, K), by pulling every arm."""
    rows = []
    for index in range(len(env.tasks)):
        for arm in env.arms:
            env.reset(options={"task_index": index})
            rows.append(list(env.step(arm)[4]["reward_components"].values()))
    return np.array(rows)


@pytest.mark.parametrize(
    ("correlation", "expected"),
    [
        (0.0, np.eye(3)),
        (0.7, 0.3 * np.eye(3) + 0.7),
        (MATRIX, np.array(MATRIX)),
        (-0.4, 1.4 * np.eye(3) - 0.4),
    ],
    ids=["0", "0.7", "matrix", "-0.4"],
)
def test_components_have_the_chosen_correlations_and_scales(correlation, expected):
    env = CorrelatedBandit(split="all", correlation=correlation, scales=[1.0, 10.0, 0.01], arms=26)
    values = means(env)
    assert values.shape == (64 * 26, 3)
    spread = 4 / math.sqrt(len(values))  # four standard errors
    np.testing.assert_allclose(np.corrcoef(values.T), expected, atol=spread)
    np.testing.assert_allclose(values.std(axis=0) / [1, 10, 0.01], 1, atol=spread)
    np.testing.assert_allclose(values.mean(axis=0) / [1, 10, 0.01], 0, atol=spread)


def test_full_correlation_makes_components_equal_up_to_scale():
    env = CorrelatedBandit(components=2, correlation=1.0, scales=[1.0, 3.0], split="all")
    values = means(env)
    np.testing.assert_allclose(values[:, 1], 3 * values[:, 0], atol=1e-6)
    opposed = means(CorrelatedBandit(components=2, correlation=-1.0, split="all"))
    np.testing.assert_allclose(opposed[:, 1], -opposed[:, 0], atol=1e-6)


def test_values_lie_within_the_ranges_and_no_arm_gets_the_worst():
    env = CorrelatedBandit(split="all", scales=[1.0, 2.0, 0.5], noise=5.0, correlation=0.5)
    env.reset(seed=0)
    worst = env.step("none of them")
    assert worst[4]["reward_components"] == {"reward_1": -3.0, "reward_2": -6.0, "reward_3": -1.5}
    assert worst[1] == -10.5
    assert worst[4]["status"] == "no_arm"
    assert worst[4]["metrics"] == {}
    values = np.concatenate([means(env) for _ in range(3)])
    assert (np.abs(values) <= [3, 6, 1.5]).all()
    assert (np.abs(values) == [3, 6, 1.5]).any()


@pytest.mark.parametrize(
    ("text", "arm"),
    [
        ("C", 2),
        (" \n C", 2),
        ("C.", 2),
        ("**C**", 2),
        ("(C)", 2),
        ("C is best", 2),
        ("H", 7),
        ("I", None),
        ("c", None),
        ("CD", None),
        ("Arm C", None),
        ("", None),
        ("C" * 3_000_000, None),
        ("Ｃ", None),
    ],
)
def test_the_first_word_names_the_arm(text, arm):
    env = CorrelatedBandit()
    env.reset(options={"task_index": 0})
    info = env.step(text)[4]
    expected = (-3.0,) * 3 if arm is None else env.task.data[arm]
    assert tuple(info["reward_components"].values()) == expected
    assert info["status"] == ("no_arm" if arm is None else "ok")


@pytest.mark.parametrize("weights", [None, {"reward_1": 0.0, "reward_2": -1.0}, {"reward_3": 0.0}])
def test_the_reference_is_the_best_arm(weights):
    env = CorrelatedBandit(reward_weights=weights, split="all", arms=5)
    for index in range(0, 64, 7):
        rewards = {}
        for arm in "ABCDE":
            env.reset(options={"task_index": index})
            _, rewards[arm], *_, info = env.step(arm)
        (best,) = env.reference()
        assert rewards[best] == max(rewards.values())
        env.reset(options={"task_index": index})
        assert env.step(best)[4]["metrics"] == {"best_arm": 1.0, "regret": 0.0}
        assert info["metrics"]["regret"] == pytest.approx(rewards[best] - rewards["E"])
        assert info["metrics"]["best_arm"] == float(best == "E")


def test_without_noise_an_arm_is_constant_and_with_it_seeded():
    still, noisy = CorrelatedBandit(), CorrelatedBandit(noise=0.5)

    def pulls(env, seed):
        results = []
        for i in range(5):
            env.reset(seed=seed if i == 0 else None, options={"task_index": 0})
            results.append(env.step("A")[1])
        return results

    assert len(set(pulls(still, 0))) == 1
    assert len(set(pulls(noisy, 0))) == 5
    assert pulls(noisy, 0) == pulls(noisy, 0) != pulls(noisy, 1)


def test_noise_has_the_chosen_correlations():
    env = CorrelatedBandit(noise=0.1, correlation=MATRIX)
    # An arm whose means lie well inside the ranges, so that nothing is clipped.
    index, arm = next(
        (i, a) for i, task in enumerate(env.tasks) for a, row in enumerate(task.data) if max(map(abs, row)) < 2
    )
    env.reset(seed=0)
    rows = []
    for _ in range(2000):
        env.reset(options={"task_index": index})
        rows.append(list(env.step(env.arms[arm])[4]["reward_components"].values()))
    noise = np.array(rows) - env.tasks[index].data[arm]
    np.testing.assert_allclose(np.corrcoef(noise.T), MATRIX, atol=4 / math.sqrt(2000))
    np.testing.assert_allclose(noise.std(axis=0), 0.1, rtol=4 / math.sqrt(2 * 2000))


def test_difficulty_makes_components_pass_or_fail():
    shares = [0.1, 0.5, 0.9]
    env = CorrelatedBandit(split="all", difficulty=shares, scales=[1.0, 10.0, 0.5], correlation=0.5, arms=26)
    values = means(env)
    for column, (scale, share) in enumerate(zip([1.0, 10.0, 0.5], shares, strict=True)):
        assert set(values[:, column]) == {0.0, scale}
        # Four standard errors of a share of 1664.
        assert (values[:, column] == 0).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 1664))
    assert [(c.low, c.high) for c in env.reward_spec] == [(0.0, 1.0), (0.0, 10.0), (0.0, 0.5)]
    env.reset(seed=0)
    assert env.step("none of them")[4]["reward_components"] == {"reward_1": 0.0, "reward_2": 0.0, "reward_3": 0.0}
    # Correlation ½ of the normal values gives binary ones 2 / π · arcsin(½) = ⅓ at the median.
    halves = means(CorrelatedBandit(split="all", components=2, difficulty=0.5, correlation=0.5, arms=26))
    assert np.corrcoef(halves.T)[0, 1] == pytest.approx(1 / 3, abs=4 / math.sqrt(1664))


def test_with_noise_an_arm_passes_as_often_as_its_mean_says():
    env = CorrelatedBandit(components=2, difficulty=0.6, noise=1.0, split="all", show_means=True)
    obs = env.reset(seed=0, options={"task_index": 3})[0]
    expected = env.means(np.array(env.task.data))
    line = obs["messages"][0]["content"].split("\n")[2]
    assert [float(x) for x in line[3:].split(", ")] == pytest.approx(expected[0].tolist(), abs=0.005)
    rows = []
    for _ in range(3000):
        env.reset(options={"task_index": 3})
        rows.append(list(env.step("A")[4]["reward_components"].values()))
    np.testing.assert_allclose(np.mean(rows, axis=0), expected[0], atol=4 * 0.5 / math.sqrt(3000))
    best = int(np.argmax(expected.sum(axis=1)))
    assert env.reference() == (env.arms[best],)


def test_tasks_splits_and_prompt():
    sizes = {split: len(CorrelatedBandit(split=split).tasks) for split in ("train", "validation", "test", "all")}
    assert sizes["all"] == 64 == sizes["train"] + sizes["validation"] + sizes["test"]
    assert min(sizes.values()) > 3
    env = CorrelatedBandit(arms=2, show_means=True)
    obs, info = env.reset(seed=0)
    (message,) = obs["messages"]
    lines = message["content"].split("\n")
    assert info["task_id"] in lines[0]
    assert "A, B." in lines[0]
    for line, row in zip(lines[2:], env.task.data, strict=True):
        assert [float(x) for x in line[3:].split(", ")] == pytest.approx(list(row), abs=0.005)
    assert "C" not in CorrelatedBandit(arms=2).arms
    other = CorrelatedBandit(arms=2, correlation=0.5)
    assert other.tasks[0].data != env.tasks[0].data
    assert CorrelatedBandit(arms=2).tasks is CorrelatedBandit(arms=2, noise=1.0).tasks


def test_components_follow_the_options():
    env = gym.make(
        "corrgrpo/CorrelatedBandit-v0",
        components=5,
        correlation=np.eye(5).tolist(),
        scales=[1, 2, 3, 4, 5],
        reward_weights={"reward_5": 0.2},
    )
    spec = env.unwrapped.reward_spec
    assert spec.names == ("reward_1", "reward_2", "reward_3", "reward_4", "reward_5")
    assert [component.high for component in spec] == [3.0, 6.0, 9.0, 12.0, 15.0]
    assert spec.weights["reward_5"] == 0.2
    assert gym.make(type(env.spec).from_json(env.spec.to_json())).unwrapped.reward_spec == spec
    vector = gym.make("corrgrpo/CorrelatedBanditVector-v0", components=1)
    vector.reset(seed=0)
    assert vector.step("A")[1].shape == (1,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"components": 0}, "components must be a whole number from 1"),
        ({"components": 2.0}, "components must be a whole number"),
        ({"components": True}, "components must be a whole number"),
        ({"arms": 27}, "arms must be a whole number from 1 to 26, not 27"),
        ({"noise": -1}, "noise must be a finite number, at least 0, not -1"),
        ({"noise": math.nan}, "noise must be a finite number"),
        ({"correlation": 1.5}, "correlation must be a number or a 3 × 3 correlation matrix"),
        ({"correlation": -0.6}, r"no 3 rewards have the correlations -0.6; a number must be at least -1/2"),
        ({"correlation": math.nan}, "correlation must be"),
        ({"correlation": "high"}, "correlation must be .*not 'high'"),
        ({"correlation": [[1, 0], [0, 1]]}, "a 3 × 3 correlation matrix"),
        ({"correlation": [[1, 0, 0], [0.5, 1, 0], [0, 0, 1]]}, "symmetric"),
        ({"correlation": [[2, 0, 0], [0, 1, 0], [0, 0, 1]]}, "ones on the diagonal"),
        (
            {"correlation": [[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]},
            "no 3 rewards have the correlations",
        ),
        ({"correlation": [[1, 0], [0]]}, "correlation must be"),
        ({"scales": [1, 2]}, "scales must be 3 positive numbers"),
        ({"scales": [1, 0, 1]}, "scales must be 3 positive numbers"),
        ({"scales": [1, -1, 1]}, "a scale must be a finite number, at least 0, not -1"),
        ({"scales": 2}, "scales must be 3 positive numbers"),
        ({"scales": [1e300, 1, 1]}, "reward component 'reward_1'"),
        ({"correlation": 10**400}, "correlation must be"),
        ({"noise": 10**400}, "noise must be a finite number"),
        ({"difficulty": 1.0}, "difficulty must be a number above 0 and below 1, or 3 of them"),
        ({"difficulty": [0.1, 0.2]}, "difficulty must be a number above 0 and below 1, or 3 of them"),
        ({"difficulty": "hard"}, "difficulty must be .*not 'hard'"),
        ({"show_means": "no"}, "show_means must be True or False, not 'no'"),
        ({"dataset": "other"}, "dataset 'other' is unknown; allowed: 'builtin'"),
    ],
)
def test_wrong_options(options, words):
    with pytest.raises(ValueError, match=words):
        gym.make("corrgrpo/CorrelatedBandit-v0", **options)
