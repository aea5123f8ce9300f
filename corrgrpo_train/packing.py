"""Rows of tokens in which a group's shared prompt stands once.

A row is a prompt followed by the completions of several sequences. Each completion sees the prompt and itself,
and its positions go on from the prompt, so every log-probability is the same function as in a row of its own,
while the prompt is computed once instead of once per sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from corrgrpo_train.rollout.episode import TokenSequence

_PADDING = -1


@dataclass(frozen=True, slots=True)
class PackedRow:
    """One row before padding.

    Attributes:
        token_ids, positions: length L.
        segments: length L; 0 for the prompt, 1, 2, … for the completions.
        sources: T places whose hidden state predicts a sampled token.
        targets: the T sampled tokens.
        owners: for each sampled token the number of its sequence.
        places: for each sampled token its place in that sequence.
    """

    token_ids: list[int]
    positions: list[int]
    segments: list[int]
    sources: list[int]
    targets: list[int]
    owners: list[int]
    places: list[int]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Padded rows with what is read off them.

    Attributes:
        input_ids, position_ids: (R, L) int64.
        segments: (R, L) int64; −1 for padding.
        rows, sources, targets: (T,) int64; the hidden state at [rows, sources] predicts `targets`.
        owners, places: (T,) int64; the sampled token is token `places` of sequence `owners`.
        shared: whether any row holds more than one completion (else plain causal attention is enough).
    """

    input_ids: Tensor
    position_ids: Tensor
    segments: Tensor
    rows: Tensor
    sources: Tensor
    targets: Tensor
    owners: Tensor
    places: Tensor
    shared: bool

    @property
    def mask(self) -> Tensor:
        """Attention mask, bool (R, 1, L, L): True where the query (row) may look at the key (column)."""
        length = self.input_ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.input_ids.device).tril()
        query, key = self.segments.unsqueeze(2), self.segments.unsqueeze(1)
        visible = causal & ((key == 0) | (key == query)) & (key != _PADDING)
        # Padding looks at itself: a row without any key would be nan.
        visible |= torch.eye(length, dtype=torch.bool, device=visible.device)
        return visible.unsqueeze(1)


def without_targets(batch: MicroBatch) -> MicroBatch:
    """The batch with nothing to read off: a pass over it takes part in what all processes do, and adds nothing."""
    nothing = {name: getattr(batch, name)[:0] for name in ("rows", "sources", "targets", "owners", "places")}
    return replace(batch, **nothing)


def micro_batches(
    sequences: Sequence[TokenSequence], groups: Sequence[int], token_budget: int, *, shared: bool = True
) -> list[MicroBatch]:
    """Pack sequences into rows and rows into micro-batches of at most `token_budget` tokens, padding included.

    Args:
        sequences: episodes' tokens; each has at least one sampled token.
        groups: label of each sequence; sequences of one group with equal prompts share them.
        token_budget: a single sequence longer than this gets a micro-batch of its own.
        shared: False gives every sequence a row of its own.
    """
    rows = _rows(sequences, groups, token_budget, shared=shared)
    rows.sort(key=len, reverse=True)
    batches: list[list[PackedRow]] = []
    for row in rows:
        if batches and (len(batches[-1]) + 1) * len(batches[-1][0]) <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return [_padded(batch) for batch in batches]


def _rows(
    sequences: Sequence[TokenSequence], groups: Sequence[int], token_budget: int, *, shared: bool
) -> list[PackedRow]:
    families: dict[tuple[object, ...], list[int]] = {}
    for number, (sequence, group) in enumerate(zip(sequences, groups, strict=True)):
        prompt = tuple(sequence.token_ids[: sequence.prompt_length])
        families.setdefault((group, prompt) if shared else (number,), []).append(number)
    rows: list[PackedRow] = []
    for members in families.values():
        # Longest first: rows of one family then have similar lengths.
        members.sort(key=lambda number: -len(sequences[number]))
        prompt_length = sequences[members[0]].prompt_length
        chunk: list[int] = []
        used = prompt_length
        for number in members:
            extra = len(sequences[number]) - prompt_length
            if chunk and used + extra > token_budget:
                rows.append(_row(sequences, chunk))
                chunk, used = [], prompt_length
            chunk.append(number)
            used += extra
        rows.append(_row(sequences, chunk))
    return rows


def _row(sequences: Sequence[TokenSequence], numbers: Sequence[int]) -> PackedRow:
    prompt_length = sequences[numbers[0]].prompt_length
    row = PackedRow(
        token_ids=list(sequences[numbers[0]].token_ids[:prompt_length]),
        positions=list(range(prompt_length)),
        segments=[0] * prompt_length,
        sources=[],
        targets=[],
        owners=[],
        places=[],
    )
    for segment, number in enumerate(numbers, start=1):
        sequence = sequences[number]
        start = len(row) - prompt_length  # place of the sequence's token p in the row is start + p
        row.token_ids.extend(sequence.token_ids[prompt_length:])
        row.positions.extend(range(prompt_length, len(sequence)))
        row.segments.extend([segment] * (len(sequence) - prompt_length))
        for place in range(prompt_length, len(sequence)):
            if sequence.sampled[place]:
                # The first token of a completion is predicted by the last one of the prompt, which all share.
                row.sources.append(place - 1 if place == prompt_length else start + place - 1)
                row.targets.append(sequence.token_ids[place])
                row.owners.append(number)
                row.places.append(place)
    return row


def _padded(rows: Sequence[PackedRow]) -> MicroBatch:
    length = max(map(len, rows))

    def grid(name: str, filler: int) -> Tensor:
        return torch.tensor([getattr(row, name) + [filler] * (length - len(row)) for row in rows])

    def flat(name: str) -> Tensor:
        return torch.tensor([value for row in rows for value in getattr(row, name)])

    return MicroBatch(
        input_ids=grid("token_ids", 0),
        position_ids=grid("positions", 0),
        segments=grid("segments", _PADDING),
        rows=torch.tensor([index for index, row in enumerate(rows) for _ in row.targets]),
        sources=flat("sources"),
        targets=flat("targets"),
        owners=flat("owners"),
        places=flat("places"),
        shared=any(2 in row.segments for row in rows),
    )
