"""`trl_task`: an environment as data sets, reward functions, weights and environments of TRL's `GRPOTrainer`."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset

from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl.environments import COLUMNS, Environments, beginning
from corrgrpo_train.integrations.trl.methods import tool_environment
from corrgrpo_train.integrations.trl.plain_text import PlainText
from corrgrpo_train.integrations.trl.rewards import ComponentReward, OnceScored
from corrgrpo_train.integrations.trl.tools import ToolEpisode
from corrgrpo_train.models.end_tokens import end_tokens
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import EnvironmentFailedError, EpisodeRunner, Start, first_seed
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.groups import checked, gives_test_tasks, listed_tasks
from corrgrpo_train.rollout.turns import break_off, fail, reset, step, take

Row = dict[str, Any]


@dataclass(frozen=True)
class TrlTask:
    """An environment for TRL.

    Attributes:
        datasets: by split, rows with `prompt`, `task_id`, `seed`, `split`, and `environment` where there are tools.
        reward_funcs: one for each component, named as it.
        reward_weights: theirs, as the environment has them: for `GRPOConfig` with a trainer that is not
            `MultiRewardGRPOTrainer`.
        environment_factory: by name of a set of tools; None where the environment has no tools.
        environments: behind the task; closed with it.
    """

    datasets: Mapping[str, Dataset]
    reward_funcs: list[ComponentReward]
    reward_weights: list[float]
    environment_factory: dict[str, Callable[[], ToolEpisode]] | None
    environments: Environments

    def close(self) -> None:
        """Close the environments; nothing can be scored any more."""
        self.environments.close()

    def __enter__(self) -> "TrlTask":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def trl_task(
    env: str,
    tokenizer: Any,
    *,
    env_args: Mapping[str, Any] | None = None,
    splits: Sequence[str] = ("train",),
    limit: int | None = None,
    max_prompt_tokens: int | None = None,
    stop_token_ids: Sequence[int] = (),
    timeout: float | None = 600.0,
) -> TrlTask:
    """Make an environment ready for TRL's `GRPOTrainer`; close the task when training is done, or use it in `with`.

    An environment without tools must end with its first answer: it is scored by the reward functions alone, from the
    sampled tokens. One with tools runs while TRL samples.

    Args:
        env: an id, as for `corrgrpo_train --env`.
        tokenizer: the policy's. Answers are read from its tokens: TRL's own texts lack special tokens and thoughts.
        env_args: constructor arguments, `reward_weights` among them, without `split`.
        splits: of which data sets are made.
        limit: rows of a data set at most; must be given where the environment has no list of tasks.
        max_prompt_tokens: tasks with a longer first prompt are left out.
        stop_token_ids: tokens that end a completion, beside the tokenizer's end token and those in the generation
            settings of the model that the tokenizer was loaded from.
        timeout: seconds after which a call of the environment counts as failed.

    Raises:
        UsageError: if an argument is wrong, the environment can't be made, or TRL can't run it.
    """
    arguments = dict(env_args or {})
    _check_splits(arguments, splits)
    chat = Chat(tokenizer, (*end_tokens(getattr(tokenizer, "name_or_path", "") or ""), *stop_token_ids))
    environments = Environments(env, arguments, splits, timeout)
    try:
        return _made(environments, chat, PlainText(tokenizer), limit, max_prompt_tokens)
    except BaseException:
        environments.close()
        raise


def _check_splits(arguments: Mapping[str, Any], splits: Sequence[str]) -> None:
    if "split" in arguments:
        raise UsageError(f"env_args must not name a split: give splits=({str(arguments['split'])!r},)")
    if isinstance(splits, str) or not splits:
        raise UsageError(f"splits must name one split or more, as in splits=('train',), not {splits!r}")


def _made(
    environments: Environments, chat: Chat, plain: PlainText, limit: int | None, max_prompt_tokens: int | None
) -> TrlTask:
    runners = {split: environments.runner(split) for split in environments.splits}
    rows = {split: _rows(runner, split, chat, plain, limit, max_prompt_tokens) for split, runner in runners.items()}
    names, weights = _components(next(iter(runners.values())))
    toolsets = _toolsets(rows)
    factories = {
        name: tool_environment(schemas, environments, plain, chat.eos_ids) for name, schemas in toolsets.items()
    }
    if factories:
        environments.release()  # each rollout has one of its own
    scored = OnceScored(_settled if factories else _Answers(environments, chat))
    return TrlTask(
        datasets={split: Dataset.from_list(found) for split, found in rows.items()},
        reward_funcs=[ComponentReward(name, weights[name], scored, chat.eos_ids) for name in names],
        reward_weights=[weights[name] for name in names],
        environment_factory=factories or None,
        environments=environments,
    )


def _rows(
    runner: EpisodeRunner, split: str, chat: Chat, plain: PlainText, limit: int | None, max_prompt_tokens: int | None
) -> list[Row]:
    """A row for each task whose first prompt is short enough; `tools` still as the observation's text."""
    if gives_test_tasks(runner):
        raise UsageError(f"env {runner.name!r} is for evaluation: name its split, splits=('test',), to train on it")
    tasks = listed_tasks(runner)
    if tasks is None and limit is None:
        raise UsageError("the environment has no list of tasks; give limit, the number of seeds to take")
    ids: Sequence[str | None] = [None] * (limit or 0) if tasks is None else [task for task, _ in tasks]
    first = first_seed(split) if tasks is None else 0
    rows: list[Row] = []
    for seed, task_id in enumerate(ids, start=first):
        if limit is not None and len(rows) == limit:
            break
        observation = checked(functools.partial(runner.reset, Start(task_id, seed)))
        messages = [{**message, "content": plain(message["content"])} for message in observation["messages"]]
        tools = observation.get("tools", "[]")
        if max_prompt_tokens is None or len(chat.opening(messages, tools)) <= max_prompt_tokens:
            rows.append({"prompt": messages, "task_id": task_id, "seed": seed, "split": split, "tools": tools})
    if not rows:
        raise UsageError(f"no task of split {split!r} has a prompt of at most {max_prompt_tokens} tokens; raise it")
    return rows


