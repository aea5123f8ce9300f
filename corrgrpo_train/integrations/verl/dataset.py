"""`TaskDataset`: an environment's tasks as the data set that verl draws prompts from."""

import logging
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from torch.utils.data import Dataset

from corrgrpo_train.config import Config
from corrgrpo_train.config_checks import check_validation_split
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl.agent_loop import arguments_for, end_tokens
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import EnvironmentFailedError, EpisodeRunner, Start
from corrgrpo_train.rollout.groups import listed_tasks

logger = logging.getLogger(__name__)

Row = dict[str, Any]


class TaskDataset(Dataset[Row]):
    """Rows of one split: what an episode is reset to, and its first messages.

    `data.train_files` and `data.val_files` name splits. Tasks whose prompt is longer than `data.max_prompt_length` are
    left out. An environment without a list of tasks gets seeds instead, as many as the run needs.
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
            max_samples: rows at most, chosen evenly; -1 takes all.

        Raises:
            UsageError: if the environment, the split or the data are wrong, or no prompt is short enough.
        """
        settings = Config(**OmegaConf.to_container(config.corrgrpo, resolve=True))
        names = list(data_files) if isinstance(data_files, list | tuple | ListConfig) else [data_files]
        if len(names) != 1:
            raise UsageError(f"train_files and val_files name one split each, not {names}")
        self.split = str(names[0])
        if self.split != "train":
            check_validation_split(self.split)
        runner = EpisodeRunner(settings.env, arguments_for(settings, self.split), timeout=settings.env_timeout)
        chat = Chat(tokenizer, end_tokens(getattr(tokenizer, "name_or_path", "") or ""))
        longest = int(config.max_prompt_length)
        try:
            starts = self._starts(runner, settings, max_samples)
            opened = [row for row in _rows(runner, starts, settings, self.split) if _fits(row, chat, longest)]
        finally:
            runner.close()
        self.too_long = len(starts) - len(opened)
        if self.too_long:
            logger.warning("%d of %d tasks of split %s have too long a prompt", self.too_long, len(starts), self.split)
        if not opened:
            raise UsageError(
                f"no task of split {self.split!r} has a prompt of at most {longest} tokens; raise the limit"
            )
        if self.split == "train" and len(opened) < int(config.train_batch_size):
            raise UsageError(
                f"split 'train' has {len(opened)} tasks that fit, fewer than the {config.train_batch_size} of a step: "
                "lower groups_per_step or take more data"
            )
        self.rows = [{**row, "index": index} for index, row in enumerate(opened)]
        for row in self.rows:
            del row["tools"]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return dict(self.rows[index])

    def _starts(self, runner: EpisodeRunner, settings: Config, max_samples: int) -> list[Start]:
        tasks = listed_tasks(runner)
        if tasks is None:
            count = max_samples if max_samples > 0 else settings.steps * settings.groups_per_step
            # Validation seeds lie apart from training's.
            first = settings.seed * 1_000_003 + (0 if self.split == "train" else 2**30)
            return [Start(None, (first + index) % 2**31) for index in range(count)]
        chosen = [task_id for task_id, _ in tasks]
        if 0 < max_samples < len(chosen):
            chosen = [chosen[index * len(chosen) // max_samples] for index in range(max_samples)]
        return [Start(task_id, (settings.seed + index) % 2**31) for index, task_id in enumerate(chosen)]


def _rows(runner: EpisodeRunner, starts: list[Start], settings: Config, split: str) -> Iterator[Row]:
    for start in starts:
        try:
            observation = runner.reset(start)
        except EnvironmentFailedError as failure:
            raise UsageError(f"env {settings.env!r} can't be reset to {start.label}: {failure}") from failure
        yield {
            "raw_prompt": [dict(message) for message in observation["messages"]],
            "tools": observation["tools"],
            "task_id": start.task_id,
            "start_seed": start.seed,
            "split": split,
            "data_source": settings.env,
        }


def _fits(row: Row, chat: Chat, longest: int) -> bool:
    return len(chat.opening(row["raw_prompt"], row["tools"])) <= longest
