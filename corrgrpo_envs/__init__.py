"""Gymnasium environments for language models that return named reward components with weights.

Importing the package registers every id:

>>> import gymnasium as gym
>>> import corrgrpo_envs
>>> env = gym.make("corrgrpo/CorrelatedBandit-v0")
>>> observation, info = env.reset(seed=0)
>>> observation, reward, terminated, truncated, info = env.step("A")
>>> sorted(info["reward_components"])
['reward_1', 'reward_2', 'reward_3']
"""

from corrgrpo_envs.datasets import Row, read_rows, schema_error, split_of
from corrgrpo_envs.env import Message, MultiRewardEnv, Observation, Opening, Outcome
from corrgrpo_envs.errors import DatasetError
from corrgrpo_envs.registration import register
from corrgrpo_envs.rewards import RewardComponent, RewardSpec
from corrgrpo_envs.spaces import Chat, Unicode
from corrgrpo_envs.tasks import SPLITS, Task, TaskSet, drawn_split, with_validation
from corrgrpo_envs.wrappers import DictReward, VectorReward

__all__ = [
    "SPLITS",
    "Chat",
    "DatasetError",
    "DictReward",
    "Message",
    "MultiRewardEnv",
    "Observation",
    "Opening",
    "Outcome",
    "RewardComponent",
    "RewardSpec",
    "Row",
    "Task",
    "TaskSet",
    "Unicode",
    "VectorReward",
    "drawn_split",
    "read_rows",
    "register",
    "schema_error",
    "split_of",
    "with_validation",
]

register("RLLA", "corrgrpo_envs.tools.rlla:RLLAEnv")
register("LeetCode", "corrgrpo_envs.code.leetcode:LeetCodeEnv", nondeterministic=True)
register("HumanEval", "corrgrpo_envs.code.humaneval:make_env")
register("MBPP", "corrgrpo_envs.code.mbpp:make_env")
register("LiveCodeBench", "corrgrpo_envs.code.livecodebench:make_env")
register("AgentDojo", "corrgrpo_envs.agents.agentdojo:AgentDojoEnv")
register("APIBank", "corrgrpo_envs.tools.apibank:APIBankEnv")
register("ASB", "corrgrpo_envs.agents.asb:ASBEnv")
register("InjecAgent", "corrgrpo_envs.agents.injecagent:InjecAgentEnv")
register("CorrelatedBandit", "corrgrpo_envs.synthetic.bandit:CorrelatedBandit")
