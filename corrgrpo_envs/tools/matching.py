"""Which predicted call answers which call of the ground truth, and how alike two lists of names are.

Only calls of one name can be paired. A pair's worth is p + v: p, the similarity of the two sets of parameter
names, and v, the number of the ground truth's parameters that the predicted call has with an equal value.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corrgrpo_envs.tools.assignment import best_assignment
from corrgrpo_envs.tools.calls import NAN, Call

MAX_OPTIMAL = 200
"""Up to this many calls of one tool, on either side, that have no identical partner are matched optimally."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A call of the ground truth and the predicted call that answers it.

    Attributes:
        reference: index of the ground truth's call.
        predicted: index of the predicted call.
        names: p, the similarity of the parameter names, 0 to 1.
        values: v, the number of parameters of the ground truth that have an equal value.
    """

    reference: int
    predicted: int
    names: float
    values: int


Matching = Callable[[Sequence[Call], Sequence[Call]], list[Pair]]


def name_similarity(reference: Sequence[str], predicted: Sequence[Any]) -> float:
    """Multiset intersection over union of two lists of names, 0 to 1; 1 if both are empty.

    Only text is looked up: no other value equals a name of the ground truth, and numbers in an answer could
    be chosen so that their hashes collide.
    """
    wanted = Counter(reference)
    found = Counter(name for name in predicted if isinstance(name, str) and name in wanted)
    common = sum(min(count, found[name]) for name, count in wanted.items())
    union = len(reference) + len(predicted) - common
    return common / union if union else 1.0


class Worth:
    """p and v of every ground-truth call of one tool against every predicted one, a row at a time.

    Rows come from an index of the predicted calls by parameter and value, so that a row costs a few array
    operations however alike the calls are.
    """

    def __init__(self, reference: Sequence[Call], predicted: Sequence[Call]) -> None:
        self._reference = reference
        self._sizes = np.array([len(call.values) for call in predicted], dtype=np.int64)
        wanted = {item for call in reference for item in call.values.items() if item[1] != NAN}
        keys = {key for call in reference for key in call.values}
        having: dict[str, list[int]] = defaultdict(list)
        equal: dict[tuple[str, Hashable], list[int]] = defaultdict(list)
        for column, call in enumerate(predicted):
            for item in call.values.items():
                if item[0] in keys:
                    having[item[0]].append(column)
                    if item in wanted:
                        equal[item].append(column)
        self._having = {key: np.array(columns, dtype=np.intp) for key, columns in having.items()}
        self._equal = {item: np.array(columns, dtype=np.intp) for item, columns in equal.items()}
        self._names: dict[frozenset[str], NDArray[np.float64]] = {}

    def names(self, row: int) -> NDArray[np.float64]:
        """P of the row's ground-truth call against each predicted call, shape (predicted,)."""
        keys = frozenset(self._reference[row].values)
        if keys not in self._names:
            common = np.zeros(len(self._sizes), dtype=np.int64)
            for key in keys:
                if key in self._having:
                    common[self._having[key]] += 1
            union = len(keys) + self._sizes - common
            # Two empty sets of names are alike: 0/0 counts as 1.
            self._names[keys] = np.where(union == 0, 1.0, common / np.maximum(union, 1))
        return self._names[keys]

    def values(self, row: int) -> NDArray[np.int64]:
        """V of the row's ground-truth call against each predicted call, shape (predicted,)."""
        count = np.zeros(len(self._sizes), dtype=np.int64)
        for item in self._reference[row].values.items():
            if item in self._equal:
                count[self._equal[item]] += 1
        return count


def greedy(reference: Sequence[Call], predicted: Sequence[Call]) -> list[Pair]:
    """The published matching: the ground truth's calls in order each take the best unused call of their name.

    Among equally good calls the first is taken; a call worth 0 is not taken.
    """
    pairs: list[Pair] = []
    for rows, columns in _by_name(reference, predicted):
        found = _greedy([reference[row] for row in rows], [predicted[column] for column in columns])
        pairs.extend(_moved(found, rows, columns))
    return sorted(pairs, key=lambda pair: pair.reference)


