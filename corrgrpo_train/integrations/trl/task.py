"""`trl_task`: an environment as data sets, reward functions, weights and environments of TRL's `GRPOTrainer`."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset

from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl.rewards import ComponentReward, OnceScored
from corrgrpo_train.integrations.trl.tools import ToolEpisode, tool_environment, tools_key
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.environment import EnvironmentFailedError, EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.groups import checked, listed_tasks
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
    """

    datasets: Mapping[str, Dataset]
    reward_funcs: list[ComponentReward]
    reward_weights: list[float]
    environment_factory: dict[str, Callable[[], ToolEpisode]] | None


def trl_task(
    env: str,
    tokenizer: Any,
    *,
    env_args: Mapping[str, Any] | None = None,
    splits: Sequence[str] = ("train",),
    limit: int | None = None,
    max_prompt_tokens: int | None = None,
    timeout: float | None = 600.0,
) -> TrlTask:
    """Make an environment ready for TRL's `GRPOTrainer`.

    An environment without tools must end with its first answer: it is scored by the reward functions alone, from the
    sampled tokens. One with tools runs while TRL samples.

    Args:
        env: an id, as for `corrgrpo_train --env`.
        tokenizer: the policy's. Answers are read from its tokens: TRL's own texts lack special tokens and thoughts.
        env_args: constructor arguments, `reward_weights` among them, without `split`.
        splits: of which data sets are made.
        limit: rows of a data set at most; must be given where the environment has no list of tasks.
        max_prompt_tokens: tasks with a longer first prompt are left out.
        timeout: seconds after which a call of the environment counts as failed.

    Raises:
        UsageError: if the environment can't be made, or TRL can't run it.
    """
    chat = Chat(tokenizer)
    arguments = dict(env_args or {})

    def make(split: str) -> EpisodeRunner:
        return EpisodeRunner(env, {**arguments, "split": split}, timeout=timeout)

    runners = {split: make(split) for split in splits}
    rows = {split: _rows(runner, split, chat, limit, max_prompt_tokens) for split, runner in runners.items()}
    toolsets = _toolsets(rows)
    factories = {name: tool_environment(schemas, make) for name, schemas in toolsets.items()}
    names, weights = _components(next(iter(runners.values())))
    scored = OnceScored(_settled if factories else _Answers(runners, chat))
    return TrlTask(
        datasets={split: Dataset.from_list(found) for split, found in rows.items()},
        reward_funcs=[ComponentReward(name, weights[name], scored) for name in names],
        reward_weights=[weights[name] for name in names],
        environment_factory=factories or None,
    )


def _rows(runner: EpisodeRunner, split: str, chat: Chat, limit: int | None, max_prompt_tokens: int | None) -> list[Row]:
    """A row for each task whose first prompt is short enough; `tools` still as the observation's text."""
    tasks = listed_tasks(runner)
    if tasks is None and limit is None:
        raise UsageError("the environment has no list of tasks; give limit, the number of seeds to take")
    ids: Sequence[str | None] = [None] * (limit or 0) if tasks is None else [task for task, _ in tasks]
    rows: list[Row] = []
    for seed, task_id in enumerate(ids):
        if limit is not None and len(rows) == limit:
            break
        observation = checked(functools.partial(runner.reset, Start(task_id, seed)))
        messages = [dict(message) for message in observation["messages"]]
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
        key = tools_key(text)
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
    runner.reset(Start(tasks[0][0] if tasks else None, 0))
    break_off(episode, runner)
    return list(episode.components), episode.weights


class _Answers:
    """Scores answers that end their episode."""

    def __init__(self, runners: Mapping[str, EpisodeRunner], chat: Chat) -> None:
        self.runners, self.chat = runners, chat

    def __call__(
        self,
        *,
        completion_ids: Sequence[Sequence[int]],
        task_id: Sequence[str | None],
        seed: Sequence[int],
        split: Sequence[str],
        **_: Any,
    ) -> list[Episode]:
        return [
            self._episode(self.runners[name], Start(task, number), self.chat.text(ids))
            for ids, task, number, name in zip(completion_ids, task_id, seed, split, strict=True)
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
                "the environment goes on after the first answer and has no tools: TRL can't run it; train with "
                "python -m corrgrpo_train"
            )
        take(episode, (), text, result)
        return episode


def _settled(*, completions: Sequence[Any], environments: Sequence[ToolEpisode], **_: Any) -> list[Episode]:
    """The episodes that ran while TRL sampled, brought to their end."""
    return [episode._settle(messages) for episode, messages in zip(environments, completions, strict=True)]
