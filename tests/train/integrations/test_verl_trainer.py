"""verl's own training loop with our trainer, agent loop and data set, in Ray, on a CPU.

What needs a GPU stands still: the server's answers are random letters, the policy's log-probabilities are the server's,
and an update only records the batch that it was given.
"""

import logging
import math
from types import SimpleNamespace

import pytest

pytest.importorskip("verl", reason="verl is not installed: make test-verl")

import ray
import torch
import transfer_queue
import verl_stub
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, get_trainer_cls
from verl_stub import Letters, StubServer

from corrgrpo_train.advantages import estimate
from corrgrpo_train.config import Config
from corrgrpo_train.integrations.verl import registration  # noqa: F401  (registers)
from corrgrpo_train.integrations.verl.compose import composed
from corrgrpo_train.integrations.verl.settings import verl_settings
from corrgrpo_train.integrations.verl.trainer import ComponentTrainer
from corrgrpo_train.models.tiny import build_tiny

pytestmark = [pytest.mark.verl, pytest.mark.slow]

FIELDS = ["uid", "advantages", "response_mask", "rm_scores", "extra_fields", "input_ids", "prompts", "responses"]


class WithoutModel(ComponentTrainer):
    """The trainer, but for what runs on GPUs."""

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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trainer after two steps and its validations."""
    folder = tmp_path_factory.mktemp("verl")
    model, tokenizer = build_tiny(0, hidden_size=64, layers=1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = Config(
        env="CorrelatedBandit-v0",
        reward_weights={"reward_2": 0.5},
        model=str(folder),
        method="corr_gdpo",  # its statistics are the whole batch's: rows that fill it up would be seen in them
        groups_per_step=3,
        group_size=4,
        steps=2,
        max_prompt_tokens=400,
        max_new_tokens=8,
        validation_tasks=4,
        validation_every=2,
        checkpoint_every=0,
        tensorboard=False,
        output=str(folder / "run"),
    )
    overrides = [
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "trainer.save_freq=-1",
        # 12 rows, and verl trains on multiples of 4 * 4: it fills up with copies.
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    ]
    whole = composed(verl_settings(config), overrides)
    variables = OmegaConf.to_container(whole.ray_kwargs.ray_init.runtime_env.env_vars)
    assert get_trainer_cls(whole.trainer.v1.trainer_mode) is ComponentTrainer
    ray.cloudpickle.register_pickle_by_value(verl_stub)
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": variables},
        logging_level=logging.ERROR,
    )
    try:
        whole.transfer_queue.enable = True
        OmegaConf.resolve(whole)
        transfer_queue.init(whole.transfer_queue)
        trainer = WithoutModel(whole)
        trainer.init()
        manager = AgentLoopManagerTQ.create(
            config=whole,
            llm_client=StubServer(Letters(tokenizer, longest=1), version=0),
            teacher_client=None,
            reward_loop_worker_handles=[],
        )
        logged = []
        trainer_log = lambda self, data, step: logged.append((step, dict(data)))  # noqa: E731
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("verl.utils.tracking.Tracking.log", trainer_log)
            trainer.fit(manager)
        yield trainer, logged, tokenizer
    finally:
        transfer_queue.close()
        ray.shutdown()


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
        assert steps[step]["estimator/rows_left_out"] == 4
        assert math.isfinite(steps[step]["critic/score/mean"])
        assert "estimator/correlation/reward_1/reward_2" in steps[step]
    assert trainer.trainer_mode == "sync"


def test_a_kl_penalty_in_the_reward_is_refused():
    config = OmegaConf.create({"algorithm": {"adv_estimator": "corrgrpo", "use_kl_in_reward": True}})
    with pytest.raises(ValueError, match="use_kl_in_reward changes a reward that estimators of components do not read"):
        ComponentTrainer(config)
