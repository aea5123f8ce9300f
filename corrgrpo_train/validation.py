"""`Validator`: greedy episodes on fixed held-out tasks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from corrgrpo_train.config_checks import check_validation_split
from corrgrpo_train.engines import Engine
from corrgrpo_train.errors import UsageError
from corrgrpo_train.measures import summary
from corrgrpo_train.processes import Processes
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.collect import collect
from corrgrpo_train.rollout.environment import Start, first_seed
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.groups import GroupSampler
from corrgrpo_train.rollout.schedules import Schedule
from corrgrpo_train.rollout.turns import Limits


class Validator:
    """Runs the policy greedily on the same held-out tasks every time.

    The tasks are the first of a fixed order in which kinds are spread evenly; they do not depend on the run's
    seed, so that runs can be compared.
    """

    def __init__(
        self,
        env: str,
        env_args: Mapping[str, Any],
        chat: Chat,
        *,
        split: str,
        tasks: int,
        max_prompt_tokens: int,
        workers: int = 1,
        timeout: float | None = None,
        processes: Processes | None = None,
        schedule: Schedule = collect,
    ) -> None:
        """Choose the tasks.

        Args:
            env: environment id.
            env_args: its constructor arguments; `split` is replaced.
            chat: the policy's chat template.
            split: the held-out split; "test" and "all" are refused, for nothing may be selected on test tasks.
            tasks: how many; all where the split has fewer.
            max_prompt_tokens: tasks with a longer first prompt are passed over.
            workers: threads in which environments step.
            timeout: seconds after which a call of an environment counts as failed; None waits for ever.
            processes: those that share the tasks.
            schedule: how episodes are collected.

        Raises:
            UsageError: if the split is refused or the environment can't be made with a split.
        """
        check_validation_split(split)
        held_out = {**env_args, "split": split}
        try:
            probe = GroupSampler(
                env,
                held_out,
                chat,
                groups=1,
                group_size=1,
                max_prompt_tokens=max_prompt_tokens,
                seed=0,
                timeout=timeout,
            )
        except UsageError as error:
            raise UsageError(
                f"no validation on split {split!r}: {error}; an environment that has no splits needs "
                "--validation-tasks 0"
            ) from error
        self.starts: list[Start] = (processes or Processes()).of_first(lambda: _chosen(probe, tasks, first_seed(split)))
        probe.close()
        if not self.starts:
            raise UsageError(
                f"no task of split {split!r} has a first prompt of at most max_prompt_tokens={max_prompt_tokens} "
                "tokens; raise --max-prompt-tokens"
            )
        self.sampler = GroupSampler(
            env,
            held_out,
            chat,
            groups=len(self.starts),
            group_size=1,
            max_prompt_tokens=max_prompt_tokens,
            seed=0,
            workers=workers,
            timeout=timeout,
            processes=processes,
            schedule=schedule,
        )

    def run(self, engine: Engine, limits: Limits) -> tuple[dict[str, float], list[Episode]]:
        """Return mean reward, components and metrics over the tasks, and the episodes."""
        episodes = self.sampler.rollout_on(self.starts, engine, limits, temperature=0, key=(0,))
        return summary(episodes), episodes

    def close(self) -> None:
        """Close the environments."""
        self.sampler.close()


def _chosen(probe: GroupSampler, tasks: int, first: int) -> list[Start]:
    """The first tasks whose prompts are short enough, at most so many; seeds from `first` on where there is no list."""
    count = tasks if probe.tasks is None else min(tasks, probe.tasks)
    starts: list[Start] = []
    while len(starts) < count and probe.position < (probe.tasks or count):
        start = probe.start_at(probe.position)
        if probe.order is None:
            start = replace(start, seed=first + start.seed)
        probe.position += 1
        if probe.fits(start):
            starts.append(start)
    return starts
