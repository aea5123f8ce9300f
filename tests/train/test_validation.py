import math

import gymnasium as gym
import pytest
import rollout_envs

from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout import Chat, Limits
from corrgrpo_train.rollout.groups import GroupSampler
from corrgrpo_train.validation import Validator


def validator(tokenizer, **settings):
    chat = Chat(tokenizer)
    arguments = {"split": "validation", "tasks": 3, "max_prompt_tokens": 2000, **settings}
    return Validator("rollout/Toy-v0", {"split": "train"}, chat, **arguments), chat


def test_the_same_held_out_tasks_greedily_every_time(tiny):
    model, tokenizer = tiny
    one, chat = validator(tokenizer)
    other, _ = validator(tokenizer, workers=3)
    engine = TransformersEngine(model, sorted(chat.eos_ids))
    results, episodes = one.run(engine, Limits(6, 4000))
    assert [e.task_id for e in episodes] == [e.task_id for e in other.run(engine, Limits(6, 4000))[1]]
    assert {e.task_id for e in episodes} <= {"toy-6", "toy-7", "toy-8", "toy-9"}
    assert len({e.task_id for e in episodes}) == 3
    assert results == one.run(engine, Limits(6, 4000))[0]
    assert results["reward"] == pytest.approx(sum(e.reward for e in episodes) / 3)
    assert results["components/short"] == sum(e.components["short"] for e in episodes) / 3
    assert results["metrics/turns"] == 1.0
    assert results["failed"] == 0


def test_a_small_split_gives_all_its_tasks(tiny):
    assert len(validator(tiny[1], tasks=50)[0].starts) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "test"}, "'test'"),
        ({"split": "all"}, "'all'"),
        ({"max_prompt_tokens": 4}, "max_prompt_tokens=4 tokens; raise --max"),
        ({"split": "tset"}, "tset"),
    ],
)
def test_what_cannot_be_validated_on(tiny, settings, message):
    with pytest.raises(UsageError, match=message):
        validator(tiny[1], **settings)


def test_an_environment_without_splits_needs_to_go_without(tiny):
    with pytest.raises(UsageError, match="--validation-tasks 0"):
        Validator("rollout/Bare-v0", {}, Chat(tiny[1]), split="validation", tasks=2, max_prompt_tokens=2000)


class SeededEnv(rollout_envs.BareEnv):
    """Knows splits, and has no list of tasks."""

    def __init__(self, split: str = "train") -> None:
        super().__init__()


def test_seeds_held_out_lie_apart_from_trainings(tiny):
    if "validation/Seeded-v0" not in gym.registry:
        gym.register("validation/Seeded-v0", SeededEnv)
    arguments = ("validation/Seeded-v0", {}, Chat(tiny[1]))
    held_out = Validator(*arguments, split="validation", tasks=3, max_prompt_tokens=2000)
    training = GroupSampler(*arguments, groups=3, group_size=1, max_prompt_tokens=2000, seed=0)
    assert [start.seed for start in held_out.starts] == [2**30, 2**30 + 1, 2**30 + 2]
    assert [training.next_start().seed for _ in range(3)] == [0, 1, 2]


def test_test_tasks_are_trained_on_only_when_asked_for(tiny):
    def sampler(env, **arguments):
        return GroupSampler(env, arguments, Chat(tiny[1]), groups=1, group_size=1, max_prompt_tokens=2000, seed=0)

    with pytest.raises(UsageError, match=r"'HumanEval-v0' is for evaluation.*corrgrpo_train.evaluate"):
        sampler("HumanEval-v0")
    assert sampler("HumanEval-v0", split="test").tasks == 8
    assert sampler("CorrelatedBandit-v0").tasks == 46


def test_failed_episodes_are_left_out_of_the_means(tiny):
    model, tokenizer = tiny
    chat = Chat(tokenizer)
    checked = Validator("rollout/Nan-v0", {}, chat, split="validation", tasks=2, max_prompt_tokens=2000)
    results, _ = checked.run(TransformersEngine(model, [2]), Limits(4, 4000))
    assert results["failed"] == 2
    assert math.isnan(results["reward"])
    assert math.isnan(results["components/short"])
    assert math.isfinite(results["components/letters"])
