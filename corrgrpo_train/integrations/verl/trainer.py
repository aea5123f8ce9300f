"""`ComponentTrainer`: verl's synchronous trainer, whose estimators get the reward components."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
import transfer_queue
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from corrgrpo_train.advantages import ESTIMATORS
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl.components import COMPONENTS, WEIGHTS, BatchComponents
from corrgrpo_train.integrations.verl.dataset import TaskDataset
from corrgrpo_train.integrations.verl.estimators import register_estimators, registered
from corrgrpo_train.integrations.verl.names import AGENT_LOOP, TRAINER
from corrgrpo_train.integrations.verl.scored_groups import ScoredGroups
from corrgrpo_train.measures import flat_diagnostics

logger = logging.getLogger(__name__)


class ComponentTrainer(PPOTrainerSync):  # type: ignore[misc]  # verl has no types
    """`trainer.v1.trainer_mode=corrgrpo`.

    What differs from verl's is the step from rewards to advantages, where the components, which verl keeps with every
    sequence, are fetched and held ready for the estimator; which groups dynamic sampling replaces; and that a step none
    of whose episodes was scored changes nothing, where verl ends the run.

    Attributes:
        nothing_scored: whether that is so of the step.
    """

    nothing_scored = False

    def __init__(self, config: DictConfig) -> None:
        """Check that the settings mean what they seem to.

        Raises:
            UsageError: if a part of the reward would not reach the estimator.
        """
        register_estimators()  # those too that another module has added since
        if config.algorithm.adv_estimator in registered() and config.algorithm.use_kl_in_reward:
            raise UsageError(
                "algorithm.use_kl_in_reward changes a reward that estimators of components do not read: set it to "
                "False and use actor_rollout_ref.actor.use_kl_loss"
            )
        # verl asks for this name wherever it has to know whether rollouts are synchronous; ours are.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def _build_replay_buffer(self) -> ReplayBuffer:
        """verl's, but dynamic sampling looks at scored episodes alone; a sampler of the user's own stays."""
        buffer = super()._build_replay_buffer()
        ours = self.config.actor_rollout_ref.rollout.agent.default_agent_loop == AGENT_LOOP
        return ScoredGroups.like(buffer) if ours and type(buffer) is ReplayBuffer else buffer

    def _init_dataloader(self) -> None:
        """Read the data, and tell either set of tasks what it is for.

        Raises:
            UsageError: if the training set has fewer tasks than a step.
        """
        super()._init_dataloader()
        for data, validation in ((self.train_dataset, False), (self.val_dataset, True)):
            if isinstance(data, TaskDataset):
                data.validation = validation
        if isinstance(self.train_dataset, TaskDataset):
            self.train_dataset.check_batch(int(self.config.data.train_batch_size))

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Fetch the components of the batch's sequences and let verl call the estimator."""
        place = {"keys": batch.keys, "partition_id": batch.partition_id}
        masks = transfer_queue.kv_batch_get(**place, select_fields=["response_mask"])["response_mask"]
        self.nothing_scored = not masks.values().any()
        if self.nothing_scored:
            logger.warning("no episode of the step was scored: the policy is not updated")
            metrics["estimator/rows_left_out"] = float(sum(not tag.get("is_padding", False) for tag in batch.tags))
            zeros = masks.to(torch.float32)  # all of them are
            fields = TensorDict({"advantages": zeros, "returns": zeros.clone()}, batch_size=len(batch))
            return transfer_queue.kv_batch_put(**place, fields=fields)
        name = registered().get(self.config.algorithm.adv_estimator)
        if name is None:
            return super()._compute_advantage(batch, metrics=metrics)
        fetched = transfer_queue.kv_batch_get(**place, select_fields=["extra_fields"])
        # Rows come as they are or wrapped, as the versions of tensordict have it.
        rows = [getattr(fields, "data", fields) for fields in fetched["extra_fields"]]
        components = batch_components(rows, batch.tags, self._options(name))
        with components.carried():
            done = super()._compute_advantage(batch, metrics=metrics)
        metrics.update(flat_diagnostics(components.diagnostics, components.names))
        return done

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Update the policy, unless there is nothing to learn from: means over no token at all are nan."""
        return batch if self.nothing_scored else super()._update_actor(batch, metrics)

    def _options(self, name: str) -> dict[str, Any]:
        settings = OmegaConf.to_container(self.config.corrgrpo, resolve=True)
        assert isinstance(settings, dict)
        options = dict(settings["method_args"])
        if "seed" in ESTIMATORS[name].options:
            options.setdefault("seed", (int(settings["seed"]) * 1_000_003 + int(self.global_steps)) % 2**31)
        return options


def batch_components(
    extra_fields: list[Mapping[str, Any]], tags: list[Mapping[str, Any]], options: Mapping[str, Any]
) -> BatchComponents:
    """The components of a batch's rows.

    Rows with which verl fills a batch up are copies of a real one, extra fields included: they must not enter the
    statistics of a batch, the count of those that were not scored included.

    Raises:
        ValueError: if a row has no components: it is not from our agent loop.
    """
    components, weights = [], []
    for fields, tag in zip(extra_fields, tags, strict=True):
        padding = bool(tag.get("is_padding", False))
        if not padding and COMPONENTS not in fields:
            raise ValueError("a sequence has no reward components: set the agent loop to 'corrgrpo' for all data")
        components.append(None if padding else fields[COMPONENTS])
        weights.append(None if padding else fields[WEIGHTS])
    return BatchComponents.of_rows(components, weights, options)


register_trainer(TRAINER)(ComponentTrainer)
