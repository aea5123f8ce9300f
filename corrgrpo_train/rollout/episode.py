"""Episodes: what a rollout brings back."""

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class TokenSequence:
    """An episode's tokens with their provenance.

    Attributes:
        token_ids: everything the policy saw and sampled, in order.
        sampled: True where the policy sampled the token; only those are trained on.
        behaviour_logprobs: the engine's log-probability of each sampled token, 0 elsewhere.
    """

    token_ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    behaviour_logprobs: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def prompt_length(self) -> int:
        """Number of tokens before the first sampled one."""
        return self.sampled.index(True) if True in self.sampled else len(self.sampled)

    @property
    def completion_length(self) -> int:
        """Number of sampled tokens, all turns together."""
        return sum(self.sampled)

    def add_given(self, token_ids: list[int]) -> None:
        """Append tokens that the policy did not sample."""
        self.token_ids += token_ids
        self.sampled += [False] * len(token_ids)
        self.behaviour_logprobs += [0.0] * len(token_ids)

    def add_sampled(self, token_ids: tuple[int, ...], logprobs: tuple[float, ...]) -> None:
        """Append tokens that the policy sampled, with the engine's log-probabilities."""
        self.token_ids += token_ids
        self.sampled += [True] * len(token_ids)
        self.behaviour_logprobs += logprobs


@dataclass(slots=True)
class Episode:
    """One episode of one member of a group.

    Attributes:
        group: number of the group in its rollout.
        member: number of the episode in its group.
        task_id: the task, or the seed where the environment has no tasks.
        tokens: the episode's tokens.
        components: raw reward components, summed over the steps; empty if the environment failed.
        weights: their weights, as the environment reported them.
        reward: the environment's own scalar, summed over the steps.
        status: the last step's status, or `"environment_error"`.
        metrics: the last step's metrics.
        truncated: the episode was cut.
        texts: the assistant's texts, one a turn.
        error: the environment's error, if it failed twice.
    """

    group: int
    member: int
    task_id: str
    tokens: TokenSequence = field(default_factory=TokenSequence)
    components: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    reward: float = 0.0
    status: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    truncated: bool = False
    texts: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def valid(self) -> bool:
        """Whether the episode was scored: no component of non-zero weight is `nan`."""
        return bool(self.components) and not any(
            math.isnan(value) for name, value in self.components.items() if self.weights[name] != 0
        )
