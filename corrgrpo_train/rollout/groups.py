"""`GroupSampler`: draws tasks in order and rolls out a group of episodes on each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from corrgrpo_train.engines import Engine
from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.processes import Processes
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.collect import collect
from corrgrpo_train.rollout.environment import FAULTS, EnvironmentFailedError, EpisodeRunner, Start, observed, told
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.schedules import Schedule
from corrgrpo_train.rollout.task_order import TaskOrder
from corrgrpo_train.rollout.turns import Limits

Drawn = TypeVar("Drawn")


class GroupSampler:
    """Groups of episodes on the tasks of one environment, met in epochs without replacement.

    Attributes:
        position: how many tasks have been drawn; with the seed it is the whole state.
        too_long: how many of them were left out because their first prompt is too long.
    """

    def __init__(
        self,
        env: str,
        env_args: Mapping[str, Any],
        chat: Chat,
        *,
        groups: int,
        group_size: int,
        max_prompt_tokens: int,
        seed: int,
        workers: int = 1,
        timeout: float | None = None,
        processes: Processes | None = None,
        schedule: Schedule = collect,
    ) -> None:
        """Make the environments.

        Args:
            env: environment id.
            env_args: its constructor arguments.
            chat: the policy's chat template, which measures prompts.
            groups: groups per rollout.
            group_size: episodes per group.
            max_prompt_tokens: tasks with a longer first prompt are left out.
            seed: of the order of tasks.
            workers: threads in which environments step.
            timeout: seconds after which a call of an environment counts as failed; None waits for ever.
            processes: those that share the groups; each makes the environments of its own.
            schedule: how episodes are collected.

        Raises:
            UsageError: if the environment can't be made or reset.
        """
        self.chat, self.groups, self.group_size, self.workers = chat, groups, group_size, workers
        self.max_prompt_tokens, self.seed, self.schedule = max_prompt_tokens, seed, schedule
        self.position = self.too_long = 0
        self.processes = processes or Processes()
        own = max(1, len(self.processes.share(range(groups))))
        self.runners = [EpisodeRunner(env, env_args, timeout=timeout) for _ in range(own * group_size)]
        check_split(self.runners[0])
        self.order = _order(self.runners[0], seed)

    @property
    def tasks(self) -> int | None:
        """Number of tasks, or None where the environment has no list of tasks."""
        return None if self.order is None else len(self.order.task_ids)

    def rollout(self, engine: Engine, limits: Limits, *, temperature: float, key: tuple[int, ...]) -> list[Episode]:
        """Roll out the next groups; episodes come group by group."""
        starts = [self.next_start() for _ in range(self.groups)]
        return self.rollout_on(starts, engine, limits, temperature=temperature, key=key)

    def rollout_on(
        self,
        starts: Sequence[Start],
        engine: Engine,
        limits: Limits,
        *,
        temperature: float,
        key: tuple[int, ...],
        first_group: int = 0,
    ) -> list[Episode]:
        """Roll out a group on each of the given starts, at most `groups` of them, numbered from `first_group`.

        With several processes each rolls out its share, and all get all episodes. An episode depends on the numbers of
        its group and member alone, not on the process.
        """
        own = self.processes.share(list(enumerate(starts, start=first_group)))
        members = [(group, member, start) for group, start in own for member in range(self.group_size)]
        episodes = self.schedule(
            members,
            self.runners,
            engine,
            self.chat,
            limits,
            temperature=temperature,
            key=key,
            workers=self.workers,
        )
        size = self.group_size
        groups = self.processes.merge([episodes[place : place + size] for place in range(0, len(episodes), size)])
        return [episode for group in groups for episode in group]

    def close(self) -> None:
        """Close the environments."""
        for runner in self.runners:
            runner.close()

    def next_start(self) -> Start:
        """The next task whose prompt is short enough, the same in all processes."""
        return self.of_first(self.draw)

    def of_first(self, draw: Callable[[], Drawn]) -> Drawn:
        """Draw tasks in the first process; all get what it draws and its state."""
        drawn, self.position, self.too_long = self.processes.of_first(lambda: (draw(), self.position, self.too_long))
        return drawn

    def draw(self) -> Start:
        """The next task whose prompt is short enough, in this process alone."""
        for _ in range(self.tasks or 1000):
            start = self.start_at(self.position)
            self.position += 1
            if self.fits(start):
                return start
            self.too_long += 1
        raise UsageError(
            f"no task has a first prompt of at most max_prompt_tokens={self.max_prompt_tokens} tokens; raise it"
        )

    def start_at(self, position: int) -> Start:
        """What the group at this position is reset to."""
        # Without tasks a group shares a seed instead.
        seed = (self.seed * 1_000_003 + position) % 2**31
        return Start(None if self.order is None else self.order[position], seed)

    def fits(self, start: Start) -> bool:
        """Whether the first prompt is short enough."""
        try:
            observation = self.runners[0].reset(start)
        except EnvironmentFailedError:
            return True  # the rollout meets the same failure and counts it
        messages = [dict(message) for message in observation["messages"]]
        return len(self.chat.opening(messages, observation.get("tools", "[]"))) <= self.max_prompt_tokens


def check_split(runner: EpisodeRunner) -> None:
    """Refuse the test tasks of an environment for evaluation, unless they are asked for by name.

    Raises:
        UsageError: if no split is named, and the environment's own is `"test"`.
    """
    if gives_test_tasks(runner):
        raise UsageError(
            f"env {runner.name!r} is for evaluation: its split is 'test' unless env_args names another one. Measure a "
            "model on it with python -m corrgrpo_train.evaluate, or train on these tasks all the same with "
            "--env-args.split test --validation-tasks 0"
        )


def gives_test_tasks(runner: EpisodeRunner) -> bool:
    """Whether the environment's tasks are test tasks though no split was named."""
    return "split" not in runner.arguments and getattr(runner.env.unwrapped, "split", None) == "test"


def _order(runner: EpisodeRunner, seed: int) -> TaskOrder | None:
    """The order of the environment's tasks, or None where it has none.

    The environment is also reset once, so that a wrong data set, option or observation is met here and not in an
    episode.
    """
    tasks = listed_tasks(runner)
    checked(lambda: runner.call(lambda: observed(runner.env.reset(seed=seed)[0])))
    return None if tasks is None else TaskOrder([task for task, _ in tasks], [kind for _, kind in tasks], seed)


def listed_tasks(runner: EpisodeRunner) -> list[tuple[str, str]] | None:
    """(id, kind) of every task of the environment, or None where it has no list of tasks.

    Raises:
        UsageError: if the list can't be read or is empty.
    """
    tasks = checked(lambda: runner.call(lambda: getattr(runner.env.unwrapped, "tasks", None)))
    try:
        listed = [(task.id, str(getattr(task, "kind", ""))) for task in tasks]
    except (TypeError, AttributeError):  # another package's environment may call anything `tasks`
        return None
    if not listed:
        raise UsageError("the environment has no tasks")
    return listed if all(isinstance(task_id, str) for task_id, _ in listed) else None


def checked(call: Callable[[], Any]) -> Any:
    """Call the environment and tell a wrong option, data set or task in one line."""
    try:
        return call()
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(first_line(error)) from error
    except FAULTS as error:
        raise UsageError(f"the environment fails before the first episode: {told(error)}") from error
