"""Imports what registers itself with verl: estimators, trainer, agent loop.

verl imports the modules that the environment variable VERL_USE_EXTERNAL_MODULES names in every process; the launcher
has it name this one. A module that registers an estimator of your own stands before it, with a comma between.
"""

from corrgrpo_train.integrations.verl import agent_loop, trainer
from corrgrpo_train.integrations.verl.estimators import register_estimators

register_estimators()

__all__ = ["agent_loop", "trainer"]
