"""TRL: environments as rewards and tools of its `GRPOTrainer`, and every estimator in place of its advantages.

>>> from corrgrpo_train.integrations.trl import MultiRewardGRPOTrainer, trl_task  # doctest: +SKIP
>>> task = trl_task("RLLA-v0", tokenizer)  # doctest: +SKIP
>>> trainer = MultiRewardGRPOTrainer(  # doctest: +SKIP
...     model, task.reward_funcs, args, task.datasets["train"], processing_class=tokenizer, estimator="corrgrpo"
... )

TRL comes with the extra `trl`; it is imported with this package, which takes a while.
"""

from corrgrpo_train.errors import missing_package

try:
    import trl as _trl
except ModuleNotFoundError as error:
    raise ImportError(missing_package(error, "train,trl")) from error

from corrgrpo_train.integrations.trl.contract import check_version

check_version(_trl.__version__)

from corrgrpo_train.integrations.trl.rewards import ComponentReward  # noqa: E402  (after the check)
from corrgrpo_train.integrations.trl.task import TrlTask, trl_task  # noqa: E402
from corrgrpo_train.integrations.trl.trainer import MultiRewardGRPOTrainer  # noqa: E402

__all__ = ["ComponentReward", "MultiRewardGRPOTrainer", "TrlTask", "trl_task"]
