"""Environments with tools behind TRL's methods, and reward functions, without a trainer."""

import json
import math

import gymnasium as gym
import pytest

pytest.importorskip("trl")

import rollout_envs  # noqa: F401  (registers small environments)
from transformers.utils import get_json_schema
from trl_models import tiny_policy

import corrgrpo_envs  # noqa: F401
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl import trl_task
from corrgrpo_train.integrations.trl.tools import ENDED, tool_environment

pytestmark = pytest.mark.trl

DOJO = {"suites": ["banking"], "attacks": []}


def call(name, **arguments):
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def said(text):
    return {"role": "assistant", "content": text}


def dojo(**extra):
    pytest.importorskip("agentdojo")
    _, tokenizer = tiny_policy(tools=True)
    return trl_task("AgentDojo-v0", tokenizer, env_args={**DOJO, **extra}, limit=1)


def begun(task):
    episode = task.environment_factory["tools_0"]()
    row = dict(task.datasets["train"][0])
    row.pop("environment")
    assert episode.reset(**row) is None
    return episode


def scores(task, episode, completion):
    columns = {"completions": [completion], "environments": [episode], "completion_ids": [[]], "prompts": [[]]}
    return {function.__name__: function(**columns)[0] for function in task.reward_funcs}


@pytest.mark.parametrize("suite", ["banking", "slack", "travel", "workspace"])
def test_methods_say_what_the_schemas_say(suite):
    pytest.importorskip("agentdojo")
    observation, _ = gym.make("corrgrpo/AgentDojo-v0", suites=[suite], attacks=[]).reset(options={"task_index": 0})
    schemas = json.loads(observation["tools"])
    episode = tool_environment(schemas, make=None)()
    for schema in schemas:
        function = schema["function"]
        made = get_json_schema(getattr(episode, function["name"]))["function"]
        assert made["name"] == function["name"]
        assert made["description"] == " ".join(function["description"].split())
        assert made["parameters"].get("required", []) == function["parameters"]["required"]
        for key, parameter in function["parameters"]["properties"].items():
            known = made["parameters"]["properties"][key]
            kinds = {one.get("type") for one in parameter.get("anyOf", [parameter])} - {"null"}
            found = known.get("type") or {one["type"] for one in known["anyOf"]}
            assert ({found} if isinstance(found, str) else set(found)) == kinds
            assert known["description"] == " ".join(parameter["description"].split())


def test_calls_are_steps_and_the_answer_ends_the_episode():
    task = dojo()
    env = gym.make("corrgrpo/AgentDojo-v0", **DOJO).unwrapped
    env.reset(options={"task_id": task.datasets["train"][0]["task_id"]})
    observation, *_ = env.step('<tool_call>\n{"name": "get_balance", "arguments": {}}\n</tool_call>')
    episode = begun(task)
    assert episode.get_balance() == observation["messages"][-1]["content"]
    *_, info = env.step("Done.")
    completion = [call("get_balance"), {"role": "tool", "name": "get_balance", "content": "1"}, said("Done.")]
    assert scores(task, episode, completion) == info["reward_components"]


def test_tools_that_do_not_exist_break_the_format_as_in_the_environment():
    task = dojo()
    for completion in (
        [call("no_such_tool"), {"role": "tool", "name": "no_such_tool", "content": "error"}, said("Done.")],
        [said('<tool_call>\n{"name": ')],
    ):
        episode = begun(task)
        assert set(scores(task, episode, completion).values()) == {0.0}
        assert episode._episode.status == "invalid_format"


def test_wrong_arguments_reach_the_environment_and_later_calls_are_told_that_it_is_over():
    episode = begun(dojo())
    assert episode.read_file(no_such_argument=1) == ENDED
    assert episode.get_balance() == ENDED
    assert episode._episode.status == "invalid_format"


def test_a_completion_that_was_cut_is_finished():
    task = dojo()
    for completion in (
        [call("get_balance")],  # not made any more
        [call("get_balance"), {"role": "tool", "name": "get_balance", "content": "1"}],  # no room for an answer
        [],
    ):
        episode = begun(task)
        if len(completion) == 2:
            episode.get_balance()
        assert all(math.isfinite(value) for value in scores(task, episode, completion).values())
        assert episode._episode.status == "length"


