"""The paper's presets: that they hold what was published, and that they can be trained with."""

import importlib.util

import gymnasium as gym
import pytest

import corrgrpo_envs  # noqa: F401  (registers the ids)
from corrgrpo_train import cli, presets
from corrgrpo_train.config import Config, read_settings
from corrgrpo_train.config_checks import check_algorithm, check_environment, check_values

PAPER = [name for name in presets.names() if name.startswith("paper/")]

# Appendix I and, for what it leaves open, the launchers: prompts per step, rollouts, updates, steps, tokens, KL.
PUBLISHED = {
    "RLLA-v0": (128, 4, 4, 3920 // 128 * 15, 2048, 2048, 0.0),
    "LeetCode-v0": (64, 8, 2, 2641 // 64 * 15, 4096, 2048, 1e-3),
    "AgentDojo-v0": (16, 4, 1, 1584 // 16 * 7, 12288, 16384, 1e-3),
}


def made(*arguments: str) -> Config:
    return cli.gather(cli.parse(arguments))[0]


def test_there_is_one_for_every_task_and_experiment() -> None:
    rows = {"paper/LeetCode-v0/dapo", "paper/LeetCode-v0/cispo", "paper/LeetCode-v0/gdpo", "paper/LeetCode-v0/run_pass"}
    assert set(PAPER) == {f"paper/{task}" for task in PUBLISHED} | rows


@pytest.mark.parametrize("name", PAPER)
def test_it_can_be_trained_with(name: str) -> None:
    for arguments in ((), ("--method", "grpo")):
        config = made("--preset", name, *arguments)
        check_values(config)
        check_algorithm(config)
        missing = config.env_id == "corrgrpo/AgentDojo-v0" and importlib.util.find_spec("agentdojo") is None
        if config.env_id in gym.registry and not missing:
            check_environment(config)
    assert (config.method, config.method_args) == ("grpo", {})


@pytest.mark.parametrize("task", PUBLISHED)
def test_it_holds_the_published_numbers(task: str) -> None:
    config = made("--preset", f"paper/{task}")
    numbers = (config.groups_per_step, config.group_size, config.updates_per_rollout, config.steps)
    assert (*numbers, config.max_prompt_tokens, config.max_new_tokens, config.kl_coefficient) == PUBLISHED[task]
    assert (config.learning_rate, config.temperature, config.weight_decay, config.max_grad_norm) == (1e-6, 1, 0.01, 1)
    assert (config.method, config.method_args, config.aggregation) == ("corrgrpo", {"paper_exact": True}, "sequence")
    assert (config.objective, config.clip_low, config.clip_high) == ("grpo", 0.2, 0.2)


def test_code_weights_are_those_of_equation_3() -> None:
    weights = {"format": 0.05, "syntax": 0.05, "compile": 0.05, "runtime": 0.25}
    weights |= {"correctness": 0.60, "ast_similarity": 0.30, "efficiency": 0.20}
    assert made("--preset", "paper/LeetCode-v0").reward_weights == weights
    nested = made("--preset", "paper/LeetCode-v0/run_pass").reward_weights
    assert nested == {**dict.fromkeys(weights, 0.0), "runtime": 1.0, "correctness": 1.0}


@pytest.mark.parametrize("row", ["dapo", "cispo", "gdpo"])
def test_rows_of_table_8_differ_from_the_task_by_their_mode(row: str) -> None:
    task, config = made("--preset", "paper/LeetCode-v0"), made("--preset", f"paper/LeetCode-v0/{row}")
    assert config.mode == row
    for name in ("model", "steps", "groups_per_step", "group_size", "updates_per_rollout", "learning_rate"):
        assert getattr(config, name) == getattr(task, name), name
    # DAPO: dynamic sampling by the accuracy reward, as the paper says.
    assert config.dynamic_sampling == ("correctness" if row == "dapo" else None)


def test_a_mode_on_the_command_line_replaces_the_presets() -> None:
    config = made("--preset", "paper/LeetCode-v0", "--mode", "dapo", "--method", "corrgrpo")
    assert (config.objective, config.clip_high, config.aggregation) == ("dapo", 0.28, "token")
    assert (config.method, config.kl_coefficient, config.group_size) == ("corrgrpo", 0.0, 8)


@pytest.mark.parametrize("name", PAPER)
def test_models_are_named(name: str) -> None:
    assert str(read_settings(presets.read(name), name)["model"]).startswith("Qwen/")