def _toolsets(rows: Mapping[str, list[Row]]) -> dict[str, list[Mapping[str, Any]]]:
    """The different sets of tools by name; rows get their name as `environment`, which tells TRL what to show."""
    names: dict[str, str] = {}
    toolsets: dict[str, list[Mapping[str, Any]]] = {}
    every = [row for found in rows.values() for row in found]
    if all(json.loads(row["tools"]) == [] for row in every):
        for row in every:
            del row["tools"]
        return {}
    for row in every:
        text = row.pop("tools")
        key = json.dumps(json.loads(text), sort_keys=True)
        if key not in names:
            names[key] = f"tools_{len(names)}"
            toolsets[names[key]] = json.loads(text)
        row["environment"] = names[key]
    return toolsets


def _components(runner: EpisodeRunner) -> tuple[list[str], dict[str, float]]:
    """Names in order and weights of the components."""
    spec = getattr(runner.env.unwrapped, "reward_spec", None)
    if spec is not None:
        return list(spec.names), dict(spec.weights)
    episode = Episode(0, 0, "")
    tasks = listed_tasks(runner)
    checked(lambda: runner.reset(Start(tasks[0][0] if tasks else None, 0)))
    break_off(episode, runner)
    if not episode.components:
        raise UsageError(f"env {runner.name!r} names no reward components: {episode.error or 'there are none'}")
    return list(episode.components), episode.weights


class _Answers:
    """Scores answers that end their episode."""

    def __init__(self, environments: Environments, chat: Chat) -> None:
        self.environments, self.chat = environments, chat

    def __call__(self, *, completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[Episode]:
        known = [name for name in COLUMNS if name in columns]
        begun = [beginning({name: columns[name][place] for name in known}) for place in range(len(completion_ids))]
        return [
            self._episode(self.environments.runner(split), start, self.chat.text(ids))
            for (start, split), ids in zip(begun, completion_ids, strict=True)
        ]

    def _episode(self, runner: EpisodeRunner, start: Start, text: str) -> Episode:
        episode = Episode(0, 0, start.label)
        first = reset(runner, start)
        if isinstance(first, EnvironmentFailedError):
            fail(episode, first)
            return episode
        result = step(runner, text, False)
        if not isinstance(result, EnvironmentFailedError) and not result.ended:
            raise UsageError(
                "the environment goes on after the first answer and its observations list no tools: TRL can't run it; "
                "have them listed (AgentDojo: tool_schemas other than 'signatures'), or train with "
                "python -m corrgrpo_train"
            )
        take(episode, (), text, result)
        return episode


def _settled(
    *,
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    environments: Sequence[Any] | None = None,
    **_: Any,
) -> list[Episode]:
    """The episodes that ran while TRL sampled, brought to their end."""
    if environments is None or not all(isinstance(one, ToolEpisode) for one in environments):
        raise UsageError("the environment has tools: give the trainer environment_factory=task.environment_factory")
    rollouts = zip(environments, completions, completion_ids, strict=True)
    return [episode._settle(messages, ids) for episode, messages, ids in rollouts]
