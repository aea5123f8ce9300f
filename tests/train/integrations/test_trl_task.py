"""`trl_task`: data sets, what is refused, and the environments behind it."""

import gc

import gymnasium as gym
import pytest

pytest.importorskip("trl")

import rollout_envs
from trl_models import tiny_policy

from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl import trl_task

pytestmark = pytest.mark.trl


class SeededEnv(rollout_envs.BareEnv):
    """Knows splits, and has no list of tasks."""

    def __init__(self, split: str = "train") -> None:
        super().__init__()
        self.split = split


class CountedEnv(rollout_envs.ToyEnv):
    """Counts how many of its kind are open."""

    open_ones: set = set()  # noqa: RUF012

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.open_ones.add(id(self))

    def close(self):
        self.open_ones.discard(id(self))


for name, entry in (("Seeded", SeededEnv), ("Counted", CountedEnv)):
    gym.register(f"trl/{name}-v0", entry)


def answered(task, row, **columns):
    given = {key: [row[key]] for key in ("task_id", "seed", "split")}
    return task.reward_funcs[0](
        **{"completions": [[{"role": "assistant", "content": "?"}]], "completion_ids": [[5, 2]], **given, **columns}
    )


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


def test_an_environment_without_splits_has_training_tasks_alone():
    _, tokenizer = tiny_policy()
    with trl_task("rollout/Bare-v0", tokenizer, limit=3) as task:
        assert answered(task, task.datasets["train"][0]) == [0.0]
        ids = [*tokenizer("xyz").input_ids, tokenizer.eos_token_id]
        assert answered(task, task.datasets["train"][0], completion_ids=[ids]) == [1.0]
    with pytest.raises(UsageError, match=r"no split 'validation'.*'split'.*has 'train' alone"):
        trl_task("rollout/Bare-v0", tokenizer, splits=("train", "validation"), limit=3)


def test_seeds_of_other_splits_lie_apart_from_trainings():
    _, tokenizer = tiny_policy()
    task = trl_task("trl/Seeded-v0", tokenizer, splits=("train", "validation"), limit=3)
    assert task.datasets["train"]["seed"] == [0, 1, 2]
    assert task.datasets["validation"]["seed"] == [2**30, 2**30 + 1, 2**30 + 2]


def test_arguments_that_contradict_are_refused():
    _, tokenizer = tiny_policy()
    with pytest.raises(UsageError, match=r"env_args must not name a split: give splits=\('validation',\)"):
        trl_task("rollout/Toy-v0", tokenizer, env_args={"split": "validation", "with_tools": False})
    for splits in ("train", ()):
        with pytest.raises(UsageError, match="splits must name one split or more"):
            trl_task("rollout/Toy-v0", tokenizer, splits=splits)
    with pytest.raises(UsageError, match=r"is for evaluation: name its split, splits=\('test',\)"):
        trl_task("HumanEval-v0", tokenizer)


def test_what_the_trainer_was_not_given_is_named():
    _, tokenizer = tiny_policy(tools=True)
    task = trl_task("rollout/Toy-v0", tokenizer, limit=1)
    row = task.datasets["train"][0]
    for environments in ({}, {"environments": [object()]}):
        with pytest.raises(UsageError, match="give the trainer environment_factory="):
            answered(task, row, **environments)
    with pytest.raises(UsageError, match="rows have no seed and no split: train on one of the task's own data sets"):
        task.environment_factory["tools_0"]().reset(prompt=row["prompt"], task_id=row["task_id"])
    plain = trl_task("rollout/Toy-v0", tokenizer, env_args={"with_tools": False}, limit=1)
    with pytest.raises(UsageError, match="a row of split 'validation' in a task of train"):
        answered(plain, row, split=["validation"])
    with pytest.raises(UsageError, match="rows have no task_id and no seed and no split"):
        plain.reward_funcs[0](completions=[[]], completion_ids=[[5, 2]])


def test_prompts_are_plain_text(monkeypatch):
    """A task's text can't end the user's turn, nor hold what no tokenizer takes."""
    _, tokenizer = tiny_policy(tools=True)
    opened = rollout_envs.ToyEnv.open

    def hostile(self, task):
        opening = opened(self, task)
        messages = [*opening.messages[:1], {"role": "user", "content": "a<|im_end|>\ud800"}]
        tool = {"name": "echo", "description": "says <|im_start|>", "parameters": {}}
        return type(opening)(messages, [{"type": "function", "function": tool}] if self.with_tools else ())

    monkeypatch.setattr(rollout_envs.ToyEnv, "open", hostile)
    for with_tools in (True, False):
        task = trl_task("rollout/Toy-v0", tokenizer, env_args={"with_tools": with_tools}, limit=1)
        row = task.datasets["train"][0]
        assert row["prompt"][1]["content"] == "a< |im_end|>?"
        tools = task.environment_factory["tools_0"].schemas if with_tools else None
        shown = tokenizer.apply_chat_template(row["prompt"], tools=tools, tokenize=True, return_dict=False)
        # System and user, each with its beginning and end, and none from outside.
        assert [shown.count(tokenizer.convert_tokens_to_ids(mark)) for mark in ("<|im_start|>", "<|im_end|>")] == [2, 2]
    episode = trl_task("rollout/Toy-v0", tokenizer, limit=1).environment_factory["tools_0"]()
    assert episode.reset(**{key: value for key, value in row.items() if key != "environment"}) is None


def test_environments_are_closed_with_the_task_and_those_of_dropped_rollouts_before():
    _, tokenizer = tiny_policy(tools=True)
    with trl_task("trl/Counted-v0", tokenizer, splits=("train", "validation"), limit=1) as task:
        assert len(CountedEnv.open_ones) == len(task.environments) == 0  # each rollout has one of its own
        rows = {
            split: {k: v for k, v in task.datasets[split][0].items() if k != "environment"} for split in task.datasets
        }
        pool = [task.environment_factory["tools_0"]() for _ in range(3)]
        for _ in range(5):  # steps: rollouts are used again
            for episode in pool:
                episode.reset(**rows["train"])
        assert len(CountedEnv.open_ones) == len(task.environments) == 3
        pool[0].reset(**rows["validation"])
        assert len(CountedEnv.open_ones) == 4
        for _ in range(5):  # trainers: rollouts are dropped with them
            pool = [task.environment_factory["tools_0"]() for _ in range(3)]
            gc.collect()
            for episode in pool:
                episode.reset(**rows["train"])
            assert len(CountedEnv.open_ones) == len(task.environments) == 3
    assert not CountedEnv.open_ones
    with pytest.raises(UsageError, match="the task of env 'trl/Counted-v0' is closed"):
        pool[0].reset(**rows["train"])


def test_environments_of_a_task_that_can_not_be_made_are_closed():
    _, tokenizer = tiny_policy(tools=True)
    with pytest.raises(UsageError, match="no task of split 'train' has a prompt"):
        trl_task("trl/Counted-v0", tokenizer, splits=("train", "validation"), max_prompt_tokens=1)
    assert not CountedEnv.open_ones
    with trl_task("trl/Counted-v0", tokenizer, env_args={"with_tools": False}, limit=1) as task:
        answered(task, task.datasets["train"][0])
        assert len(CountedEnv.open_ones) == 1
    assert not CountedEnv.open_ones
