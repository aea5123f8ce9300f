"""verl's own training loop with our trainer, agent loop and data set, in Ray, on a CPU.

What needs a GPU stands still: the server's answers are random letters, the policy's log-probabilities are the server's,
and an update only records the batch that it was given.
"""

import logging
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl", reason="verl is not installed: make test-verl")

import ray
import torch
import transfer_queue
import verl_stub
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, get_trainer_cls
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl_stub import InTurn, Letters, StubServer

import corrgrpo_train
from corrgrpo_train.advantages import ESTIMATORS, estimate
from corrgrpo_train.config import Config
from corrgrpo_train.config_checks import check_algorithm
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl import registration  # noqa: F401  (registers)
from corrgrpo_train.integrations.verl.compose import composed
from corrgrpo_train.integrations.verl.settings import verl_settings
from corrgrpo_train.integrations.verl.trainer import ComponentTrainer
from corrgrpo_train.models.tiny import build_tiny

pytestmark = [pytest.mark.verl, pytest.mark.slow]

FIELDS = ["uid", "advantages", "response_mask", "rm_scores", "extra_fields", "input_ids", "prompts", "responses"]


class WithoutModel(PPOTrainerSync):
    """verl's trainer, but for what runs on GPUs."""

    def _setup(self):
        self._init_tokenizer()
        self._init_dataloader()
        self._init_dump_executor()
        self.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        self.checkpoint_manager = SimpleNamespace(update_weights=lambda *_: None, sleep_replicas=lambda: None)
        self.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0]})
        self.global_steps, self.batches, self.told = 0, [], []

    def _compute_old_log_prob(self, batch, metrics):
        got = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["rollout_log_probs"]
        )
        fields = TensorDict({"old_log_probs": got["rollout_log_probs"]}, batch_size=len(batch))
        return transfer_queue.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _update_actor(self, batch, metrics):
        data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
        rows = [
            {name: getattr(values[i], "data", values[i]) for name, values in data.items()}
            for i in range(len(batch.keys))
        ]
        self.batches.append((rows, [dict(tag) for tag in batch.tags]))
        self.told.append(dict(metrics))
        return batch

    def _reissue_inflight_prompts(self, partition_id="train"):
        return 0


class Recorded(ComponentTrainer, WithoutModel):
    """Ours in its place."""


# A module of a user's, in the folder that the launcher is started in: an estimator, and an environment of the least
# kind, with neither splits nor a list of components, whose members of a group are told apart by their letters.
OWN_MODULE = """
import gymnasium as gym
from types import SimpleNamespace

from corrgrpo_train.advantages import register


@register("opo")
def thrice(batch):
    return 3 * batch.centred_total


class LettersEnv(gym.Env):
    observation_space, action_space = gym.spaces.Dict(), gym.spaces.Text(9)

    def __init__(self, kinds=("same", "failing", "dead", "differing")):
        self.tasks = [SimpleNamespace(id=f"{kind}-{i}") for kind in kinds for i in range(4)]

    def reset(self, *, seed=None, options=None):
        self.kind, _, self.number = options["task_id"].partition("-") if options else ("same", "-", "0")
        return {"messages": ({"role": "user", "content": f"{self.kind} {self.number}"},)}, {}

    def step(self, action):
        if self.kind == "dead" or (self.kind in ("failing", "differing") and action[0] == "D"):
            raise ConnectionError("no simulator")
        hit = float(action[0] == "A" or self.kind != "differing")
        info = {"reward_components": {"hit": hit}, "reward_weights": {"hit": 2.0}}
        return {"messages": ()}, 2 * hit, True, False, info


gym.register("own/Letters-v0", LettersEnv)
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Ray as the launcher starts it in a folder with a module of the user's; the folder and a tokenizer."""
    folder = tmp_path_factory.mktemp("verl")
    model, tokenizer = build_tiny(0, hidden_size=64, layers=1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "own_module.py").write_text(OWN_MODULE)
    settings = verl_settings(Config(env="own_module:own/Letters-v0", model=str(folder), method="own_module:opo"))
    variables = settings["ray_kwargs"]["ray_init"]["runtime_env"]["env_vars"]
    ray.cloudpickle.register_pickle_by_value(verl_stub)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        ray.init(
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            # The package of this working tree, whatever is installed.
            runtime_env={"env_vars": {**variables, "PYTHONPATH": str(Path(corrgrpo_train.__file__).parents[1])}},
            logging_level=logging.ERROR,
        )
        try:
            yield folder, tokenizer
        finally:
            ray.shutdown()
            for names, name in (
                (ESTIMATORS, "opo"),
                (ADV_ESTIMATOR_REGISTRY, "component_opo"),
                (sys.modules, "own_module"),
            ):
                names.pop(name, None)


