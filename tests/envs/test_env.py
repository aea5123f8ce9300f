import copy
import json
import math
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from toy_envs import HOSTILE, MULTI, SINGLE, MultiTurn, SingleTurn

from corrgrpo_envs import MultiRewardEnv, Opening, Outcome, RewardComponent, Task, TaskSet


class Scripted(MultiRewardEnv):
    """Returns the outcome that a test puts into it."""

    components = (RewardComponent("x"), RewardComponent("y", weight=0.0))
    metric_names = ("m",)
    outcome = Outcome({"x": 1.0, "y": 2.0})
    opening = Opening([{"role": "user", "content": "?"}])

    def load_tasks(self):
        return TaskSet([Task("only", "train", None)], self.split, "scripted")

    def open(self, task):
        return self.opening

    def answer(self, text):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def scripted(outcome):
    env = Scripted()
    env.reset()
    env.outcome = outcome
    return env


@pytest.mark.parametrize("env_id", [SINGLE, MULTI])
@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_check_env_without_a_warning(env_id, render_mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id, render_mode=render_mode).unwrapped)


def test_reward_is_the_weighted_sum_and_info_holds_raw_floats():
    env = SingleTurn()
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("zzz")
    assert info["reward_components"] == {"length": 0.25, "first": 1.0, "extra": 1.0}
    assert info["reward_weights"] == {"length": 0.5, "first": 2.0, "extra": 0.0}
    assert reward == 0.5 * 0.25 + 2.0 * 1.0
    assert terminated is True
    assert truncated is False
    assert info["status"] == "ok"
    numbers = [
        *info["reward_components"].values(),
        *info["reward_weights"].values(),
        *info["metrics"].values(),
    ]
    assert {type(number) for number in [reward, *numbers]} == {float}
    assert env.reward_space.contains(env.reward_spec.vector(info["reward_components"]))


def test_weights_given_by_name_change_reward_and_info_alike():
    env = SingleTurn(reward_weights={"extra": 3, "first": np.float32(0.5)})
    env.reset(seed=0)
    _, reward, *_, info = env.step("zzz")
    assert info["reward_weights"] == {"length": 0.5, "first": 0.5, "extra": 3.0}
    assert reward == 0.5 * 0.25 + 0.5 * 1.0 + 3.0
    assert SingleTurn().reward_spec.weights["extra"] == 0.0


