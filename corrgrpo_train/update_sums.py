"""`TokenSums`: what an update says of its tokens, summed over micro-batches, for the log."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from torch import Tensor

from corrgrpo_train.objectives import Surrogate

NAMES = (
    "entropy",
    "clip_share",
    "clip_share_low",
    "clip_share_high",
    "ratio_mean",
    "engine_mismatch",
    "importance_mean",
)
"""Means over tokens that are always there; `kl` comes with a reference policy."""


@dataclass(slots=True)
class TokenSums:
    """Sums over the tokens of a rollout's updates; `metrics` makes means of them."""

    tokens: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    ratio_min: float = math.inf
    ratio_max: float = -math.inf
    loss: float = 0.0
    skipped: int = 0
    grad_norms: list[float] = field(default_factory=list)

    def add_tokens(
        self,
        surrogate: Surrogate,
        entropies: Tensor,
        divergence: Tensor | None,
        importance: Tensor,
        mismatch: Tensor,
        loss: Tensor,
    ) -> None:
        """Add a micro-batch.

        Args:
            surrogate: of its T tokens.
            entropies: (T,).
            divergence: (T,) from the reference policy, or None without one.
            importance: (T,) factors of the correction for the engine.
            mismatch: (T,) absolute difference between the engine's and the trainer's log-probabilities.
            loss: the micro-batch's part of the surrogate loss.
        """
        ratios = surrogate.ratios
        columns = {
            "entropy": entropies,
            "clip_share": surrogate.clipped,
            "clip_share_low": surrogate.clipped & (ratios < 1),
            "clip_share_high": surrogate.clipped & (ratios > 1),
            "ratio_mean": ratios,
            "engine_mismatch": mismatch,
            "importance_mean": importance,
        }
        if divergence is not None:
            columns["kl"] = divergence
        self.tokens += len(ratios)
        for name, values in columns.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(values.detach().sum())
        self.ratio_min = min(self.ratio_min, float(ratios.min()))
        self.ratio_max = max(self.ratio_max, float(ratios.max()))
        self.loss += float(loss.detach())

    def add_update(self, norm: float) -> None:
        """Add an optimiser update with the norm of its gradient before clipping."""
        self.grad_norms.append(norm)
        self.skipped += not math.isfinite(norm)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The sums of several processes, which made the same updates on different tokens."""
        joined = cls(skipped=parts[0].skipped, grad_norms=parts[0].grad_norms)
        for part in parts:
            joined.tokens, joined.loss = joined.tokens + part.tokens, joined.loss + part.loss
            for name, value in part.sums.items():
                joined.sums[name] = joined.sums.get(name, 0.0) + value
            joined.ratio_min = min(joined.ratio_min, part.ratio_min)
            joined.ratio_max = max(joined.ratio_max, part.ratio_max)
        return joined

    def metrics(self) -> dict[str, float]:
        """Means over tokens, `nan` where there were none; `loss/policy` is a mean over the updates."""
        names = self.sums or dict.fromkeys(NAMES, 0.0)
        return {
            "loss/policy": self.loss / len(self.grad_norms) if self.grad_norms else math.nan,
            **{f"policy/{name}": value / self.tokens if self.tokens else math.nan for name, value in names.items()},
            "policy/ratio_min": self.ratio_min if self.tokens else math.nan,
            "policy/ratio_max": self.ratio_max if self.tokens else math.nan,
            "policy/grad_norm": max(filter(math.isfinite, self.grad_norms), default=math.nan),
            "policy/updates_skipped": float(self.skipped),
            "tokens/trained": float(self.tokens),
        }
