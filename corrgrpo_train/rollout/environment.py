"""One environment as the rollout sees it: made, reset to a task, stepped, and repaired once if it fails."""

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

import corrgrpo_envs  # noqa: F401  (registers the ids)
from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.registration import full_id
from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.rollout.caller import Answer, Caller, NoAnswerError

logger = logging.getLogger(__name__)

# What an environment may raise without ending the run; `sys.exit` in a step is a fault like any other.
FAULTS = (Exception, SystemExit)
ROLES = ("system", "user", "assistant", "tool")


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
    """The result of one step; the observation is checked only where the episode goes on."""

    observation: Mapping[str, Any]
    reward: float
    ended: bool
    truncated: bool
    info: Mapping[str, Any]


class EnvironmentFailedError(Exception):
    """The environment raised twice on the same episode, or gave what no episode can be made of."""


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
    except FAULTS as error:
        raise UsageError(f"env {name!r} can't be made: {told(error)}") from error


def _unknown_argument(full: str, arguments: Mapping[str, Any]) -> ValueError | None:
    """The first argument that the constructor does not have, as an error; None if it has them all."""
    parameters = parameters_of(full)
    if parameters is None:
        return None
    for name in arguments:
        if name not in parameters:
            what = "reward weights for an environment without" if name == "reward_weights" else "env_args"
            return unknown(what, name, parameters)
    return None


def parameters_of(full: str) -> tuple[str, ...] | None:
    """Names of the arguments of an environment's constructor; None if they are not known, or it takes any.

    Args:
        full: an id; the package that registers it must have been imported.
    """
    try:
        entry = gym.spec(full.rpartition(":")[2]).entry_point
    except gym.error.Error:  # it is the package's name that could not be imported
        return None
    maker = gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    if maker is None:
        return None
    parameters = inspect.signature(maker).parameters
    if any(item.kind is item.VAR_KEYWORD for item in parameters.values()):
        return None
    return tuple(parameters)


