"""`ComponentTrainer`: verl's synchronous trainer, whose estimators get the reward components."""

from collections.abc import Mapping
from typing import Any

import transfer_queue
from omegaconf import DictConfig, OmegaConf, open_dict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from corrgrpo_train.advantages import ESTIMATORS
from corrgrpo_train.integrations.verl.components import COMPONENTS, WEIGHTS, BatchComponents
from corrgrpo_train.integrations.verl.estimators import register_estimators, registered
from corrgrpo_train.integrations.verl.names import TRAINER
from corrgrpo_train.measures import flat_diagnostics


class ComponentTrainer(PPOTrainerSync):  # type: ignore[misc]  # verl has no types
    """`trainer.v1.trainer_mode=corrgrpo`.

    Only the step from rewards to advantages differs from verl's: the components, which verl keeps with every sequence,
    are fetched and held ready for the estimator.
    """

    def __init__(self, config: DictConfig) -> None:
        """Check that the settings mean what they seem to.

        Raises:
            ValueError: if a part of the reward would not reach the estimator.
        """
        register_estimators()  # those too that another module has added since
        if config.algorithm.adv_estimator in registered() and config.algorithm.use_kl_in_reward:
            raise ValueError(
                "algorithm.use_kl_in_reward changes a reward that estimators of components do not read: set it to "
                "False and use actor_rollout_ref.actor.use_kl_loss"
            )
        # verl asks for this name wherever it has to know whether rollouts are synchronous; ours are.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Fetch the components of the batch's sequences and let verl call the estimator."""
        name = registered().get(self.config.algorithm.adv_estimator)
        if name is None:
            return super()._compute_advantage(batch, metrics=metrics)
        fetched = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
        )
        # Rows come as they are or wrapped, as the versions of tensordict have it.
        rows = [getattr(fields, "data", fields) for fields in fetched["extra_fields"]]
        components = batch_components(rows, batch.tags, self._options(name))
        with components.carried():
            done = super()._compute_advantage(batch, metrics=metrics)
        metrics.update(flat_diagnostics(components.diagnostics, components.names))
        return done

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
    statistics of a batch.

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
