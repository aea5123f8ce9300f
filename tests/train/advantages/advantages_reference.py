"""A slow second implementation, from the formulas: lists, loops, a K × K correlation matrix, no tensors."""

import math
from math import fsum, sqrt
from statistics import NormalDist


def mean(values):
    return fsum(values) / len(values)


def covariance(a, b):
    """Sample covariance, ddof 1; 0 for a single value."""
    if len(a) < 2:
        return 0.0
    mean_a, mean_b = mean(a), mean(b)
    return fsum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / (len(a) - 1)


def is_constant(column):
    return max(column) - min(column) <= 1e-9 * max(abs(value) for value in column)


def correlation_matrix(columns):
    """Pearson correlations; a constant column has none, also not with itself."""
    size = len(columns)
    live = [not is_constant(column) for column in columns]
    matrix = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(size):
            if live[i] and live[j]:
                product = sqrt(covariance(columns[i], columns[i])) * sqrt(covariance(columns[j], columns[j]))
                matrix[i][j] = covariance(columns[i], columns[j]) / product
    return matrix


class Reference:
    """One batch. Rows are lists of K floats; every method returns N advantages."""

    def __init__(self, rows, labels, weights, lengths=None):
        self.weights, self.size = weights, len(rows)
        self.scored = [
            i for i, row in enumerate(rows) if not any(math.isnan(r) for r, w in zip(row, weights, strict=True) if w)
        ]
        self.lengths = lengths
        self.members = {label: [i for i in self.scored if labels[i] == label] for label in sorted(set(labels))}
        self.counted = [k for k, w in enumerate(weights) if w != 0]
        self.columns = {
            label: {k: [rows[i][k] for i in rows_of] for k in self.counted}
            for label, rows_of in self.members.items()
            if rows_of
        }

    def _each(self, per_group):
        out = [0.0] * self.size
        for label in self.columns:
            for i, value in zip(self.members[label], per_group(label), strict=True):
                out[i] = value
        return out

    def total(self, label):
        """Centred weighted total of a group's rows."""
        live = {k: column for k, column in self.columns[label].items() if not is_constant(column)}
        means = {k: mean(column) for k, column in live.items()}
        return [
            fsum(self.weights[k] * (column[i] - means[k]) for k, column in live.items())
            for i in range(len(self.members[label]))
        ]

    def correlation_sum(self, label):
        signed = [
            [math.copysign(1, self.weights[k]) * value for value in column] for k, column in self.columns[label].items()
        ]
        return fsum(fsum(row) for row in correlation_matrix(signed))

    def grpo(self, epsilon=1e-6):
        def group(label):
            total = self.total(label)
            std = sqrt(covariance(total, total))
            return [t / (std + epsilon) for t in total]

        return self._each(group)

    def dr_grpo(self):
        return self._each(self.total)

    def rloo(self):
        """The total less the mean of the others' totals, literally."""

        def group(label):
            total = self.total(label)
            if len(total) == 1:
                return [0.0]
            return [t - mean(total[:i] + total[i + 1 :]) for i, t in enumerate(total)]

        return self._each(group)

    def scores(self, epsilon):
        """w_l z_il for every scored row, as a dict from row to a list over components."""
        out = {i: [] for i in self.scored}
        for label, columns in self.columns.items():
            for k, column in columns.items():
                std = 0.0 if is_constant(column) else sqrt(covariance(column, column))
                for i, value in zip(self.members[label], column, strict=True):
                    score = 0.0 if is_constant(column) else (value - mean(column)) / (std + epsilon)
                    out[i].append(self.weights[k] * score)
        return out

    def mo_grpo(self, epsilon=1e-6):
        scores = self.scores(epsilon)
        return [fsum(scores.get(i, [])) for i in range(self.size)]

    def _repeated(self, values, whitening):
        """The values that a batch statistic is over: one per completion, or one per token."""
        if whitening == "completions":
            return [values[i] for i in self.scored]
        return [values[i] for i in self.scored for _ in range(self.lengths[i])]

    def gdpo(self, whitening="completions", epsilon=None):
        epsilon = {"completions": 1e-4, "tokens": 1e-6}[whitening] if epsilon is None else epsilon
        summed = self.mo_grpo(epsilon)
        counted = self._repeated(summed, whitening)
        centre, variance = (mean(counted), covariance(counted, counted)) if counted else (0.0, 0.0)
        divisor = sqrt(variance) + epsilon if whitening == "completions" else sqrt(variance + 1e-8)
        return [(summed[i] - centre) / divisor if i in set(self.scored) else 0.0 for i in range(self.size)]

    def corr_gdpo(self, whitening="completions", epsilon=1e-6, floor=0.1):
        component_epsilon = {"completions": 1e-4, "tokens": 1e-6}[whitening]
        scores = self.scores(component_epsilon)
        summed = self.mo_grpo(component_epsilon)
        counted = self._repeated(summed, whitening)
        centre = mean(counted) if counted else 0.0
        rows = [i for i in self.scored if whitening == "completions" or self.lengths[i] > 0]
        columns = [[scores[i][k] for i in rows] for k in range(len(self.counted))] if rows else []
        correlations = fsum(fsum(row) for row in correlation_matrix(columns))
        divisor = sqrt(max(correlations, floor) + epsilon)
        return [(summed[i] - centre) / divisor if i in set(self.scored) else 0.0 for i in range(self.size)]

    def factor(self, label, floor, epsilon=1e-6):
        return 1 / sqrt(max(self.correlation_sum(label), floor) + epsilon)

    def corrgrpo(self, floor=0.1, epsilon=1e-6):
        return self._each(lambda label: [t * self.factor(label, floor, epsilon) for t in self.total(label)])

    def matched(self, floor=0.1):
        own, target = self.dr_grpo(), self.corrgrpo(floor)
        size = fsum(abs(a) for a in own)
        scale = fsum(abs(a) for a in target) / size if size else 0.0
        return [a * scale for a in own]

    def shuffled(self, permute, floor=0.1):
        """`permute(n)` returns the permutation of n groups."""
        live = [label for label in self.columns if max(abs(t) for t in self.total(label)) > 1e-9]
        order = permute(len(live))
        dealt = {label: self.factor(live[order[i]], floor) for i, label in enumerate(live)}
        return self._each(lambda label: [t * dealt.get(label, 1.0) for t in self.total(label)])

    def rdpo(self, magnitude=0.5, ridge=0.01):
        """Our reconstruction, group by group, with ranks counted pair by pair and an iterated matrix root."""

        def group(label):
            columns = self.columns[label]
            live = {k: column for k, column in columns.items() if not is_constant(column)}
            size = len(self.members[label])
            scores = []
            for column in live.values():
                ranks = mid_ranks(column)
                quantiles = unit([NormalDist().inv_cdf((rank - 0.5) / size) for rank in ranks])
                z = unit(column)
                scores.append(unit([(1 - magnitude) * q + magnitude * x for q, x in zip(quantiles, z, strict=True)]))
            if not live:
                return [0.0] * size
            root = inverse_root(
                [
                    [covariance(a, b) + (ridge if i == j else 0.0) for j, b in enumerate(scores)]
                    for i, a in enumerate(scores)
                ]
            )
            weights = [self.weights[k] for k in live]
            factor = [fsum(row[j] * weights[j] for j in range(len(weights))) for row in root]
            return [fsum(score[i] * f for score, f in zip(scores, factor, strict=True)) for i in range(size)]

        return self._each(group)