def test_multi_turn_conversation_and_scores():
    env = MultiTurn()
    obs, info = env.reset(seed=3)
    assert "reward_components" not in info
    assert "reward_weights" not in info
    assert [message["role"] for message in obs["messages"]] == ["user"]
    assert json.loads(obs["tools"])[0]["function"]["name"] == "echo"
    obs, reward, terminated, truncated, info = env.step("one")
    assert (reward, terminated, truncated, info["status"]) == (0.0, False, False, "turn")
    assert info["reward_components"] == {"turns": 0.0, "finished": 0.0}
    assert info["metrics"] == {}
    assert obs["messages"][1] == {"role": "assistant", "content": "one"}
    assert obs["messages"][2]["role"] == "tool"
    obs, reward, terminated, truncated, info = env.step("stop")
    assert (reward, terminated, truncated) == (3.0, True, False)
    assert info["metrics"] == {"total_length": 7.0}
    assert [message["role"] for message in obs["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_finish_scores_the_cut_of_a_multi_turn_episode():
    env = MultiTurn()
    env.reset(seed=3)
    env.step("one")
    obs, reward, terminated, truncated, info = env.finish("stop")
    assert (reward, terminated, truncated, info["status"]) == (2.0, False, True, "length")
    assert obs["messages"][-1] == {"role": "assistant", "content": "stop"}
    with pytest.raises(ResetNeeded):
        env.finish("again")
    with pytest.raises(ResetNeeded):
        env.step("again")


def test_finish_of_a_single_turn_scores_the_answer():
    env = SingleTurn()
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.finish("zzz")
    assert (reward, terminated, truncated, info["status"]) == (2.125, False, True, "length")


def test_finish_keeps_an_infrastructure_error_and_hides_other_words():
    nan = math.nan
    assert scripted(Outcome({"x": nan, "y": 1})).finish("")[4]["status"] == "infrastructure_error"
    assert scripted(Outcome({"x": 0, "y": 1}, status="invalid_format")).finish("")[4]["status"] == "length"


@pytest.mark.parametrize("method", ["step", "finish"])
def test_step_needs_a_running_episode(method):
    env = SingleTurn()
    with pytest.raises(ResetNeeded):
        getattr(env, method)("x")
    env.reset()
    env.step("x")
    with pytest.raises(ResetNeeded):
        getattr(env, method)("x")
    env.reset()
    getattr(env, method)("x")
    made = gym.make(SINGLE)
    made.reset()
    made.step("x")
    with pytest.raises(ResetNeeded):
        made.step("x")


def test_a_bare_environment_knows_no_task_before_reset():
    env = SingleTurn()
    with pytest.raises(ResetNeeded):
        env.reference()
    env.reset(options={"task_id": "toy-5"})
    assert env.reference() == ("toy-5",)
    assert MultiTurn().reference() is None


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("cls", [SingleTurn, MultiTurn])
def test_any_text_is_an_action_and_part_of_the_observation(cls, text):
    env = cls()
    env.reset(seed=1)
    obs, *_ = env.step(text)
    assert obs in env.observation_space
    assert {"role": "assistant", "content": text} in obs["messages"]


def test_numpy_texts_become_plain_ones():
    env = SingleTurn()
    env.reset()
    obs, *_ = env.step(np.array(["abc"])[0])
    assert type(obs["messages"][-1]["content"]) is str


@pytest.mark.parametrize("action", [None, 3, b"bytes", ["text"]])
def test_what_is_no_text_is_a_type_error_and_costs_nothing(action):
    env = SingleTurn()
    env.reset()
    with pytest.raises(TypeError, match="an action is a text"):
        env.step(action)
    env.step("fine")


def test_nan_of_a_weighted_component_makes_the_reward_nan():
    env = SingleTurn()
    env.reset()
    _, reward, terminated, _, info = env.step("nan first")
    assert reward is math.nan
    assert info["reward_components"]["first"] is math.nan
    assert info["status"] == "infrastructure_error"
    assert terminated is True


def test_nan_of_a_component_of_weight_zero_leaves_the_reward():
    env = SingleTurn()
    env.reset()
    _, reward, *_, info = env.step("nan extra")
    assert reward == pytest.approx(0.5 / 10 + 2.0)
    assert info["status"] == "infrastructure_error"


@pytest.mark.parametrize("text", ["inf length", "-inf extra"])
def test_infinite_components_raise_and_end_the_episode(text):
    env = SingleTurn()
    env.reset()
    with pytest.raises(RuntimeError, match=text.split()[1]):
        env.step(text)
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_an_infrastructure_error_without_components_is_all_nan():
    _, reward, *_, info = scripted(Outcome(None, status="infrastructure_error")).step("")
    assert math.isnan(reward)
    assert all(math.isnan(value) for value in info["reward_components"].values())


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome({"x": 1.0}),
        Outcome({"x": 1.0, "y": 1.0, "z": 1.0}),
        Outcome({"x": "much", "y": 1.0}),
        Outcome({"x": None, "y": 1.0}),
        Outcome({"x": 10**400, "y": 1.0}),
        Outcome({"x": 1.0, "y": 1.0}, status="infrastructure_error"),
        Outcome({"x": 1.0, "y": 1.0}, metrics={"other": 1.0}),
        Outcome({"x": 1.0, "y": 1.0}, messages=[{"role": "tool", "content": None}]),
    ],
)
def test_faults_of_an_environment_raise(outcome):
    with pytest.raises(RuntimeError):
        scripted(outcome).step("")


def test_an_exception_in_answer_passes_and_ends_the_episode():
    env = scripted(KeyError("bug"))
    with pytest.raises(KeyError):
        env.step("")
    with pytest.raises(ResetNeeded):
        env.step("")
    env.outcome = Scripted.outcome
    env.reset()
    assert env.step("")[1] == 1.0


def test_ends_are_python_bools_and_metrics_without_nan():
    outcome = Outcome({"x": np.float32(0.5), "y": np.int64(1)}, done=np.True_, metrics={"m": math.nan})
    assert scripted(Outcome(None, done=np.False_)).step("")[2] is False
    _, reward, terminated, truncated, info = scripted(outcome).step("")
    assert terminated is True
    assert truncated is False
    assert info["metrics"] == {}
    assert type(reward) is float
    assert type(info["reward_components"]["y"]) is float


@pytest.mark.parametrize("content", [None, 3, ["part"]])
def test_an_opening_holds_texts_only(content):
    env = Scripted()
    env.opening = Opening([{"role": "user", "content": content}])
    with pytest.raises(RuntimeError, match="content"):
        env.reset()
    with pytest.raises(ResetNeeded):
        env.step("")


# ---- options and seeds ----


