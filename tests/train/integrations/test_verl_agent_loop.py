"""Episodes of our environments in verl's agent loop, against a server that answers as verl's do."""

import asyncio
import importlib.util
import math
from functools import cache

import gymnasium as gym
import pytest

pytest.importorskip("verl", reason="verl is not installed: make test-verl")

from omegaconf import OmegaConf
from rollout_envs import BareEnv, LingeringEnv
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, _agent_loop_registry
from verl_stub import Letters, Script, StubServer

from corrgrpo_train.advantages import estimate
from corrgrpo_train.config import Config
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl import registration  # noqa: F401  (registers)
from corrgrpo_train.integrations.verl.agent_loop import EnvironmentAgentLoop
from corrgrpo_train.integrations.verl.compose import composed
from corrgrpo_train.integrations.verl.dataset import TaskDataset
from corrgrpo_train.integrations.verl.settings import verl_settings
from corrgrpo_train.integrations.verl.trainer import ComponentTrainer
from corrgrpo_train.rollout import Chat

pytestmark = pytest.mark.verl

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    """A folder with the tiny model, as verl loads it, and the tokenizer."""
    from corrgrpo_train.models.tiny import build_tiny

    folder = tmp_path_factory.mktemp("tiny")
    model, tokenizer = build_tiny(0, hidden_size=64, layers=1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, tokenizer


@cache
def defaults():
    """Composed once: it takes seconds."""
    base = composed(verl_settings(Config(env="rollout/Toy-v0", model="folder")))
    OmegaConf.set_struct(base, False)
    return base


def whole(folder, **changed):
    changed = {"max_prompt_tokens": 60000, "max_new_tokens": 4000, "max_episode_tokens": 120000, **changed}
    return OmegaConf.merge(defaults(), verl_settings(Config(model=str(folder), **changed)))


def loop_of(config, server, tokenizer):
    return EnvironmentAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=TaskDataset,
        data_config=DictConfigWrap(config.data),
        hf_model_type="llama",
    )


def run(tiny_folder, answers, row, *, sampling=SAMPLING, **changed):
    """Run one episode and return verl's output and the server."""
    folder, tokenizer = tiny_folder
    config, server = whole(folder, **changed), StubServer(answers)
    loop = loop_of(config, server, tokenizer)
    row = {"task_id": None, "start_seed": 0, "split": "train", "validation": False, "global_steps": 5, **row}
    return asyncio.run(loop.run(dict(sampling), **row)), server


def check_tokens(output, server, tokenizer):
    """What the server sampled, and nothing else, is what the mask shows; each turn's prompt is the sequence so far."""
    sequence, sampled = output.prompt_ids + output.response_ids, []
    assert output.prompt_ids == server.asked[0]["prompt"]
    for asked in server.asked:
        end = len(asked["prompt"]) + len(asked["ids"])
        assert sequence[:end] == asked["prompt"] + asked["ids"]
        sampled += asked["ids"]
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    masked = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert masked == sampled
    logprobs = [value for value, mask in zip(output.response_logprobs, output.response_mask, strict=True) if mask]
    assert logprobs == [-float(place + 1) for place in range(len(sampled))]
    assert not any(v for v, mask in zip(output.response_logprobs, output.response_mask, strict=True) if not mask)
    # The whole conversation as text, once: what the template shows of it.
    return tokenizer.decode(sequence)


def played(env_id, task_id, texts, **arguments):
    """The same episode in the environment alone: summed reward and components, the last info and conversation."""
    env = gym.make(env_id, **arguments)
    _, info = env.reset(seed=0, options={"task_id": task_id})
    reward, components = 0.0, {}
    for text in texts:
        observation, step_reward, terminated, truncated, info = env.step(text)
        reward += step_reward
        for name, value in info["reward_components"].items():
            components[name] = components.get(name, 0.0) + value
    assert terminated or truncated
    return reward, components, info, observation["messages"]


def test_it_is_in_verl_s_registry():
    target = _agent_loop_registry["corrgrpo"]["_target_"]
    assert target == "corrgrpo_train.integrations.verl.agent_loop.EnvironmentAgentLoop"


