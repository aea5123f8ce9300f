"""Rollouts: episodes against an environment, in groups, with exact tokens."""

from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.collect import Limits, collect
from corrgrpo_train.rollout.environment import EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode, TokenSequence
from corrgrpo_train.rollout.task_order import TaskOrder

__all__ = ["Chat", "Episode", "EpisodeRunner", "Limits", "Start", "TaskOrder", "TokenSequence", "collect"]
