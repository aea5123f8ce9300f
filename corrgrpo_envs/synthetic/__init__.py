"""Environments whose rewards are made to measure, for studying methods."""

from corrgrpo_envs.synthetic.bandit import CorrelatedBandit

__all__ = ["CorrelatedBandit"]