@pytest.mark.skipif(importlib.util.find_spec("agentdojo") is None, reason="the package agentdojo is not installed")
@pytest.mark.parametrize("schemas", ["flat", "signatures"])
def test_agentdojo_in_several_turns(tiny_folder, schemas):
    arguments = {"suites": ["banking"], "tool_schemas": schemas}
    env = gym.make("corrgrpo/AgentDojo-v0", **arguments)
    for task in env.unwrapped.tasks:
        env.reset(seed=0, options={"task_id": task.id})
        texts = env.unwrapped.reference()
        if texts and len(texts) > 2:
            break
    output, server = run(
        tiny_folder, Script(tiny_folder[1], texts), {"task_id": task.id}, env="AgentDojo-v0", env_args=arguments
    )
    reward, components, info, messages = played("corrgrpo/AgentDojo-v0", task.id, texts, **arguments)
    assert len(server.asked) == len(texts) > 2
    text = check_tokens(output, server, tiny_folder[1])
    for message in messages[2:]:  # the first two are in the prompt
        assert message["content"] in text
    assert output.reward_score == reward == info["reward_weights"]["utility"] * 1.0 + components["security"]
    assert output.extra_fields["reward_components"] == components
    assert output.extra_fields["reward_weights"] == info["reward_weights"] == {"utility": 1.0, "security": 1.0}
    assert output.extra_fields["reward_extra_info"]["components/utility"] == 1.0
    assert output.extra_fields["status"] == info["status"] == "ok"
    assert output.num_turns == 2 * len(texts)
    # One request id for all turns: verl's router then sends them to the server that has the prefix.
    assert len({asked["request_id"] for asked in server.asked}) == 1
    assert {asked["limit"] for asked in server.asked} == {4000}


@pytest.mark.parametrize("right", [True, False])
def test_rlla_in_one_turn(tiny_folder, right):
    env = gym.make("corrgrpo/RLLA-v0")
    _, info = env.reset(seed=1)
    texts = env.unwrapped.reference() if right else ["no blocks at all"]
    weights = {"format": 0.5}
    output, server = run(
        tiny_folder, Script(tiny_folder[1], texts), {"task_id": info["task_id"]}, env="RLLA-v0", reward_weights=weights
    )
    reward, components, *_ = played("corrgrpo/RLLA-v0", info["task_id"], texts, reward_weights=weights)
    assert output.reward_score == pytest.approx(reward)
    assert (output.reward_score == pytest.approx(3.5)) == right  # .5 + 1 + 1.5 of the calls, half of the format
    assert output.extra_fields["reward_components"] == components
    assert output.extra_fields["reward_weights"]["format"] == 0.5
    assert output.response_mask == [1] * len(output.response_ids)
    check_tokens(output, server, tiny_folder[1])


def test_leetcode_runs_the_program(tiny_folder):
    env = gym.make("corrgrpo/LeetCode-v0")
    _, info = env.reset(seed=1)
    texts = env.unwrapped.reference()
    output, server = run(tiny_folder, Script(tiny_folder[1], texts), {"task_id": info["task_id"]}, env="LeetCode-v0")
    components = output.extra_fields["reward_components"]
    passed = ("format", "syntax", "compile", "runtime", "correctness")
    assert {name: components[name] for name in passed} == dict.fromkeys(passed, 1.0)
    weights = env.unwrapped.reward_spec.weights
    assert output.reward_score == pytest.approx(sum(weights[name] * value for name, value in components.items()))
    check_tokens(output, server, tiny_folder[1])


@pytest.mark.parametrize("turns", [1, 3])
def test_a_turn_ends_at_its_end_token_or_its_limit(tiny_folder, turns):
    # Without an end token at the limit of a turn, the template's end stands between, not trained on.
    _, tokenizer = tiny_folder
    output, server = run(
        tiny_folder,
        Script(tokenizer, ["e", "toolong", "ee"][:turns]),
        {"task_id": "toy-1"},
        env="rollout/Toy-v0",
        env_args={"turns": turns},
        max_new_tokens=4,
    )
    text = check_tokens_loosely(output, server, tokenizer)
    assert [asked["limit"] for asked in server.asked] == [4] * turns
    if turns == 3:
        assert "tool<|im_end|>" in text
        end = tokenizer.eos_token_id
        assert server.asked[1]["ids"][-1] != end
        place = len(server.asked[1]["prompt"]) + 4
        assert (output.prompt_ids + output.response_ids)[place] == end
        assert output.response_mask[place - len(output.prompt_ids)] == 0