def optimal(reference: Sequence[Call], predicted: Sequence[Call]) -> list[Pair]:
    """The matching of the greatest total worth.

    Identical calls are paired first, which costs nothing: 1 - p is a distance between sets (Jaccard's) and
    differing values are a distance too, so by the triangle inequality some best matching pairs them. What is
    left is an assignment problem; if more than `MAX_OPTIMAL` calls of one tool are left on either side, they
    are matched greedily, since an exact solution grows with the cube of their number.
    """
    pairs: list[Pair] = []
    for rows, columns in _by_name(reference, predicted):
        same = _identical(reference, predicted, rows, columns)
        pairs.extend(same)
        taken_rows, taken_columns = {p.reference for p in same}, {p.predicted for p in same}
        rows = [row for row in rows if row not in taken_rows]
        columns = [column for column in columns if column not in taken_columns]
        if not rows or not columns:
            continue
        solve = _optimal if max(len(rows), len(columns)) <= MAX_OPTIMAL else _greedy
        found = solve([reference[row] for row in rows], [predicted[column] for column in columns])
        pairs.extend(_moved(found, rows, columns))
    return sorted(pairs, key=lambda pair: pair.reference)


MATCHINGS: Mapping[str, Matching] = {"greedy": greedy, "optimal": optimal}


def _by_name(reference: Sequence[Call], predicted: Sequence[Call]) -> list[tuple[list[int], list[int]]]:
    """Indices of the calls of each name that occurs on both sides."""
    rows: dict[str, list[int]] = defaultdict(list)
    columns: dict[str, list[int]] = defaultdict(list)
    for row, call in enumerate(reference):
        rows[call.name].append(row)
    for column, call in enumerate(predicted):
        if isinstance(call.name, str) and call.name in rows:
            columns[call.name].append(column)
    return [(rows[name], columns[name]) for name in rows if name in columns]


def _moved(pairs: Sequence[Pair], rows: Sequence[int], columns: Sequence[int]) -> list[Pair]:
    return [Pair(rows[pair.reference], columns[pair.predicted], pair.names, pair.values) for pair in pairs]


def _greedy(reference: Sequence[Call], predicted: Sequence[Call]) -> list[Pair]:
    worth = Worth(reference, predicted)
    free = np.ones(len(predicted), dtype=bool)
    pairs = []
    for row in range(len(reference)):
        names, values = worth.names(row), worth.values(row)
        total = np.where(free, names + values, 0.0)
        column = int(total.argmax())
        if total[column] > 0:
            free[column] = False
            pairs.append(Pair(row, column, float(names[column]), int(values[column])))
    return pairs


def _optimal(reference: Sequence[Call], predicted: Sequence[Call]) -> list[Pair]:
    worth = Worth(reference, predicted)
    names = np.stack([worth.names(row) for row in range(len(reference))])
    values = np.stack([worth.values(row) for row in range(len(reference))])
    return [
        Pair(row, column, float(names[row, column]), int(values[row, column]))
        for row, column in best_assignment(names + values)
        if names[row, column] + values[row, column] > 0
    ]


def _identical(
    reference: Sequence[Call], predicted: Sequence[Call], rows: Sequence[int], columns: Sequence[int]
) -> list[Pair]:
    """Pair the calls of one tool that have the same parameters with the same values."""
    waiting: dict[frozenset[tuple[str, Hashable]], list[int]] = defaultdict(list)
    for row in reversed(rows):
        waiting[frozenset(reference[row].values.items())].append(row)
    pairs = []
    for column in columns:
        content = frozenset(predicted[column].values.items())
        if waiting.get(content):
            row = waiting[content].pop()
            comparable = sum(value != NAN for value in reference[row].values.values())
            pairs.append(Pair(row, column, 1.0, comparable))
    return pairs