def train(session, answers, *overrides, **changed):
    """Train with verl's loop; the trainer and what it logged, by step."""
    folder, _ = session
    changed = {"model": str(folder), "steps": 2, "group_size": 4, "max_new_tokens": 8, "tensorboard": False, **changed}
    config = Config(max_prompt_tokens=400, checkpoint_every=0, output=str(folder / "run"), **changed)
    check_algorithm(config)  # as the launcher does; it imports a module of the user's
    overrides = [
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "trainer.save_freq=-1",
        *overrides,
    ]
    whole = composed(verl_settings(config), overrides)
    assert get_trainer_cls(whole.trainer.v1.trainer_mode) is ComponentTrainer
    whole.transfer_queue.enable = True
    OmegaConf.resolve(whole)
    transfer_queue.init(whole.transfer_queue)
    try:
        trainer = Recorded(whole)
        trainer.replay_buffer.poll_interval = 0.1
        trainer.init()
        manager = AgentLoopManagerTQ.create(
            config=whole,
            llm_client=StubServer(answers, version=0),
            teacher_client=None,
            reward_loop_worker_handles=[],
        )
        logged = []
        trainer_log = lambda self, data, step: logged.append((step, dict(data)))  # noqa: E731
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("verl.utils.tracking.Tracking.log", trainer_log)
            trainer.fit(manager)
        for worker in manager.agent_loop_workers:
            ray.kill(worker)
        return trainer, logged
    finally:
        transfer_queue.close()


@pytest.fixture(scope="module")
def trained(session):
    """A trainer after two steps and its validations."""
    _, tokenizer = session
    trainer, logged = train(
        session,
        Letters(tokenizer, longest=1),
        # 12 rows, and verl trains on multiples of 4 * 4: it fills up with copies.
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        env="CorrelatedBandit-v0",
        reward_weights={"reward_2": 0.5},
        method="corr_gdpo",  # its statistics are the whole batch's: rows that fill it up would be seen in them
        groups_per_step=3,
        validation_tasks=4,
        validation_every=2,
    )
    return trainer, logged, tokenizer


@pytest.fixture(scope="module")
def filtered(session):
    """A trainer after two steps with dynamic sampling on an environment that fails at times, and no validation."""
    _, tokenizer = session
    trainer, logged = train(
        session,
        InTurn(tokenizer, "ABCD"),
        env="own_module:own/Letters-v0",
        method="own_module:opo",
        groups_per_step=2,
        validation_tasks=0,
        dynamic_sampling="hit",
    )
    return trainer, dict(logged)


def test_two_steps_of_verl_s_loop_with_our_advantages(trained):
    trainer, *_ = trained
    assert len(trainer.batches) == 2
    for rows, tags in trainer.batches:
        real = [not tag.get("is_padding", False) for tag in tags]
        assert (sum(real), len(real)) == (12, 16)
        labels = [row["uid"] for row in rows]
        assert sorted(labels.count(label) for label in {labels[i] for i in range(16) if real[i]}) == [4, 4, 4]
        named = [row["extra_fields"]["reward_components"] for row in rows]
        values = [list(named[i].values()) if real[i] else [math.nan] * 3 for i in range(16)]
        groups = [sorted(set(labels)).index(label) for label in labels]
        wanted = estimate("corr_gdpo", values, groups, [1.0, 0.5, 1.0]).advantages
        assert wanted.abs().max() > 0
        for i, row in enumerate(rows):
            mask = row["response_mask"]
            torch.testing.assert_close(row["advantages"], wanted[i] * mask, atol=1e-6, rtol=0)
            assert bool(mask.any()) == real[i]
            if real[i]:
                total = sum(w * v for w, v in zip((1.0, 0.5, 1.0), named[i].values(), strict=True))
                assert float(row["rm_scores"].sum()) == pytest.approx(total)