def check_tokens_loosely(output, server, tokenizer):
    sequence = output.prompt_ids + output.response_ids
    masked = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert masked == [token for asked in server.asked for token in asked["ids"]]
    return tokenizer.decode(sequence)


def test_an_attack_s_special_tokens_stay_plain_text(tiny_folder):
    # The toy's tool output holds "<|im_end|>": as a token it would end the turn.
    _, tokenizer = tiny_folder
    output, _ = run(
        tiny_folder, Script(tokenizer, ["a", "b"]), {"task_id": "toy-1"}, env="rollout/Toy-v0", env_args={"turns": 2}
    )
    given = [t for t, mask in zip(output.response_ids, output.response_mask, strict=True) if not mask]
    assert "<|im_end|>a" in tokenizer.decode(given)
    ends = tokenizer.decode(given).count("<|im_end|>")
    assert given.count(tokenizer.eos_token_id) == ends - 1


def test_an_episode_never_passes_verl_s_lengths(tiny_folder):
    _, tokenizer = tiny_folder
    output, _ = run(
        tiny_folder,
        Script(tokenizer, ["x" * 30] * 4),
        {"task_id": "toy-1"},
        env="rollout/Toy-v0",
        env_args={"turns": 4},
        max_prompt_tokens=900,
        max_episode_tokens=900 + 100,
        max_new_tokens=50,
    )
    assert len(output.prompt_ids) <= 900
    assert len(output.response_ids) <= 100
    assert output.extra_fields["status"] == "length"
    assert output.extra_fields["reward_components"] == {"letters": 0.0, "short": 1.0}  # scored by the cut
    assert output.reward_score == 0.5


def test_a_failing_environment_costs_its_episode(tiny_folder):
    _, tokenizer = tiny_folder
    for fail, sampled in (("always", True), ("reset", False)):
        output, server = run(
            tiny_folder,
            Script(tokenizer, ["e"] * 9),
            {"task_id": "toy-1", "global_steps": 5},
            env="rollout/Failing-v0",
            env_args={"fail": fail},
        )
        assert bool(server.asked) == sampled
        assert set(output.response_mask) == {0}
        assert output.reward_score == 0.0
        assert output.extra_fields["reward_components"] == {}
        assert output.extra_fields["status"] == "environment_error"
        assert all(math.isnan(v) for v in output.extra_fields["reward_extra_info"].values())
        assert output.extra_fields["min_global_steps"] == (3 if sampled else 5)
        assert len(output.prompt_ids) >= 1
        assert output.as_dict()["rm_scores"].sum() == 0


def test_an_unscored_component_leaves_the_episode_out(tiny_folder):
    _, tokenizer = tiny_folder
    row = {"task_id": "toy-1"}
    output, _ = run(tiny_folder, Script(tokenizer, ["e"]), row, env="rollout/Nan-v0")
    assert set(output.response_mask) == {0}
    assert math.isnan(output.extra_fields["reward_components"]["short"])
    weightless, _ = run(tiny_folder, Script(tokenizer, ["e"]), row, env="rollout/Nan-v0", reward_weights={"short": 0})
    assert set(weightless.response_mask) == {1}
    assert weightless.reward_score == 1.0
    validated, _ = run(tiny_folder, Script(tokenizer, ["e"]), {**row, "validation": True}, env="rollout/Nan-v0")
    assert validated.extra_fields["reward_extra_info"]["components/short"] is None  # verl's validation leaves it out


def test_the_overlong_penalty_joins_the_components_in_training(tiny_folder):
    _, tokenizer = tiny_folder
    changed = {
        "env": "rollout/Toy-v0",
        "max_new_tokens": 10,
        "overlong_share": 0.5,
        "reward_weights": {"overlong": 2.0},
    }
    output, _ = run(tiny_folder, Script(tokenizer, ["abcdefg"]), {"task_id": "toy-1"}, **changed)
    # 8 tokens of 10, the penalty begins at 5: -(8 - 5)/5.
    assert output.extra_fields["reward_components"]["overlong"] == pytest.approx(-0.6)
    assert output.reward_score == pytest.approx(1 / 7 - 1.2)
    assert output.extra_fields["reward_extra_info"]["components/overlong"] == pytest.approx(-0.6)
    # Validation shows the environment's own reward, on training's tasks too (validation_split "train").
    for row in ({"task_id": "toy-7", "split": "validation"}, {"task_id": "toy-1", "split": "train"}):
        row = {**row, "validation": True}
        output, _ = run(tiny_folder, Script(tokenizer, ["abcdefg"]), row, **changed)
        assert "overlong" not in output.extra_fields["reward_components"]
        assert output.reward_score == pytest.approx(1 / 7)