def arguments_for(arguments: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Constructor arguments for a split; training's are as given, for not every environment knows splits."""
    return dict(arguments) if split == "train" else {**arguments, "split": split}


def first_seed(split: str) -> int:
    """Where the seeds of a split begin in an environment without tasks: those of other splits lie apart."""
    return {"train": 0, "validation": 2**30}.get(split, 2**30 + 2**29)


def told(error: BaseException) -> str:
    """An error of an environment in one line: its type and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error)}"


class EpisodeRunner:
    """Runs the episodes of one slot of a group, one after the other.

    A call that raises is answered by making the environment anew and replaying the episode, once; a second
    failure is an `EnvironmentFailedError`. So is, at once, a call that does not come back in time: what it waits for
    would be waited for again. The next episode then gets a new environment.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Make the environment.

        Args:
            name: of the environment, see `make`.
            arguments: of its constructor.
            timeout: seconds after which a call counts as failed; None waits for ever.

        Raises:
            UsageError: if it can't be made.
        """
        self.name, self.arguments, self.timeout = name, dict(arguments), timeout
        self._start: Start | None = None
        self._actions: list[str] = []
        try:
            self._make()
        except NoAnswerError as error:
            raise UsageError(f"env {name!r} can't be made: {error}") from error

    def call(self, function: Callable[[], Answer]) -> Answer:
        """Call something of the environment as all its methods are called: in its thread, with its limit of time."""
        return self._caller(function)

    def reset(self, start: Start) -> Mapping[str, Any]:
        """Begin an episode and return its first observation."""
        self._start, self._actions = start, []
        if self._caller.lost:
            return self._replayed(NoAnswerError("its last call has not come back"))
        try:
            return self.call(self._reset)
        except NoAnswerError as error:
            raise EnvironmentFailedError(str(error)) from error
        except FAULTS as error:
            return self._replayed(error)

    def step(self, text: str) -> Stepped:
        """Take the assistant's text."""
        stepped = self._repaired(lambda: _stepped(self.env.step(text)))
        self._actions.append(text)
        return stepped

    def finish(self, text: str) -> Stepped:
        """Break the episode off after `text`; an environment without `finish` takes it as an ordinary step."""
        stepped = self._repaired(lambda: _stepped(self._finishing()(text), last=True))
        return Stepped(stepped.observation, stepped.reward, True, True, stepped.info)

    def close(self) -> None:
        """Close the environment; a failure here costs nothing."""
        if self._caller.lost:
            return  # whatever it does goes on without anyone waiting for it
        try:
            self.call(self.env.close)
        except (NoAnswerError, *FAULTS) as error:
            logger.warning("closing environment %s failed: %s", self.name, told(error))
        self._caller.close()

    def _make(self) -> None:
        self._caller = Caller(self.timeout)
        self.env = self.call(lambda: make(self.name, self.arguments))

    def _finishing(self) -> Callable[[str], Any]:
        finish = getattr(self.env.unwrapped, "finish", None)
        return finish if callable(finish) else self.env.step

    def _reset(self) -> Mapping[str, Any]:
        assert self._start is not None
        options = {} if self._start.task_id is None else {"task_id": self._start.task_id}
        observation, _ = self.env.reset(seed=self._start.seed, options=options)
        return observed(observation)

    def _repaired(self, call: Callable[[], Stepped]) -> Stepped:
        try:
            return self.call(call)
        except UsageError:  # the environment is not of a kind that can be trained on
            raise
        except NoAnswerError as error:
            raise EnvironmentFailedError(str(error)) from error
        except FAULTS as error:
            self._replayed(error)
        try:
            return self.call(call)
        except UsageError:
            raise
        except FAULTS as error:
            raise EnvironmentFailedError(told(error)) from error

    def _replayed(self, cause: BaseException) -> Mapping[str, Any]:
        """Make the environment anew and bring it to where it was; return the first observation."""
        logger.warning("environment %s failed, trying once more: %s", self.name, told(cause))
        try:
            self.close()
            self._make()
            observation = self.call(self._reset)
            for text in self._actions:
                self.call(lambda text=text: self.env.step(text))  # type: ignore[misc]
        except FAULTS as error:
            raise EnvironmentFailedError(told(error)) from error
        return observation


def observed(observation: Any) -> dict[str, Any]:
    """The observation with its messages and tools in the contract's types and nothing else.

    Raises:
        TypeError: if a part is missing or of another type.
        ValueError: for a role or tools that templates can't show.
    """
    if not isinstance(observation, Mapping) or not isinstance(observation.get("messages"), tuple | list):
        raise TypeError(
            f"an observation must be a dict whose 'messages' hold the conversation, not {shown(observation)}"
        )
    messages = tuple(_message(message) for message in observation["messages"])
    if not messages:
        raise ValueError("an observation must hold at least one message")
    tools = observation.get("tools", "[]")
    if not isinstance(tools, str):
        raise TypeError(f"an observation's 'tools' must be JSON text, not {shown(tools)}")
    schemas = json.loads(tools)
    if not isinstance(schemas, list) or not all(isinstance(schema, dict) for schema in schemas):
        raise ValueError(f"an observation's 'tools' must be a JSON list of objects, not {shown(tools)}")
    return {"messages": messages, "tools": tools}


def _message(message: Any) -> dict[str, str]:
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        raise TypeError(f"a message must be a dict with a role and a text 'content', not {shown(message)}")
    # Templates write the role as it is: another text could end the turn and forge the next one.
    if message.get("role") not in ROLES:
        raise unknown("the role of a message", message.get("role"), ROLES)
    return {"role": str(message["role"]), "content": str(message["content"])}


def _stepped(result: Any, *, last: bool = False) -> Stepped:
    if not isinstance(result, tuple) or len(result) != 5:
        raise UsageError(
            "the environment's step must return (observation, reward, terminated, truncated, info), "
            f"not {shown(result)}"
        )
    observation, reward, terminated, truncated, info = result
    ended = last or bool(terminated or truncated)
    try:
        scalar = float(reward)
    except (TypeError, ValueError):
        raise UsageError(
            f"the environment's reward must be one number, not {type(reward).__name__}; train on the id without Vector"
        ) from None
    return Stepped({} if ended else observed(observation), scalar, ended, bool(truncated), info)
