"""The assignment problem: pairing rows and columns of a table so that the sum of the pairs is greatest."""

import numpy as np
from numpy.typing import NDArray


def best_assignment(worth: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pair rows with columns, each used at most once, so that the total worth is greatest.

    The Hungarian method with shortest augmenting paths (Kuhn 1955; Jonker and Volgenant 1987): rows are added
    one at a time, each along the cheapest path of changed pairs, found with dual prices as in Dijkstra's
    algorithm. O(r² c) for r rows and c columns, r <= c.

    Args:
        worth: table of finite numbers, shape (rows, columns).

    Returns:
        min(rows, columns) pairs (row, column), ordered by row.
    """
    if worth.shape[0] > worth.shape[1]:
        return sorted((row, column) for column, row in best_assignment(worth.T))
    rows, columns = worth.shape
    cost = worth.max(initial=0.0) - worth
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    row_of = np.full(columns, -1)  # the row that a column is paired with
    for new_row in range(rows):
        shortest = np.full(columns, np.inf)  # length of the cheapest path to each column
        before = np.full(columns, -1)  # the column before it on that path
        done = np.zeros(columns, dtype=bool)
        row, last, length = new_row, -1, 0.0
        while row >= 0:
            through = length + cost[row] - row_price[row] - column_price
            nearer = ~done & (through < shortest)
            shortest[nearer] = through[nearer]
            before[nearer] = last
            last = int(np.where(done, np.inf, shortest).argmin())
            length = float(shortest[last])
            done[last] = True
            row = int(row_of[last])
        # New prices keep every reduced cost non-negative and those of pairs zero.
        gain = length - shortest[done]
        row_price[new_row] += length
        paired = row_of[done]
        row_price[paired[paired >= 0]] += gain[paired >= 0]
        column_price[done] -= gain
        while last >= 0:
            previous = int(before[last])
            row_of[last] = row_of[previous] if previous >= 0 else new_row
            last = previous
    return sorted((int(row), column) for column, row in enumerate(row_of) if row >= 0)