def test_a_third_party_s_environment_of_the_least_kind(tiny_folder):
    _, tokenizer = tiny_folder
    output, _ = run(tiny_folder, Script(tokenizer, ["xyz"]), {}, env="rollout/Bare-v0")
    assert (output.reward_score, output.extra_fields["reward_components"]) == (2.0, {"hit": 1.0})
    assert output.extra_fields["reward_extra_info"] == {"components/hit": 1.0}


def test_without_log_probabilities_and_with_a_broken_turn(tiny_folder):
    _, tokenizer = tiny_folder
    sampling = {**SAMPLING, "logprobs": False}
    output, _ = run(
        tiny_folder, Script(tokenizer, ["e"]), {"task_id": "toy-1"}, sampling=sampling, env="rollout/Toy-v0"
    )
    assert output.response_logprobs is None

    class Aborting(StubServer):
        async def generate(self, *args, **kwargs):
            answer = await super().generate(*args, **kwargs)
            return answer.model_copy(update={"stop_reason": "aborted"})

    folder, _ = tiny_folder
    config = whole(folder, env="rollout/Toy-v0")
    loop = EnvironmentAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=Aborting(Letters(tokenizer)),
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=TaskDataset,
        data_config=DictConfigWrap(config.data),
        hf_model_type="llama",
    )
    with pytest.raises(RuntimeError, match="broke a turn off"):
        asyncio.run(loop.run(dict(SAMPLING), task_id="toy-1", start_seed=0, split="train", validation=False))


def test_many_episodes_at_once_do_not_mix(tiny_folder):
    folder, tokenizer = tiny_folder
    config, server = whole(folder, env="rollout/Toy-v0", env_args={"turns": 2}), StubServer(Letters(tokenizer, "ef"))
    loop = loop_of(config, server, tokenizer)

    async def many():
        return await asyncio.gather(*[loop.run(dict(SAMPLING), **row_of(f"toy-{i % 3}", i)) for i in range(12)])

    for place, output in enumerate(asyncio.run(many())):
        mine = [asked for asked in server.asked if asked["prompt"][: len(output.prompt_ids)] == output.prompt_ids]
        assert output.extra_fields["task_id"] == f"toy-{place % 3}"
        last = output.prompt_ids + output.response_ids
        assert any(asked["prompt"] + asked["ids"] == last for asked in mine)
        text = tokenizer.decode([t for t, m in zip(output.response_ids, output.response_mask, strict=True) if m])
        final = text.removesuffix("<|im_end|>").rpartition("<|im_end|>")[2]
        assert output.extra_fields["reward_components"]["letters"] == pytest.approx(final.count("e") / len(final))


def row_of(task_id, seed=0):
    return {"task_id": task_id, "start_seed": seed, "split": "train", "validation": False}


# Room for one turn of thirty letters, and not for what stands before the next.
NARROW = {"max_prompt_tokens": 900, "max_episode_tokens": 950, "max_new_tokens": 50}


def together(tiny_folder, rows, **changed):
    """Run episodes at the same time, all of the same thirty letters."""
    folder, tokenizer = tiny_folder
    server = StubServer(Script(tokenizer, ["x" * 30] * len(rows)))
    loop = loop_of(whole(folder, **{**NARROW, **changed}), server, tokenizer)

    async def all_of_them():
        return await asyncio.gather(*[loop.run(dict(SAMPLING), **row) for row in rows])

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("hang", ["reset", "step", "finish"])
def test_an_environment_that_never_answers_costs_its_episode(tiny_folder, hang):
    outputs = together(
        tiny_folder,
        [row_of(f"toy-{i}") for i in range(4)],
        env="rollout/Hanging-v0",
        env_args={"hang": hang, "turns": 2},
        env_timeout=1.0,
    )
    for place, output in enumerate(outputs):
        assert output.extra_fields["status"] == ("environment_error" if place == 1 else "length")
        assert any(output.response_mask) == (place != 1)
        assert output.reward_score == (0.0 if place == 1 else 0.5)


