"""Rollouts: episodes against an environment, in groups, with exact tokens."""

from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.collect import collect
from corrgrpo_train.rollout.environment import EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode, TokenSequence
from corrgrpo_train.rollout.schedules import SCHEDULES
from corrgrpo_train.rollout.task_order import TaskOrder
from corrgrpo_train.rollout.turns import Limits

__all__ = ["SCHEDULES", "Chat", "Episode", "EpisodeRunner", "Limits", "Start", "TaskOrder", "TokenSequence", "collect"]