def unit(column):
    """Centred, of sample standard deviation 1; zeros where all are equal."""
    spread = sqrt(covariance(column, column))
    return [(value - mean(column)) / spread if spread else 0.0 for value in column]


def mid_ranks(column):
    """Values within a constant component's tolerance are equal, and what is equal to an equal one as well."""
    tolerance = 1e-9 * max(abs(value) for value in column)
    ordered = sorted(column)
    runs = [[ordered[0]]]
    for value in ordered[1:]:
        if value - runs[-1][-1] > tolerance:
            runs.append([])
        runs[-1].append(value)
    ranks, before = {}, 0
    for run in runs:
        ranks.update(dict.fromkeys(run, before + (len(run) + 1) / 2))
        before += len(run)
    return [ranks[value] for value in column]


def inverse_root(matrix):
    """Inverse square root of a symmetric positive matrix by Jacobi's rotations."""
    size = len(matrix)
    a = [list(row) for row in matrix]
    v = [[float(i == j) for j in range(size)] for i in range(size)]
    for _ in range(60):
        for p in range(size):
            for q in range(p + 1, size):
                if abs(a[p][q]) < 1e-300:
                    continue
                angle = math.atan2(2 * a[p][q], a[q][q] - a[p][p]) / 2
                c, s = math.cos(angle), math.sin(angle)
                for m in (a, v):
                    for row in m:
                        row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
                a[p], a[q] = (
                    [c * x - s * y for x, y in zip(a[p], a[q], strict=True)],
                    [s * x + c * y for x, y in zip(a[p], a[q], strict=True)],
                )
    return [
        [fsum(v[i][k] * v[j][k] / sqrt(max(a[k][k], 1e-300)) for k in range(size)) for j in range(size)]
        for i in range(size)
    ]
