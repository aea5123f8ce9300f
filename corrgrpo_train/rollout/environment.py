"""One environment as the rollout sees it: made, reset to a task, stepped, and repaired once if it fails."""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

import corrgrpo_envs  # noqa: F401  (registers the ids)
from corrgrpo_envs.errors import unknown
from corrgrpo_envs.registration import full_id
from corrgrpo_train.errors import UsageError, first_line

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """What the members of a group are reset to: a task of the environment, or a seed where it has no tasks."""

    task_id: str | None
    seed: int

    @property
    def label(self) -> str:
        """Name for logs and transcripts."""
        return self.task_id if self.task_id is not None else f"seed:{self.seed}"


@dataclass(frozen=True, slots=True)
class Stepped:
    """The result of one step."""

    observation: Mapping[str, Any]
    reward: float
    ended: bool
    truncated: bool
    info: Mapping[str, Any]


class EnvironmentFailedError(Exception):
    """The environment raised twice on the same episode."""


def make(name: str, arguments: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """Make an environment.

    Args:
        name: `"RLLA-v0"` is short for `"corrgrpo/RLLA-v0"`; `"package:namespace/Name-v0"` imports the package first.
        arguments: of its constructor.

    Raises:
        UsageError: if the id is unknown, its package missing, or an argument wrong.
    """
    full = full_id(name)
    try:
        # The checker looks at the first steps of every environment made; `check_env` is for tests.
        return gym.make(full, disable_env_checker=True, **arguments)
    except gym.error.Error as error:
        known = [key.removeprefix("corrgrpo/") for key in gym.registry if key.startswith("corrgrpo/")]
        known = [key for key in known if "Vector-" not in key]
        raise UsageError(
            f"{unknown('env', full.removeprefix('corrgrpo/'), known)} Ids of other packages are written "
            f"package:namespace/Name-v0 ({first_line(error)})"
        ) from error
    except ImportError as error:
        raise UsageError(f"env {name!r}: {error}; install the package or correct its name") from error
    except TypeError as error:
        problem = _unknown_argument(full, arguments) or first_line(error)
        raise UsageError(f"env {name!r}: {problem}") from error
    except ValueError as error:
        raise UsageError(f"env {name!r}: {error}") from error


def _unknown_argument(full: str, arguments: Mapping[str, Any]) -> ValueError | None:
    """The first argument that the constructor does not have, as an error; None if it has them all."""
    entry = gym.spec(full.rpartition(":")[2]).entry_point
    maker = gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    if maker is None:
        return None
    parameters = inspect.signature(maker).parameters
    if any(item.kind is item.VAR_KEYWORD for item in parameters.values()):
        return None
    for name in arguments:
        if name not in parameters:
            what = "reward weights for an environment without" if name == "reward_weights" else "env_args"
            return unknown(what, name, parameters)
    return None


class EpisodeRunner:
    """Runs the episodes of one slot of a group, one after the other.

    A call that raises is answered by making the environment anew and replaying the episode, once; a second
    failure is an `EnvironmentFailedError`.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.name, self.arguments = name, dict(arguments)
        self.env = make(name, arguments)
        self._start: Start | None = None
        self._actions: list[str] = []

    def reset(self, start: Start) -> Mapping[str, Any]:
        """Begin an episode and return its first observation."""
        self._start, self._actions = start, []
        try:
            return self._reset()
        except Exception as error:
            return self._replayed(error)

    def step(self, text: str) -> Stepped:
        """Take the assistant's text."""
        result = self._repaired(lambda: self.env.step(text))
        self._actions.append(text)
        return _stepped(result)

    def finish(self, text: str) -> Stepped:
        """Break the episode off after `text`; an environment without `finish` takes it as an ordinary step."""
        stepped = _stepped(self._repaired(lambda: getattr(self.env.unwrapped, "finish", self.env.step)(text)))
        return Stepped(stepped.observation, stepped.reward, True, True, stepped.info)

    def close(self) -> None:
        """Close the environment; a failure here costs nothing."""
        try:
            self.env.close()
        except Exception as error:
            logger.warning("closing environment %s failed: %s", self.name, error)

    def _reset(self) -> Mapping[str, Any]:
        assert self._start is not None
        options = {} if self._start.task_id is None else {"task_id": self._start.task_id}
        observation, _ = self.env.reset(seed=self._start.seed, options=options)
        return dict(observation)

    def _repaired(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            self._replayed(error)
        try:
            return call()
        except Exception as error:
            raise EnvironmentFailedError(f"{type(error).__name__}: {error}") from error

    def _replayed(self, cause: Exception) -> Mapping[str, Any]:
        """Make the environment anew and bring it to where it was; return the first observation."""
        logger.warning("environment %s failed, trying once more: %s: %s", self.name, type(cause).__name__, cause)
        try:
            self.close()
            self.env = make(self.name, self.arguments)
            observation = self._reset()
            for text in self._actions:
                self.env.step(text)
        except Exception as error:
            raise EnvironmentFailedError(f"{type(error).__name__}: {error}") from error
        return observation


def _stepped(result: tuple[Any, Any, Any, Any, dict[str, Any]]) -> Stepped:
    observation, reward, terminated, truncated, info = result
    try:
        scalar = float(reward)
    except (TypeError, ValueError):
        raise UsageError(
            f"the environment's reward must be one number, not {type(reward).__name__}; train on the id without Vector"
        ) from None
    return Stepped(observation, scalar, bool(terminated or truncated), bool(truncated), info)
