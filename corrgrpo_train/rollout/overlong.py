"""`OverlongPenalty`: a reward component for the length of an answer, which no environment can know in tokens."""

from collections.abc import Iterable
from dataclasses import dataclass

from corrgrpo_envs import RewardComponent
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout.episode import Episode


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """DAPO's soft overlong punishment: 0 for answers with room to spare, falling linearly to −1 at the limit.

    Attributes:
        component: name and weight under which it joins the environment's components; low −1, high 0.
        length: L, sampled tokens of an episode, all turns together, from which on it is −1.
        share: share of L, above 0, over which it falls.

    Source: arXiv 2503.14476, Eq. 13, with L_cache = share · L.
    """

    component: RewardComponent
    length: int
    share: float

    @classmethod
    def made(cls, name: str, *, weight: float, length: int, share: float) -> "OverlongPenalty":
        """Make the penalty and its component."""
        meaning = f"0 up to {length * (1 - share):g} sampled tokens, then linearly to -1 at {length}"
        return cls(RewardComponent(name, weight, low=-1.0, high=0.0, description=meaning), length, share)

    def value(self, tokens: int) -> float:
        """The raw component of an episode of so many sampled tokens."""
        free = self.length * (1 - self.share)
        return max(-1.0, min(0.0, (free - tokens) / (self.length - free)))

    def add_to(self, episodes: Iterable[Episode]) -> None:
        """Add the component to every scored episode: to its components, its weights and its reward.

        Raises:
            UsageError: if the environment has a component of this name.
        """
        name, weight = self.component.name, self.component.weight
        for episode in episodes:
            if name in episode.components:
                raise UsageError(f"the environment has a component {name!r} of its own: set overlong_share to 0")
            if not episode.components:
                continue
            value = self.value(episode.tokens.completion_length)
            episode.components = {**episode.components, name: value}
            episode.weights = {**episode.weights, name: weight}
            episode.reward += weight * value
