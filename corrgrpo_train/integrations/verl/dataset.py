"""`TaskDataset`: an environment's tasks as the data set that verl draws prompts from."""

import logging
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from torch.utils.data import Dataset

from corrgrpo_train.config import Config
from corrgrpo_train.config_checks import check_validation_split
from corrgrpo_train.errors import UsageError
from corrgrpo_train.models.end_tokens import end_tokens
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import (
    EnvironmentFailedError,
    EpisodeRunner,
    Start,
    arguments_for,
    first_seed,
)
from corrgrpo_train.rollout.groups import check_split, listed_tasks

logger = logging.getLogger(__name__)

Row = dict[str, Any]

_FAILURES = 3


class TaskDataset(Dataset[Row]):
    """Rows of one split: what an episode is reset to, and its first messages.

    `data.train_files` and `data.val_files` name splits. Tasks whose prompt is longer than `data.max_prompt_length`, and
    those to which the environment can't be reset, are left out. An environment without a list of tasks gets seeds
    instead, as many as the run needs.

    Attributes:
        split: name of the split.
        validation: what the rows are for, and say of themselves; the trainer knows it, the split does not tell.
        too_long: tasks that were met and left out because of their prompts' length.
    """

    def __init__(
        self, data_files: Any, tokenizer: Any, config: DictConfig, processor: Any = None, max_samples: int = -1
    ) -> None:
        """Reset the environment to every task once, which reads the data and measures the prompts.

        Args:
            data_files: name of the split, also as a list of one.
            tokenizer: of the policy.
            config: verl's `data` settings, with ours under `corrgrpo`.
            processor: of images; there are none.
            max_samples: rows at most, chosen evenly, others in place of those that are left out; -1 takes all.

        Raises:
            UsageError: if the environment, the split or the data are wrong, or no task can be taken.
        """
        settings = Config(**OmegaConf.to_container(config.corrgrpo, resolve=True))
        names = list(data_files) if isinstance(data_files, list | tuple | ListConfig) else [data_files]
        if len(names) != 1:
            raise UsageError(f"train_files and val_files name one split each, not {names}")
        self.split = str(names[0])
        self.validation = self.split != "train"
        if self.validation:
            check_validation_split(self.split)
        runner = self._runner(settings)
        chat = Chat(tokenizer, end_tokens(getattr(tokenizer, "name_or_path", "") or ""))
        try:
            check_split(runner)
            starts = self._starts(runner, settings, max_samples)
            self.rows, self.too_long = self._opened(runner, starts, chat, int(config.max_prompt_length), max_samples)
        finally:
            runner.close()
        if self.too_long:
            logger.warning("%d tasks of split %s are left out: too long a prompt", self.too_long, self.split)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return {**self.rows[index], "validation": self.validation}

    def check_batch(self, size: int) -> None:
        """Check that there are enough rows for a step.

        Raises:
            UsageError: if there are not.
        """
        if len(self) < size:
            raise UsageError(
                f"split {self.split!r} has {len(self)} tasks that fit, fewer than the {size} of a step: lower "
                "groups_per_step or take more data"
            )

    def _runner(self, settings: Config) -> EpisodeRunner:
        try:
            arguments = arguments_for(settings.env_arguments, self.split)
            return EpisodeRunner(settings.env, arguments, timeout=settings.env_timeout)
        except UsageError as error:
            if not self.validation:
                raise
            raise UsageError(
                f"no validation on split {self.split!r}: {error}; an environment that has no splits needs "
                "--validation-tasks 0"
            ) from error

    def _starts(self, runner: EpisodeRunner, settings: Config, max_samples: int) -> list[Start]:
        tasks = listed_tasks(runner)
        if tasks is None:
            count = max(max_samples, settings.steps * settings.groups_per_step)
            first = settings.seed * 1_000_003 + first_seed(self.split)
            return [Start(None, (first + index) % 2**31) for index in range(count)]
        even = [index * len(tasks) // max_samples for index in range(min(max_samples, len(tasks)))]
        order = dict.fromkeys([*even, *range(len(tasks))])
        return [Start(tasks[place][0], (settings.seed + index) % 2**31) for index, place in enumerate(order)]

    def _opened(
        self, runner: EpisodeRunner, starts: list[Start], chat: Chat, longest: int, max_samples: int
    ) -> tuple[list[Row], int]:
        """Reset the environment to one start after the other, until there are rows enough; count those too long."""
        rows: list[Row] = []
        too_long = failures = 0
        for start in starts:
            if 0 < max_samples <= len(rows):
                break
            try:
                observation = runner.reset(start)
            except EnvironmentFailedError as failure:
                failures += 1
                # A task that fails is one thing, an environment that does another: don't wait for all its tasks.
                if not rows and failures == min(_FAILURES, len(starts)):
                    raise UsageError(f"env {runner.name!r} can't be reset to {start.label}: {failure}") from failure
                logger.warning("task %s of split %s is left out: %s", start.label, self.split, failure)
                continue
            messages = [dict(message) for message in observation["messages"]]
            if len(chat.opening(messages, observation["tools"])) > longest:
                too_long += 1
                continue
            rows.append(
                {
                    "raw_prompt": messages,
                    "task_id": start.task_id,
                    "start_seed": start.seed,
                    "split": self.split,
                    "data_source": runner.name,
                    "index": len(rows),
                }
            )
        if not rows:
            raise UsageError(
                f"no task of split {self.split!r} has a prompt of at most {longest} tokens; raise max_prompt_tokens"
            )
        return rows, too_long