def test_rows_of_another_environment_are_refused():
    task = dojo()
    episode = task.environment_factory["tools_0"]()
    row = dict(task.datasets["train"][0])
    row["prompt"] = [{"role": "user", "content": "something else"}]
    with pytest.raises(UsageError, match="begins with other messages"):
        episode.reset(**row)


def test_names_that_can_not_be_methods_are_refused():
    for name in ("reset", "get_reward", "_hidden", "with-dash"):
        with pytest.raises(UsageError, match=f"the tool '{name}' can't be a method"):
            tool_environment([{"type": "function", "function": {"name": name}}], make=None)


def test_a_batch_is_scored_once_for_all_components():
    _, tokenizer = tiny_policy()
    task = trl_task("RLLA-v0", tokenizer, limit=1)
    counted = []
    scored = task.reward_funcs[0]._scored
    inner = scored._score
    scored._score = lambda **columns: counted.append(1) or inner(**columns)
    row = task.datasets["train"][0]
    columns = {key: [row[key]] for key in ("task_id", "seed", "split")}
    batch = [[said("x")]]
    ids = [[*tokenizer("x").input_ids, tokenizer.eos_token_id]]
    logged = {}
    for function in task.reward_funcs:
        function(completions=batch, completion_ids=ids, log_metric=logged.__setitem__, **columns)
    assert len(counted) == 1
    assert logged["episodes/failed"] == 0
    task.reward_funcs[0](completions=[[said("x")]], completion_ids=ids, **columns)
    assert len(counted) == 2


def test_answers_are_read_from_the_tokens_special_ones_included():
    """TRL's own texts lack them, and thoughts where it knows the chat template."""
    _, tokenizer = tiny_policy()
    task = trl_task("RLLA-v0", tokenizer, limit=1)
    env = gym.make("corrgrpo/RLLA-v0").unwrapped
    row = task.datasets["train"][0]
    env.reset(options={"task_id": row["task_id"]})
    (text,) = env.reference()
    columns = {key: [row[key]] for key in ("task_id", "seed", "split")}
    for answer in (text, text + "<|im_start|>"):
        env.reset(options={"task_id": row["task_id"]})
        *_, info = env.step(answer)
        ids = [[*tokenizer(answer).input_ids, tokenizer.eos_token_id]]
        values = {
            f.__name__: f(completions=[[said("?")]] * 1, completion_ids=ids, **columns)[0] for f in task.reward_funcs
        }
        assert values == info["reward_components"]


def test_a_failing_environment_costs_its_completion(monkeypatch):
    _, tokenizer = tiny_policy()
    task = trl_task("rollout/Failing-v0", tokenizer, env_args={"fail": "always", "with_tools": False}, limit=1)
    row = task.datasets["train"][0]
    columns = {key: [row[key]] for key in ("task_id", "seed", "split")}
    logged = {}
    for function in task.reward_funcs:
        batch = columns | {"completions": [[said("x")]], "completion_ids": [[5, 2]]}
        assert function(log_metric=logged.__setitem__, **batch) == [None]
    assert logged["episodes/failed"] == 1


def test_environments_of_several_turns_without_tools_are_refused():
    _, tokenizer = tiny_policy()
    task = trl_task("rollout/Toy-v0", tokenizer, env_args={"turns": 2, "with_tools": False}, limit=1)
    row = task.datasets["train"][0]
    columns = {key: [row[key]] for key in ("task_id", "seed", "split")}
    with pytest.raises(UsageError, match="goes on after the first answer and has no tools"):
        task.reward_funcs[0](completions=[[said("x")]], completion_ids=[[5, 2]], **columns)


def test_data_sets_of_several_splits_and_prompts_that_are_too_long():
    _, tokenizer = tiny_policy()
    task = trl_task("rollout/Toy-v0", tokenizer, env_args={"with_tools": False}, splits=("train", "validation"))
    assert {split: len(rows) for split, rows in task.datasets.items()} == {"train": 6, "validation": 4}
    assert set(task.datasets["validation"]["task_id"]) == {"toy-6", "toy-7", "toy-8", "toy-9"}
    assert task.environment_factory is None
    with pytest.raises(UsageError, match="no task of split 'train' has a prompt of at most 3 tokens"):
        trl_task("rollout/Toy-v0", tokenizer, env_args={"with_tools": False}, max_prompt_tokens=3)
    with pytest.raises(UsageError, match="Did you mean 'RLLA-v0'"):
        trl_task("RLA-v0", tokenizer)