def test_one_that_is_slow_to_be_broken_off_holds_nobody_up(tiny_folder):
    LingeringEnv.begin()
    outputs = together(
        tiny_folder, [row_of("toy-1")] * 4, env="rollout/Lingering-v0", env_args={"turns": 2, "others": 3}
    )
    assert LingeringEnv.waited
    assert {(output.extra_fields["status"], output.num_turns) for output in outputs} == {("length", 2)}


# ---- the data set ----------------------------------------------------------------------------------------


def data_of(tiny_folder, split, *, samples=-1, **changed):
    folder, tokenizer = tiny_folder
    config = whole(folder, **{"env": "rollout/Toy-v0", "groups_per_step": 2, **changed})
    return TaskDataset(split, tokenizer=tokenizer, config=config.data, processor=None, max_samples=samples)


def test_rows_are_the_split_s_tasks(tiny_folder):
    data = data_of(tiny_folder, "train")
    assert [row["task_id"] for row in data] == [f"toy-{i}" for i in range(6)]
    assert data[2]["raw_prompt"] == [{"role": "system", "content": "spell"}, {"role": "user", "content": "abb"}]
    assert (data[2]["index"], data[2]["split"], data[2]["data_source"]) == (2, "train", "rollout/Toy-v0")
    held_out = data_of(tiny_folder, ["validation"])
    assert {row["task_id"] for row in held_out} == {f"toy-{i}" for i in range(6, 10)}
    assert len(data_of(tiny_folder, "validation", samples=2)) == 2


def test_long_prompts_are_left_out(tiny_folder):
    _, tokenizer = tiny_folder
    lengths = {}
    for row in data_of(tiny_folder, "train", env_args={"with_tools": False}):
        lengths[row["task_id"]] = len(Chat(tokenizer).opening(row["raw_prompt"]))
    limit = sorted(lengths.values())[3]
    data = data_of(tiny_folder, "train", env_args={"with_tools": False}, max_prompt_tokens=limit)
    assert {row["task_id"] for row in data} == {name for name, length in lengths.items() if length <= limit}
    assert data.too_long == 2
    with pytest.raises(UsageError, match="no task of split 'train' has a prompt of at most 5 tokens"):
        data_of(tiny_folder, "train", max_prompt_tokens=5)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_fewer_rows_than_asked_for_only_where_no_more_fit(tiny_folder, split):
    _, tokenizer = tiny_folder
    rows = list(data_of(tiny_folder, split, env_args={"with_tools": False}))
    lengths = {row["task_id"]: len(Chat(tokenizer).opening(row["raw_prompt"])) for row in rows}
    shortest = min(lengths, key=lengths.get)
    for limit in sorted(lengths.values()):
        changed = {"env_args": {"with_tools": False}, "max_prompt_tokens": limit}
        fitting = {name for name, length in lengths.items() if length <= limit}
        for samples in (1, 2, 3):
            found = {row["task_id"] for row in data_of(tiny_folder, split, samples=samples, **changed)}
            assert len(found) == min(samples, len(fitting))
            assert found <= fitting
    assert data_of(tiny_folder, split, samples=1, **changed)[0]["task_id"] == rows[0]["task_id"]
    assert shortest == rows[0]["task_id"]


def test_a_task_that_fails_is_left_out(tiny_folder, caplog):
    data = data_of(tiny_folder, "train", env="rollout/Failing-v0", env_args={"fail": "reset"})
    assert [row["task_id"] for row in data] == ["toy-0", "toy-2", "toy-3", "toy-4", "toy-5"]
    assert "task toy-1 of split train is left out: ConnectionError: no simulator" in caplog.text


def dataloaders(tiny_folder, **changed):
    """Both sets of tasks as the trainer reads them."""
    folder, tokenizer = tiny_folder
    trainer = object.__new__(ComponentTrainer)
    trainer.config = whole(folder, **{"env": "rollout/Toy-v0", **changed})
    trainer.tokenizer, trainer.processor = tokenizer, None
    trainer.trainer_mode, trainer.parameter_sync_step = "sync", 1
    trainer._init_dataloader()
    return trainer


def test_rows_say_what_they_are_for(tiny_folder):
    trainer = dataloaders(tiny_folder, groups_per_step=5, validation_tasks=4, validation_split="train")
    (train,), (held_out,) = trainer.train_dataloader, trainer.val_dataloader
    assert list(train["validation"]) == [False] * 5
    assert list(held_out["validation"]) == [True] * 4
    assert {*train["split"], *held_out["split"]} == {"train"}