def test_sequences_are_prompt_and_sampled_tokens(trained):
    trainer, _, tokenizer = trained
    (rows, tags), *_ = trainer.batches
    for row, tag in zip(rows, tags, strict=True):
        if tag.get("is_padding", False):
            continue
        assert row["input_ids"].tolist() == row["prompts"].tolist() + row["responses"].tolist()
        text = tokenizer.decode(row["responses"])
        assert text[0] in "ABCDEFG"
        assert text[1:] == "<|im_end|>"
        assert row["response_mask"].tolist() == [1, 1]
        assert tokenizer.decode(row["prompts"]).endswith("<|im_start|>assistant\n")


def test_diagnostics_and_validation_are_logged(trained):
    trainer, logged, _ = trained
    steps = dict(logged)
    assert sorted(steps) == [0, 1, 2]
    before = steps[0]
    for name in ("reward_1", "reward_2", "reward_3"):
        assert math.isfinite(before[f"val-aux/CorrelatedBandit-v0/components/{name}/mean@1"])
    assert "val-core/CorrelatedBandit-v0/reward/mean@1" in before
    for step in (1, 2):
        # The four rows that fill up are none that could not be scored.
        assert steps[step]["estimator/rows_left_out"] == 0
        assert math.isfinite(steps[step]["critic/score/mean"])
        assert "estimator/correlation/reward_1/reward_2" in steps[step]
    assert trainer.trainer_mode == "sync"


def test_dynamic_sampling_replaces_groups_whose_scored_episodes_do_not_differ(filtered, session):
    # One failing call must not end the run, nor pass for a reward of 0.
    (trainer, logged), (_, tokenizer) = filtered, session
    assert len(trainer.batches) == 2
    for rows, tags in trainer.batches:
        assert len(rows) == 8
        assert not any(tag.get("is_padding") for tag in tags)
        for row in rows:
            assert row["extra_fields"]["task_id"].startswith("differing-")
            components = row["extra_fields"]["reward_components"]
            letter = tokenizer.decode(row["responses"])[0]
            assert components == ({} if letter == "D" else {"hit": float(letter == "A")})
            # Centred totals 4/3 and -2/3 of the scored three, times three; nothing of the fourth is trained on.
            wanted = {"A": 4.0, "B": -2.0, "C": -2.0, "D": 0.0}[letter]
            assert row["advantages"].tolist() == pytest.approx([wanted] * len(row["advantages"]), abs=1e-5)
            assert row["response_mask"].tolist() == [int(letter != "D")] * len(row["response_mask"])
    for step in (1, 2):
        assert logged[step]["estimator/rows_left_out"] == 2
    assert sum(logged[step].get("training/filter_groups/evicted_samples", 0) for step in (1, 2)) > 0


def test_without_validation_nothing_is_validated(filtered):
    _, logged = filtered
    assert sorted(logged) == [1, 2]
    assert not any(name.startswith("val-") for values in logged.values() for name in values)


def test_a_step_without_a_scored_episode_changes_nothing(session):
    _, tokenizer = session
    trainer, logged = train(
        session,
        Letters(tokenizer),
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",  # and verl fills up
        env="own_module:own/Letters-v0",
        env_args={"kinds": ["dead"]},
        groups_per_step=1,
        validation_tasks=0,
    )
    assert trainer.batches == []
    assert sorted(dict(logged)) == [1, 2]
    assert all(values["critic/score/mean"] == 0 for _, values in logged)
    assert all(values["estimator/rows_left_out"] == 4 for _, values in logged)


def test_a_module_of_ones_own_is_imported_in_every_process(session):
    @ray.remote
    def named():
        import verl.trainer.ppo.core_algos as core

        ours = {name: getattr(call, "estimator", None) for name, call in core.ADV_ESTIMATOR_REGISTRY.items()}
        return ours, corrgrpo_train.__file__

    there, imported = ray.get(named.remote())
    assert imported == corrgrpo_train.__file__  # not an installed one: the other tests here would try that
    assert there["component_opo"] == "opo"
    assert there["opo"] is None  # verl's own


def test_a_kl_penalty_in_the_reward_is_refused():
    config = OmegaConf.create({"algorithm": {"adv_estimator": "corrgrpo", "use_kl_in_reward": True}})
    with pytest.raises(UsageError, match="use_kl_in_reward changes a reward that estimators of components do not read"):
        ComponentTrainer(config)
