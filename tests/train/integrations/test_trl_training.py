"""Real training runs of TRL's trainer on environments of this project, with tiny policies on the CPU."""

import json

import gymnasium as gym
import pytest
import torch

pytest.importorskip("trl")

from trl import GRPOTrainer
from trl_models import Script, grpo_config, tiny_policy

import corrgrpo_envs  # noqa: F401
from corrgrpo_train.advantages import ESTIMATORS, estimate
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl import MultiRewardGRPOTrainer, trl_task

pytestmark = pytest.mark.trl


def references(env_id, **arguments):
    """The reference answers of an environment's tasks by the text of their last message."""
    env = gym.make(env_id, **arguments).unwrapped
    found = {}
    for task in env.tasks:
        observation, _ = env.reset(options={"task_id": task.id})
        found[observation["messages"][-1]["content"]] = env.reference()
    return found


def weights_of(model):
    return torch.cat([weight.detach().flatten().clone() for weight in model.parameters()])


def history(trainer, key):
    return [row[key] for row in trainer.state.log_history if key in row]


def rlla(tokenizer, **extra):
    return trl_task("RLLA-v0", tokenizer, limit=4, **extra)


def rlla_writer(answers):
    """Right answers at every second place of a group; elsewhere a wrong call in the right format, or nothing right."""
    other = ['<think> Hm. </think>\n<tool_call>\n{"name": "nothing", "parameters": {}}\n</tool_call>', "I don't know."]

    def write(prompt, row):
        right = next(text for start, (text,) in answers.items() if start in prompt)
        return right if row % 2 else other[row // 2 % 2]

    return write


def scored(row):
    """The components of what `rlla_writer` writes in a row of a group, as the environment itself scores it."""
    env = gym.make("corrgrpo/RLLA-v0").unwrapped
    observation, _ = env.reset(options={"task_id": env.tasks[0].id})
    start = observation["messages"][-1]["content"]
    *_, info = env.step(rlla_writer({start: env.reference()})(start, row))
    return list(info["reward_components"].values())


def test_rlla_trains_with_its_components_as_reward_functions(tmp_path):
    model, tokenizer = tiny_policy()
    task = rlla(tokenizer, env_args={"reward_weights": {"format": 0.5}})
    script = Script(model, tokenizer, rlla_writer(references("corrgrpo/RLLA-v0")))
    trainer = MultiRewardGRPOTrainer(
        model,
        task.reward_funcs,
        grpo_config(
            tmp_path, max_completion_length=900, max_steps=2, learning_rate=1e-3, gradient_accumulation_steps=2
        ),
        task.datasets["train"],
        processing_class=tokenizer,
    )
    seen = []
    score = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: seen.append(score(inputs)) or seen[-1]
    before = weights_of(model)
    trainer.train()
    assert not torch.equal(before, weights_of(model))
    assert trainer.reward_func_names == ["function_name", "parameter_names", "parameter_values", "format"]
    assert trainer.reward_weights.tolist() == [1, 1, 1, 0.5]
    # In turn: a wrong call, the right one, no format, the right one.
    assert history(trainer, "rewards/format/mean") == [0.75, 0.75]
    assert len(script.prompts) == 16
    components = torch.tensor([scored(row % 4) for row in range(8)])
    torch.testing.assert_close(trainer._components, components)
    expected = estimate("corrgrpo", components, [0] * 4 + [1] * 4, [1, 1, 1, 0.5])
    for output in seen:
        torch.testing.assert_close(output["advantages"], expected.advantages)
    assert list(trainer._logs["advantages"]) == pytest.approx(expected.advantages.tolist())
    assert history(trainer, "estimator/correlation_sum")[-1] == pytest.approx(
        expected.diagnostics["correlation_sum"].mean().item()
    )
    assert "estimator/correlation/function_name/format" in trainer.state.log_history[0]


@pytest.mark.parametrize("name", sorted({one.name for one in ESTIMATORS.values()}))
def test_every_estimator_runs_by_its_name(tmp_path, name):
    model, tokenizer = tiny_policy()
    task = rlla(tokenizer)
    Script(model, tokenizer, rlla_writer(references("corrgrpo/RLLA-v0")))
    trainer = MultiRewardGRPOTrainer(
        model,
        task.reward_funcs,
        grpo_config(tmp_path, max_completion_length=900, max_steps=1, gradient_accumulation_steps=2, loss_type="cispo"),
        task.datasets["train"],
        processing_class=tokenizer,
        estimator=name,
    )
    before = weights_of(model)
    trainer.train()
    assert not torch.equal(before, weights_of(model))


def test_grpo_with_trls_epsilon_trains_as_trl_does(tmp_path):
    """The contract in one: rewards, groups, weights and the place of the advantages are what TRL means by them."""
    trained = []
    for trainer_class, extra in (
        (GRPOTrainer, {}),
        (MultiRewardGRPOTrainer, {"estimator": "grpo", "estimator_options": {"epsilon": 1e-4}}),
    ):
        model, tokenizer = tiny_policy()
        task = rlla(tokenizer, env_args={"reward_weights": {"format": 0.25}})
        Script(model, tokenizer, rlla_writer(references("corrgrpo/RLLA-v0")))
        trainer = trainer_class(
            model,
            task.reward_funcs,
            grpo_config(
                tmp_path / trainer_class.__name__,
                max_completion_length=900,
                max_steps=2,
                learning_rate=1e-3,
                gradient_accumulation_steps=2,
                reward_weights=task.reward_weights,
                seed=3,
            ),
            task.datasets["train"],
            processing_class=tokenizer,
            **extra,
        )
        trainer.train()
        trained.append((weights_of(model), history(trainer, "loss"), list(trainer._logs["advantages"])))
    torch.testing.assert_close(trained[0][0], trained[1][0], atol=1e-4, rtol=0)
    assert trained[0][1] == pytest.approx(trained[1][1], abs=1e-4)
    assert trained[0][2] == pytest.approx(trained[1][2], abs=1e-4)


def test_leetcode_trains_with_its_components_as_reward_functions(tmp_path):
    model, tokenizer = tiny_policy()
    task = trl_task("LeetCode-v0", tokenizer, limit=1)
    answers = references("corrgrpo/LeetCode-v0")

    def write(prompt, row):
        (right,) = next(text for start, text in answers.items() if start in prompt)
        return right if row % 2 else "Sorry."

    Script(model, tokenizer, write)
    trainer = MultiRewardGRPOTrainer(
        model,
        task.reward_funcs,
        grpo_config(tmp_path, max_completion_length=2000, max_steps=1, learning_rate=1e-3),
        task.datasets["train"],
        processing_class=tokenizer,
    )
    trainer.train()
    assert trainer.reward_weights.tolist() == pytest.approx([0.05, 0.05, 0.05, 0.25, 0.6, 0.3, 0.2])
    assert history(trainer, "rewards/correctness/mean") == [0.5]
    advantages = list(trainer._logs["advantages"])
    assert min(advantages[1], advantages[3]) > 0.1 > -0.1 > max(advantages[0], advantages[2])


def agent_writer(answers, kinds):
    """A turn of the reference for kind "right"; other kinds answer at once or write a call that does not exist."""

    def write(prompt, row):
        user = prompt.split("<|im_start|>user\n")[1].partition("<|im_end|>")[0]
        turn = prompt.count("<tool_response>")
        kind = kinds[row % len(kinds)] if turn == 0 else "right"
        if kind == "wrong tool":
            return '<tool_call>\n{"name": "no_such_tool", "arguments": {}}\n</tool_call>'
        if kind == "at once":
            return "Done."
        if kind == "broken":
            return '<tool_call>\n{"name": '
        return answers[user][turn]

    return write


def test_agentdojo_trains_with_its_tools(tmp_path):
    pytest.importorskip("agentdojo")
    arguments = {"suites": ["banking"], "attacks": [], "max_reference_turns": 3}
    model, tokenizer = tiny_policy(tools=True)
    task = trl_task("AgentDojo-v0", tokenizer, env_args=arguments, limit=2)
    Script(
        model,
        tokenizer,
        agent_writer(references("corrgrpo/AgentDojo-v0", **arguments), ["right", "at once", "right", "broken"]),
    )
    trainer = MultiRewardGRPOTrainer(
        model,
        task.reward_funcs,
        grpo_config(tmp_path, max_completion_length=3000, max_steps=1, learning_rate=1e-3),
        task.datasets["train"],
        processing_class=tokenizer,
        environment_factory=task.environment_factory,
    )
    seen = []
    score = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: seen.append(score(inputs)) or seen[-1]
    before = weights_of(model)
    trainer.train()
    assert not torch.equal(before, weights_of(model))
    utility = trainer._components[:, 0]
    assert utility[[1, 3]].tolist() == [0, 0]
    assert utility[[0, 2]].tolist() == [1, 1]
    # Clean cases: security is constant, so the advantages are those of the utility alone.
    expected = estimate("corrgrpo", utility[:, None], [0] * 4, [1.0]).advantages
    torch.testing.assert_close(seen[0]["advantages"], expected)
    # What the tools said is not trained on.
    text = tokenizer.decode(seen[0]["completion_ids"][0][seen[0]["tool_mask"][0].bool()])
    assert "<tool_call>" in text
    assert "<tool_response>" not in text
    assert history(trainer, "tools/call_frequency")[0] > 0
    assert history(trainer, "metrics/format_valid") == [0.75]


def test_the_prompt_shows_the_environments_own_schemas(tmp_path):
    pytest.importorskip("agentdojo")
    arguments = {"suites": ["slack"], "attacks": []}
    model, tokenizer = tiny_policy(tools=True)
    task = trl_task("AgentDojo-v0", tokenizer, env_args=arguments, limit=1)
    trainer = MultiRewardGRPOTrainer(
        model,
        task.reward_funcs,
        grpo_config(tmp_path),
        task.datasets["train"],
        processing_class=tokenizer,
        environment_factory=task.environment_factory,
    )
    observation, _ = gym.make("corrgrpo/AgentDojo-v0", **arguments).reset(options={"task_index": 0})
    assert trainer._env_tools["tools_0"] == json.loads(observation["tools"])


def test_settings_that_would_have_no_effect_are_refused(tmp_path):
    model, tokenizer = tiny_policy()
    task = rlla(tokenizer)

    def make(estimator="corrgrpo", options=None, **settings):
        return MultiRewardGRPOTrainer(
            model,
            task.reward_funcs,
            grpo_config(tmp_path, **settings),
            task.datasets["train"],
            processing_class=tokenizer,
            estimator=estimator,
            estimator_options=options,
        )

    with pytest.raises(UsageError, match="scale_rewards='none' has no effect"):
        make(scale_rewards="none")
    with pytest.raises(UsageError, match="gives 'format' the weight 2, its environment 1"):
        make(reward_weights=[1.0, 1.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="Did you mean 'corrgrpo'"):
        make("corgrpo")
    with pytest.raises(ValueError, match="option 'epsilom'"):
        make("grpo", {"epsilom": 1})
