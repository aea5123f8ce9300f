"""The ways to collect episodes, by the name that settings give them."""

from collections.abc import Sequence
from typing import Protocol

from corrgrpo_train.engines import Engine
from corrgrpo_train.rollout.asynchronous import collect_async
from corrgrpo_train.rollout.chat import Chat
from corrgrpo_train.rollout.collect import collect
from corrgrpo_train.rollout.environment import EpisodeRunner, Start
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.rollout.turns import Limits


class Schedule(Protocol):
    """Runs one episode for each start; see `collect`."""

    def __call__(
        self,
        starts: Sequence[tuple[int, int, Start]],
        runners: Sequence[EpisodeRunner],
        engine: Engine,
        chat: Chat,
        limits: Limits,
        *,
        temperature: float,
        key: tuple[int, ...],
        workers: int = 1,
    ) -> list[Episode]:
        """Return the episodes in the order of their starts."""


SCHEDULES: dict[str, Schedule] = {"lockstep": collect, "async": collect_async}