@pytest.mark.parametrize("index", [7, np.int64(7), np.uint8(7)])
def test_task_by_index(index):
    env = SingleTurn(split="all")
    assert env.reset(options={"task_index": index})[1]["task_id"] == "toy-7"


@pytest.mark.parametrize("task_id", ["toy-12", np.str_("toy-12")])
def test_task_by_id(task_id):
    env = SingleTurn()
    _, info = env.reset(options={"task_id": task_id})
    assert type(info["task_id"]) is str
    assert info["task_id"] == "toy-12"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task_id": "toy-12", "task_index": 0}, "exclude each other"),
        ({"taskid": "toy-12"}, "Did you mean 'task_id'"),
        ({1: 2}, "reset option 1 is unknown"),
        ({"task_index": -1}, "0..31, not -1"),
        ({"task_index": 32}, "0..31, not 32"),
        ({"task_index": 10**5000}, "0..31"),
        ({"task_index": True}, "must be an integer, not True"),
        ({"task_index": np.True_}, "must be an integer"),
        ({"task_index": 1.0}, "must be an integer, not 1.0"),
        ({"task_index": "1"}, "must be an integer, not '1'"),
        ({"task_index": None}, "must be an integer, not None"),
        ({"task_id": 12}, "must be a text, not 12"),
        ({"task_id": None}, "must be a text, not None"),
        ({"task_id": "toy-10"}, "is in split 'validation'"),
        ({"task_id": "toy12"}, "Did you mean 'toy-12'"),
        ({"task_id": "\ud800" * 10**6}, "is not in data set 'toy'"),
        (["task_id"], "reset options must be a dict"),
    ],
)
def test_wrong_options_are_one_clear_line(options, words):
    env = SingleTurn()
    with pytest.raises(ValueError, match=words.replace("(", r"\(")) as error:
        env.reset(options=options)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 700
    message.encode()  # printable everywhere


