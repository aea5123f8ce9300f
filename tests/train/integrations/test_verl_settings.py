"""From our settings to verl's: what needs no verl, then what its own configuration makes of it."""

import importlib.util

import pytest
import yaml

from corrgrpo_train import presets
from corrgrpo_train.config import Config
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl.launch import main
from corrgrpo_train.integrations.verl.settings import verl_settings

with_verl = [
    pytest.mark.verl,
    pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl is not installed: make test-verl"),
]
MODEL = "Qwen/Qwen2.5-7B-Instruct"
TASKS = ("RLLA-v0", "LeetCode-v0", "AgentDojo-v0")
PAPER = [name for name in presets.names() if name.startswith("paper/")]

# Section 3 of the published description: prompts per step, rollouts, mini-batch in prompts, steps, prompt tokens,
# answer tokens, tokens per GPU, memory share; KL coefficient (the tool task has none).
PUBLISHED = {
    "RLLA-v0": (128, 4, 32, 450, 2048, 2048, 24576, 0.8, 0.0),
    "LeetCode-v0": (64, 8, 32, 615, 4096, 2048, 24576, 0.72, 1e-3),
    "AgentDojo-v0": (16, 4, 16, 693, 12288, 16384, 32768, 0.75, 1e-3),
}


def printed(capsys, *arguments):
    assert main([*arguments[: arguments.index("--")], "--print-config", *arguments[arguments.index("--") :]]) == 0
    return yaml.safe_load(capsys.readouterr().out)


@pytest.mark.parametrize("changed", [{"mode": "cispo"}, {"objective": "cispo", "cispo_max_ratio": 5.0}])
def test_cispo_has_an_upper_bound_only(changed):
    actor = verl_settings(Config(env="RLLA-v0", model=MODEL, **changed))["actor_rollout_ref"]["actor"]
    # verl clamps ratios to [1 - low, 1 + high].
    assert (1 - actor["clip_ratio_low"], 1 + actor["clip_ratio_high"]) == (0.0, 5.0)
    assert actor["policy_loss"] == {"loss_mode": "cispo"}


def test_dapo_filters_by_a_component_and_bounds_answers():
    config = Config(env="LeetCode-v0", model=MODEL, mode="dapo", dynamic_sampling="correctness")
    settings = verl_settings(config)
    assert settings["algorithm"]["filter_groups"] == {"enable": True, "metric": "components/correctness"}
    assert settings["algorithm"]["adv_estimator"] == "component_grpo"
    assert settings["corrgrpo"]["overlong_share"] == 0.2
    actor = settings["actor_rollout_ref"]["actor"]
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"], actor["loss_agg_mode"]) == (0.2, 0.28, "token-mean")


def test_dr_grpo_divides_by_a_constant():
    settings = verl_settings(Config(env="RLLA-v0", model=MODEL, mode="dr_grpo", max_new_tokens=300))
    actor = settings["actor_rollout_ref"]["actor"]
    assert (actor["loss_agg_mode"], actor["loss_scale_factor"]) == ("seq-mean-token-sum-norm", 300)
    assert settings["algorithm"]["adv_estimator"] == "dr_grpo"


def test_an_estimator_of_ones_own_is_imported_before_ours_are_registered():
    settings = verl_settings(Config(env="RLLA-v0", model=MODEL, method="my.module:mine"))
    variables = settings["ray_kwargs"]["ray_init"]["runtime_env"]["env_vars"]
    assert variables["VERL_USE_EXTERNAL_MODULES"] == "my.module,corrgrpo_train.integrations.verl.registration"
    assert settings["algorithm"]["adv_estimator"] == "mine"


def test_the_budget_holds_the_longest_sequence():
    # verl refuses a sequence above it, in the first pass after a rollout; its own rows that fill up have 128 tokens.
    def budget(**changed):
        settings = verl_settings(Config(env="RLLA-v0", model=MODEL, **changed))
        return settings["actor_rollout_ref"]["actor"]["ppo_max_token_len_per_gpu"]

    assert budget(token_budget=4096, max_prompt_tokens=2000, max_episode_tokens=12000) == 12000
    assert budget(token_budget=50000, max_prompt_tokens=2000, max_episode_tokens=12000) == 50000
    assert budget(token_budget=10, max_prompt_tokens=700, max_new_tokens=300) == 1000
    assert budget(token_budget=10, max_prompt_tokens=20, max_new_tokens=5) == 128


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"weighting": "linear"}, "weighting has no effect under verl"),
        ({"warm_start": 8}, "warm_start has no effect under verl"),
        ({"importance_correction": "truncate"}, "algorithm.rollout_correction.rollout_is"),
        ({"model": "default"}, "model 'default' is not one that verl can load"),
        ({"groups_per_step": 6, "updates_per_rollout": 4}, "multiple of updates_per_rollout"),
        ({"steps": 0}, "steps must be at least 1"),
    ],
)
def test_what_verl_has_no_counterpart_of_is_refused(changed, told):
    with pytest.raises(UsageError, match=told):
        verl_settings(Config(**{"env": "RLLA-v0", "model": MODEL, **changed}))