def test_validation_may_have_fewer_tasks_than_a_step_and_training_may_not(tiny_folder):
    _, tokenizer = tiny_folder
    prompts = [row["raw_prompt"] for row in data_of(tiny_folder, "train", env_args={"with_tools": False})]
    lengths = [len(Chat(tokenizer).opening(prompt)) for prompt in prompts]
    # Five of six tasks fit, and a step has five.
    changed = {"env_args": {"with_tools": False}, "max_prompt_tokens": sorted(lengths)[4]}
    for validation in ({"validation_tasks": 0}, {"validation_tasks": 2, "validation_split": "train"}):
        trainer = dataloaders(tiny_folder, groups_per_step=5, **changed, **validation)
        assert len(trainer.train_dataset) == 5
        assert len(trainer.val_dataset) == (validation["validation_tasks"] or 1)
    with pytest.raises(UsageError, match="'train' has 5 tasks that fit, fewer than the 6 of a step"):
        dataloaders(tiny_folder, groups_per_step=6, validation_tasks=0, **changed)


def test_an_environment_without_splits_is_trained_on_without_validation(tiny_folder):
    trainer = dataloaders(tiny_folder, env="rollout/Bare-v0", groups_per_step=2, steps=3, validation_tasks=0)
    assert (len(trainer.train_dataset), len(trainer.val_dataset)) == (6, 1)


def test_environments_without_tasks_get_seeds(tiny_folder):
    data = data_of(tiny_folder, "train", env="rollout/Bare-v0", steps=3)
    assert [row["task_id"] for row in data] == [None] * 6
    assert len({row["start_seed"] for row in data}) == 6


class WordyEnv(BareEnv):
    """Begins with a long prompt, the first time."""

    def reset(self, **kwargs):
        _, info = super().reset(**kwargs)
        self.met = getattr(self, "met", -1) + 1
        return {"messages": ({"role": "user", "content": "x" * (1 if self.met else 500)},)}, info


def test_a_seed_with_too_long_a_prompt_gives_way_to_the_next(tiny_folder):
    if "rollout/Wordy-v0" not in gym.registry:
        gym.register("rollout/Wordy-v0", WordyEnv)
    data = data_of(tiny_folder, "train", env="rollout/Wordy-v0", samples=1, steps=3, max_prompt_tokens=200)
    assert (len(data), data.too_long) == (1, 1)


@pytest.mark.parametrize(
    ("split", "changed", "told"),
    [
        ("test", {}, "nothing is selected on test tasks"),
        ("validation", {"env": "rollout/Bare-v0"}, "no validation on split 'validation'.*--validation-tasks 0"),
        ("train", {"env": "HumanEval-v0"}, "'HumanEval-v0' is for evaluation"),
        (
            "train",
            {"env": "rollout/Faulty-v0", "env_args": {"fault": "messages None", "when": "reset"}},
            "can't be reset",
        ),
        ("train", {"env": "RLLA-v0", "env_args": {"dataset": "nowhere.json"}}, "nowhere.json"),
    ],
)
def test_what_is_wrong_is_told(tiny_folder, split, changed, told):
    with pytest.raises((UsageError, ValueError), match=told):
        data_of(tiny_folder, split, **changed)


def test_groups_of_outputs_give_the_advantages_of_the_paper(tiny_folder):
    # From episodes to advantages with nothing of verl's trainer between: the next test has that (test_verl_trainer).
    _, tokenizer = tiny_folder
    texts = ["eeee", "e", "xx", "xxxxx"]
    outputs = [run(tiny_folder, Script(tokenizer, [t]), {"task_id": "toy-1"}, env="rollout/Toy-v0")[0] for t in texts]
    rows = [output.extra_fields["reward_components"] for output in outputs]
    assert rows == [
        {"letters": 1.0, "short": 0.0},
        {"letters": 1.0, "short": 1.0},
        {"letters": 0.0, "short": 1.0},
        {"letters": 0.0, "short": 0.0},
    ]
    # Uncorrelated, weights 1 and 0.5: totals 1, 1.5, .5, 0 around .75, over the root of 2.
    found = estimate("corrgrpo", [list(row.values()) for row in rows], [0] * 4, [1.0, 0.5]).advantages
    assert found.tolist() == pytest.approx([0.25 / 2**0.5, 0.75 / 2**0.5, -0.25 / 2**0.5, -0.75 / 2**0.5], abs=1e-5)
