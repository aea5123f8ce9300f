"""The tasks of an environment that an evaluation plays, and the episodes on them."""

from collections.abc import Sequence
from dataclasses import dataclass

from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.sample import Job
from corrgrpo_train.evaluate.settings import SEEDED_TASKS, EnvironmentChoice, Settings
from corrgrpo_train.rollout.environment import EpisodeRunner, Start, first_seed, observed
from corrgrpo_train.rollout.groups import checked, listed_tasks
from corrgrpo_train.rollout.task_order import TaskOrder


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played on an environment.

    Attributes:
        choice: the environment.
        starts: what an episode on each task is reset to, by the task's id, in order.
        units: all jobs; those of a unit are played together, by one shard.
    """

    choice: EnvironmentChoice
    starts: dict[str, Start]
    units: tuple[tuple[Job, ...], ...]

    def of_shard(self, shard: tuple[int, int]) -> list[tuple[Job, ...]]:
        """The units of one shard: each n-th."""
        number, count = shard
        return list(self.units[number - 1 :: count])


def planned(choice: EnvironmentChoice, settings: Settings, timeout: float | None = None) -> Plan:
    """Read an environment's tasks and make its jobs.

    An episode's random numbers belong to its task and the number of its sample, whatever else is played.

    Raises:
        UsageError: if the environment can't be made or has no tasks.
    """
    runner = EpisodeRunner(choice.name, choice.arguments, timeout=timeout)
    try:
        listed = listed_tasks(runner)
        # A wrong data set or option is met here and not in an episode.
        checked(lambda: runner.call(lambda: observed(runner.env.reset(seed=settings.seed)[0])))
    except UsageError as error:
        raise UsageError(f"{choice.name}: {error}") from error
    finally:
        runner.close()
    starts = _seeded(choice, settings) if listed is None else _listed(listed, settings)
    jobs = [
        Job(choice.short, task, index, sample)
        for task, (index, _) in starts.items()
        for sample in range(settings.samples)
    ]
    size = settings.samples if settings.engine == "server" else settings.batch
    units = tuple(tuple(jobs[place : place + size]) for place in range(0, len(jobs), size))
    return Plan(choice, {task: start for task, (_, start) in starts.items()}, units)


def _listed(listed: Sequence[tuple[str, str]], settings: Settings) -> dict[str, tuple[int, Start]]:
    ids = [task for task, _ in listed]
    if settings.tasks is not None and settings.tasks < len(ids):
        order = TaskOrder(ids, [kind for _, kind in listed], seed=0)
        chosen = {order[position] for position in range(settings.tasks)}
    else:
        chosen = set(ids)
    return {
        task: (index, Start(task, (settings.seed * 1_000_003 + index) % 2**31))
        for index, task in enumerate(ids)
        if task in chosen
    }


def _seeded(choice: EnvironmentChoice, settings: Settings) -> dict[str, tuple[int, Start]]:
    """Seeds of the split that is named; where none is, of test tasks: training's, which begin at 0, lie apart."""
    first = first_seed(str(choice.arguments.get("split", "test")))
    starts = [Start(None, first + index) for index in range(settings.tasks or SEEDED_TASKS)]
    return {start.label: (index, start) for index, start in enumerate(starts)}
