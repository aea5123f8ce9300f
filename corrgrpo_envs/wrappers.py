"""Wrappers that return an environment's reward components instead of their weighted sum.

`VectorReward` returns them as an array (MO-Gymnasium's convention), `DictReward` as a dict by name.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from corrgrpo_envs.rewards import RewardSpec


class VectorReward(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Return the raw components as a new float32 array, shape (K,), in the order of `reward_spec`.

    This is MO-Gymnasium's form: its wrappers and algorithms go on top of this one, and read `reward_space` on
    the base environment. Every id here has a twin `...Vector-v0` that applies it.
    """

    def __init__(self, env: gym.Env[Any, str]) -> None:
        """Wrap an environment.

        Args:
            env: an environment whose base has `reward_spec` and `reward_space`.

        Raises:
            ValueError: if it has none.
        """
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._spec = _reward_spec(self)

    def step(self, action: str) -> tuple[Any, NDArray[np.float32], bool, bool, dict[str, Any]]:
        """Take a step; the reward is the vector of raw components."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, self._spec.vector(info["reward_components"]), terminated, truncated, info


class DictReward(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Return the raw components as a new dict by name.

    Gymnasium's vector environments and reward wrappers take only numbers: put this one outermost.
    """

    def __init__(self, env: gym.Env[Any, str]) -> None:
        """Wrap an environment.

        Args:
            env: an environment whose base has `reward_spec`.

        Raises:
            ValueError: if it has none.
        """
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._spec = _reward_spec(self)

    def step(  # type: ignore[override]  # Gymnasium's reward is a number
        self, action: str
    ) -> tuple[Any, dict[str, float], bool, bool, dict[str, Any]]:
        """Take a step; the reward is the dict of raw components."""
        observation, _, terminated, truncated, info = self.env.step(action)
        components = {name: info["reward_components"][name] for name in self._spec.names}
        return observation, components, terminated, truncated, info


def _reward_spec(wrapper: gym.Wrapper[Any, str, Any, str]) -> RewardSpec:
    spec = getattr(wrapper.unwrapped, "reward_spec", None)
    if not isinstance(spec, RewardSpec):
        raise ValueError(
            f"{type(wrapper).__name__} needs an environment with a reward_spec (a RewardSpec), "
            f"which {type(wrapper.unwrapped).__name__} has not"
        )
    return spec