def test_an_environment_of_another_package_has_no_file_of_its_own():
    config = Config(env="package:space/Other-v0", model=MODEL)
    assert verl_settings(config)["corrgrpo"]["env"] == "package:space/Other-v0"


def test_help_and_wrong_flags(capsys):
    assert main(["--help"]) == 0
    assert "usage: python -m corrgrpo_train.integrations.verl" in capsys.readouterr().out
    assert main(["--preset", "paper/RLA-v0"]) == 2
    assert "Did you mean 'paper/RLLA-v0'?" in capsys.readouterr().err
    nested = '{"a": ' * 5000 + "1" + "}" * 5000
    for flags in (["--steps", "many"], ["--env-args", nested]):
        assert main(["--env", "RLLA-v0", *flags]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed")
def test_without_verl_the_command_to_install_it_is_told(capsys):
    assert main(["--preset", "paper/RLLA-v0", "--print-config"]) == 2
    assert "pip install -e '.[verl]'" in capsys.readouterr().err


class TestWithVerl:
    pytestmark = with_verl

    @pytest.mark.parametrize("task", TASKS)
    def test_the_published_numbers_reach_verl(self, capsys, task):
        whole = printed(capsys, "--preset", f"paper/{task}", "--")
        actor, rollout = whole["actor_rollout_ref"]["actor"], whole["actor_rollout_ref"]["rollout"]
        assert (
            whole["data"]["train_batch_size"],
            rollout["n"],
            actor["ppo_mini_batch_size"],
            whole["trainer"]["total_training_steps"],
            rollout["prompt_length"],
            rollout["response_length"],
            actor["ppo_max_token_len_per_gpu"],
            rollout["gpu_memory_utilization"],
            actor["kl_loss_coef"] if actor["use_kl_loss"] else 0.0,
        ) == PUBLISHED[task]
        assert actor["optim"]["lr"] == 1e-6
        assert actor["grad_clip"] == actor["optim"]["clip_grad"] == 1.0
        # The paper's Eq. 27: over an answer's tokens, then over answers.
        assert actor["loss_agg_mode"] == "seq-mean-token-mean"
        assert (rollout["temperature"], rollout["top_p"], rollout["top_k"]) == (1.0, 1, -1)
        assert (rollout["val_kwargs"]["temperature"], rollout["val_kwargs"]["n"]) == (0, 1)
        assert rollout["tensor_model_parallel_size"] == 1
        assert whole["algorithm"]["adv_estimator"] == "corrgrpo"
        assert whole["corrgrpo"]["method_args"] == {"paper_exact": True}
        assert (whole["trainer"]["save_freq"], whole["trainer"]["test_freq"]) == (100, 10)
        assert whole["trainer"]["max_actor_ckpt_to_keep"] == 2
        assert whole["trainer"]["v1"]["trainer_mode"] == "corrgrpo"
        assert rollout["agent"]["default_agent_loop"] == "corrgrpo"
        assert whole["data"]["corrgrpo"] == whole["corrgrpo"]

    def test_the_paper_s_weights_are_the_environment_s(self, capsys):
        whole = printed(capsys, "--preset", "paper/LeetCode-v0", "--")
        weights = {"format": 0.05, "syntax": 0.05, "compile": 0.05, "runtime": 0.25}
        weights |= {"correctness": 0.60, "ast_similarity": 0.30, "efficiency": 0.20}
        assert whole["corrgrpo"]["reward_weights"] == weights

    @pytest.mark.parametrize("name", PAPER)
    def test_verl_s_own_checks_pass(self, name):
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import omega_conf_to_dataclass, validate_config

        from corrgrpo_train.cli import parse
        from corrgrpo_train.integrations.verl.compose import composed
        from corrgrpo_train.integrations.verl.launch import gather

        config = gather(parse(["--preset", name]))
        whole = composed(verl_settings(config), ["trainer.n_gpus_per_node=4"])
        assert need_critic(whole) is False
        assert need_reference_policy(whole) == (config.kl_coefficient > 0)
        validate_config(whole, use_reference_policy=need_reference_policy(whole), use_critic=False)
        rollout = omega_conf_to_dataclass(whole.actor_rollout_ref.rollout)
        assert rollout.n == config.group_size
        assert omega_conf_to_dataclass(whole.algorithm).adv_estimator == whole.algorithm.adv_estimator

    @pytest.mark.parametrize(
        "changed",
        [
            {},
            {"clip_low": 0.1, "clip_high": 0.4, "aggregation": "token"},
            {"objective": "dapo", "aggregation": "token"},
            {"mode": "cispo", "cispo_max_ratio": 1.5},
            {"mode": "dr_grpo", "max_new_tokens": 50},
        ],
        ids=str,
    )
    def test_verl_s_loss_is_ours(self, changed):
        import torch
        from verl.trainer.ppo.core_algos import get_policy_loss_fn, kl_penalty
        from verl.utils.config import omega_conf_to_dataclass

        from corrgrpo_train.integrations.verl.compose import composed
        from corrgrpo_train.objectives import AGGREGATIONS, OBJECTIVES, kl_k3, options_of

        config = Config(env="RLLA-v0", model=MODEL, **changed)
        actor = omega_conf_to_dataclass(composed(verl_settings(config)).actor_rollout_ref.actor)
        generator = torch.Generator().manual_seed(0)
        lengths = torch.tensor([5, 2, 7, 1])
        mask = (torch.arange(7) < lengths[:, None]).long()
        old = -torch.rand(4, 7, generator=generator)
        # Ratios from .4 to 2.4: both bounds are met, verl's third bound of 3 is not.
        now = (old + torch.rand(4, 7, generator=generator) * 1.8 - 0.9).requires_grad_()
        advantages = torch.tensor([1.0, -0.5, 0.3, -2.0])[:, None] * mask
        actor.global_batch_info.update(
            dp_size=1,
            batch_num_tokens=int(mask.sum()),
            global_batch_size=4,
            loss_scale_factor=actor.loss_scale_factor,
        )
        loss_of = get_policy_loss_fn(actor.policy_loss.loss_mode)
        theirs, _ = loss_of(old, now, advantages, mask, actor.loss_agg_mode, actor)
        (their_gradient,) = torch.autograd.grad(theirs, now)

        options = {name: getattr(config, name) or default for name, default in options_of(config.objective).items()}
        surrogate = OBJECTIVES[config.objective](now, old, advantages, **options)
        weights = AGGREGATIONS[config.aggregation](lengths, config.aggregation_length)
        ours = (surrogate.losses * mask * weights[:, None]).sum()
        (our_gradient,) = torch.autograd.grad(ours, now)
        torch.testing.assert_close(theirs.double(), ours.double(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(their_gradient, our_gradient.float(), atol=1e-6, rtol=1e-5)
        divergence = kl_penalty(now, old, actor.kl_loss_type)
        torch.testing.assert_close(divergence, kl_k3(now, old), atol=1e-6, rtol=1e-5)

    def test_verl_takes_the_longest_sequence_in_a_micro_batch(self):
        import torch
        from tensordict import TensorDict
        from verl.trainer.ppo.padding_utils import SYNTHETIC_PADDING_SEQ_LEN
        from verl.utils.seqlen_balancing import rearrange_micro_batches

        changes = [{"max_prompt_tokens": 2000, "max_episode_tokens": 12000}]
        changes += [{"token_budget": 10, "max_prompt_tokens": 20, "max_new_tokens": 5}]
        for changed in changes:
            config = Config(env="RLLA-v0", model=MODEL, **changed)
            budget = verl_settings(config)["actor_rollout_ref"]["actor"]["ppo_max_token_len_per_gpu"]
            longest = config.max_episode_tokens or config.max_prompt_tokens + config.max_new_tokens
            lengths = [longest, 7, SYNTHETIC_PADDING_SEQ_LEN]
            ids = torch.nested.as_nested_tensor(
                [torch.ones(n, dtype=torch.int64) for n in lengths], layout=torch.jagged
            )
            parts, _ = rearrange_micro_batches(TensorDict({"input_ids": ids}, batch_size=3), max_token_len=budget)
            assert sum(len(part) for part in parts) == 3

    @pytest.mark.parametrize(
        ("flags", "told"),
        [
            (["--env", "RLLA-v0", "--method", "nonsense"], "method 'nonsense' is unknown"),
            (["--env", "RLLA-v0", "--method", "no.such.module:mine"], "No module named 'no'"),
            (["--env", "RLLA-v0", "--method-args.colour", "red"], "method_args: "),
            (["--env", "RLA-v0"], "Did you mean 'RLLA-v0'?"),
            (["--env", "RLLA-v0", "--env-args.colour", "red"], "colour"),
            (["--env", "RLLA-v0", "--dynamic-sampling", "tests"], "dynamic_sampling 'tests' is unknown"),
        ],
    )
    def test_a_wrong_name_is_told_before_anything_is_printed(self, capsys, flags, told):
        assert main([*flags, "--model", MODEL, "--print-config"]) == 2
        out, error = capsys.readouterr()
        assert out == ""
        assert told in error
        assert error.count("\n") == 1

    def test_what_stands_after_the_dashes_wins(self, capsys):
        whole = printed(capsys, "--preset", "paper/RLLA-v0", "--steps", "7", "--", "actor_rollout_ref.rollout.n=6")
        assert whole["actor_rollout_ref"]["rollout"]["n"] == whole["actor_rollout_ref"]["actor"]["rollout_n"] == 6
        assert whole["trainer"]["total_training_steps"] == whole["corrgrpo"]["steps"] == 7

    @pytest.mark.parametrize(
        ("override", "told"), [("trainer.n_gpu=3", "Could not override 'trainer.n_gpu'"), ("nonsense", "nonsense")]
    )
    def test_a_wrong_override_is_one_line(self, capsys, override, told):
        assert main(["--preset", "paper/RLLA-v0", "--print-config", "--", override]) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1

    def test_a_setting_that_this_verl_lacks_is_named(self):
        from corrgrpo_train.integrations.verl.compose import composed

        with pytest.raises(UsageError, match=r"no setting 'trainer\.colour'"):
            composed({"trainer": {"colour": "red"}})

    def test_nothing_saved_is_written_over(self, capsys, tmp_path):
        (tmp_path / "checkpoints" / "global_step_100").mkdir(parents=True)
        assert main(["--preset", "paper/RLLA-v0", "--output", str(tmp_path)]) == 2
        assert "already holds a run: continue it with --resume" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("flags", "overrides", "latest", "refused"),
        [
            ([], [], None, False),
            ([], ["trainer.default_local_dir={old}"], None, True),
            (["--resume"], ["trainer.default_local_dir={old}"], "100", False),
            # What verl finds nothing in it begins anew.
            (["--resume"], ["trainer.default_local_dir={old}"], None, True),
            (["--resume"], ["trainer.default_local_dir={old}"], "200", True),
            ([], ["trainer.default_local_dir={old}", "trainer.resume_mode=auto"], "100", False),
            (["--resume"], ["trainer.default_local_dir={old}", "trainer.resume_mode=disable"], "100", True),
            (
                [],
                [
                    "trainer.default_local_dir={old}",
                    "trainer.resume_mode=resume_path",
                    "trainer.resume_from_path={old}/global_step_100",
                ],
                None,
                False,
            ),
            (
                [],
                [
                    "trainer.default_local_dir={old}",
                    "trainer.resume_mode=resume_path",
                    "trainer.resume_from_path={old}/../other/global_step_100",
                ],
                None,
                True,
            ),
        ],
    )
    def test_nothing_saved_is_written_over_where_verl_would_write(
        self, capsys, tmp_path, monkeypatch, flags, overrides, latest, refused
    ):
        monkeypatch.setattr("corrgrpo_train.integrations.verl.launch.launch", lambda whole: None)
        monkeypatch.setenv("RAY_ADDRESS", "elsewhere")
        old = tmp_path / "old"
        (old / "global_step_100").mkdir(parents=True)
        if latest is not None:
            (old / "latest_checkpointed_iteration.txt").write_text(latest)
        new = ["--preset", "paper/RLLA-v0", "--output", str(tmp_path / "new"), *flags]
        assert main([*new, "--", *[override.format(old=old) for override in overrides]]) == (2 if refused else 0)
        assert (str(old) in capsys.readouterr().err) == refused

    @pytest.mark.parametrize("nested", [False, True])
    def test_an_error_in_another_process_is_one_line(self, capsys, tmp_path, monkeypatch, nested):
        from ray.exceptions import RayTaskError

        def failing(whole, task_runner_class):
            error = UsageError("split 'train' has 3 tasks")
            for _ in range(1 + nested):
                error = RayTaskError("run", "Traceback\n...", error).as_instanceof_cause()
            raise error

        monkeypatch.setattr("verl.trainer.main_ppo.run_ppo", failing)
        monkeypatch.setenv("RAY_ADDRESS", "elsewhere")
        assert main(["--preset", "paper/RLLA-v0", "--output", str(tmp_path)]) == 2
        assert capsys.readouterr().err == "corrgrpo_train.integrations.verl: error: split 'train' has 3 tasks\n"

    def test_a_machine_without_a_gpu_is_told(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        assert main(["--preset", "paper/RLLA-v0", "--output", str(tmp_path)]) == 2
        assert "there is no GPU here" in capsys.readouterr().err