def test_a_failed_reset_leaves_no_episode():
    env = SingleTurn()
    env.reset()
    with pytest.raises(ValueError, match="unknown"):
        env.reset(options={"x": 1})
    with pytest.raises(ResetNeeded):
        env.step("x")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"split": "trian"},
            "split 'trian' is unknown; allowed: 'train', 'validation', 'test', 'all'. Did you mean",
        ),
        ({"split": None}, "split None is unknown"),
        ({"dataset": 3}, "dataset must be"),
        ({"render_mode": "human"}, "render_mode 'human' is unknown; allowed: 'ansi'"),
        ({"reward_weights": {"lenght": 1}}, "reward component 'lenght' is unknown.*Did you mean 'length'"),
        (
            {"reward_weights": {"length": math.nan}},
            "weight of reward component 'length' must be a finite number",
        ),
        ({"reward_weights": {"length": "1"}}, "must be a finite number, not '1'"),
        ({"reward_weights": {"length": True}}, "must be a finite number, not True"),
        ({"reward_weights": {"length": 10**400}}, "must be a finite number"),
        ({"reward_weights": [1, 2, 3]}, "reward_weights must map component names"),
    ],
)
def test_wrong_arguments_are_one_clear_line_also_through_make(arguments, words):
    for make in (SingleTurn, lambda **kwargs: gym.make(SINGLE, **kwargs)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's own remark about an unknown render mode
            with pytest.raises(ValueError, match=words):
                make(**arguments)


def play(env, texts, **reset):
    steps = [env.reset(**reset)]
    for text in texts:
        steps.append(env.step(text))
        if steps[-1][2] or steps[-1][3]:
            steps.append(env.reset())
    return steps


@pytest.mark.parametrize("cls", [SingleTurn, MultiTurn])
def test_equal_seeds_and_actions_give_equal_episodes(cls):
    texts = ["one", "nan length", "x", *HOSTILE]
    assert play(cls(), texts, seed=11) == play(cls(), texts, seed=11)
    assert play(cls(), texts, seed=11) != play(cls(), texts, seed=12)


def test_drawn_tasks_cover_the_split_and_nothing_else():
    env = SingleTurn(split="validation")
    env.reset(seed=0)
    drawn = {env.reset()[1]["task_id"] for _ in range(100)}
    assert drawn == {"toy-0", "toy-10", "toy-20", "toy-30"}


def test_nothing_returned_is_shared_between_calls():
    env = MultiTurn(max_turns=5)
    steps = [env.reset(seed=0), *(env.step(text) for text in "abcd")]
    for call, step in enumerate(steps):
        step[0]["messages"][0]["content"] = f"overwritten {call}"
        step[-1].get("reward_components", {})["turns"] = math.inf
        step[-1].get("reward_weights", {})["turns"] = math.inf
        step[-1].get("metrics", {})["m"] = math.inf
    obs, reward, *_, info = env.step("e")
    assert obs["messages"][0]["content"] == env.task.data
    assert reward == 5.0
    assert info["reward_weights"] == {"turns": 1.0, "finished": 1.0}
    identities = [id(message) for step in steps for message in step[0]["messages"]]
    assert len(set(identities)) == len(identities)


# ---- copies and many environments ----


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("env_id", [SINGLE, MULTI, "toy/MultiVector-v0"])
def test_a_copy_in_mid_episode_goes_on_identically(env_id, duplicate):
    env = gym.make(env_id)
    env.reset(seed=5)
    if env_id != SINGLE:
        env.step("\ud800")
    twin = duplicate(env)
    for text in ["a", "stop", *HOSTILE]:
        steps = [e.step(text) for e in (env, twin)]
        np.testing.assert_array_equal(steps[0][1], steps[1][1])
        assert steps[0][0] == steps[1][0]
        assert steps[0][2:] == steps[1][2:]
        if steps[0][2]:
            assert env.reset() == twin.reset()


def test_a_pickled_environment_leaves_its_tasks_behind():
    env = SingleTurn()
    env.reset()
    assert len(pickle.dumps(env)) < 10_000
    assert copy.deepcopy(env).tasks is env.tasks  # both found them in the shared cache


def test_a_thousand_environments_live_at_once_and_apart():
    envs = [SingleTurn(split="all") if i % 2 else MultiTurn(split="all") for i in range(1000)]
    ids = [env.reset(seed=i)[1]["task_id"] for i, env in enumerate(envs)]
    observations = [env.step(f"text {i}")[0] for i, env in enumerate(envs)]
    for i, (env, obs) in enumerate(zip(envs, observations, strict=True)):
        assert env.task.id == ids[i]
        place = 2 if i % 2 else 1
        assert obs["messages"][place]["content"] == f"text {i}"
    assert len({id(env.tasks) for env in envs}) == 1
    assert len({id(env.observation_space) for env in envs}) == 1000
    for env in envs:
        env.close()


def test_close_twice():
    env = gym.make(SINGLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.close()
        env.close()


def test_render():
    env = gym.make(MULTI, render_mode="ansi")
    env.reset(seed=0, options={"task_index": 0})
    env.step("hello")
    first, second, third = env.render().split("\n")
    assert first.startswith("[user] question")
    assert second == "[assistant] hello"
    assert third.startswith("[tool] hello|")
    assert SingleTurn().render() is None


def test_components_may_belong_to_the_instance():
    class PerInstance(Scripted):
        def __init__(self, names, **kwargs):
            super().__init__(components=[RewardComponent(name) for name in names], **kwargs)
            self.outcome = Outcome(dict.fromkeys(names, 1.0))

    small, large = PerInstance(["a"]), PerInstance(["a", "b", "c"], reward_weights={"c": 5})
    for env, total in ((small, 1.0), (large, 7.0)):
        env.reset()
        assert env.step("")[1] == total
    assert large.reward_space.shape == (3,)
    assert small.reward_spec.names == ("a",)


def test_an_author_is_told_what_is_missing():
    class Empty(MultiRewardEnv):
        components = (RewardComponent("x"),)

    with pytest.raises(TypeError, match="abstract"):
        Empty()

    class NoComponents(Scripted):
        components = ()

    with pytest.raises(ValueError, match="at least one component"):
        NoComponents()

    class BareNames(Scripted):
        components = ("correct", "brief")

    with pytest.raises(ValueError, match="must be RewardComponents, not 'correct'"):
        BareNames()

    class BadMetric(Scripted):
        metric_names = ("_hidden",)

    with pytest.raises(ValueError, match="_hidden"):
        BadMetric()


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("load_tasks", r"load_tasks\(\) must return a TaskSet, not \[\]"),
        ("open", r"open\(\) must return an Opening, not \[\]"),
        ("answer", r"answer\(\) and cut\(\) must return an Outcome, not \[\]"),
    ],
)
def test_an_author_is_told_what_a_method_must_return(monkeypatch, method, words):
    env = SingleTurn()
    monkeypatch.setattr(env, method, lambda *_: [])
    with pytest.raises(RuntimeError, match=words):
        _play(env)


def _play(env):
    env.reset(seed=0)
    env.step("text")


def test_toy_module_is_importable_for_workers():
    assert gym.spec(SINGLE).entry_point == "toy_envs:SingleTurn"
    assert toy_envs.SingleTurn is SingleTurn
