"""Every estimator against the loop implementation on thousands of seeded random batches."""

import functools
import math
import random

import pytest
import torch
from advantages_reference import Reference

from corrgrpo_train.advantages import ESTIMATORS, estimate

torch.set_num_threads(1)
CASES = 1500


def random_column(rng, size):
    """One component: binary, decimal, Gaussian on some scale, constant or nearly so."""
    kind = rng.randrange(6)
    if kind == 0:
        return [float(rng.random() < 0.5) for _ in range(size)]
    if kind == 1:
        return [rng.randrange(11) / 10 for _ in range(size)]
    if kind == 2:
        scale, shift = 10 ** rng.uniform(-3, 3), rng.choice([0.0, 5.0, -100.0])
        return [shift + scale * rng.gauss(0, 1) for _ in range(size)]
    if kind == 3:
        return [rng.choice([0.05, 0.1, 0.3, 1 / 3, 0.0, -1.5])] * size
    if kind == 4:
        third = rng.choice([(0.1 + 0.2 + 0.3) / 1.8, (0.3 + 0.2 + 0.1) / 1.8])
        return [third if rng.random() < 0.5 else 1 / 3 for _ in range(size)]
    return [float(rng.random() < 0.9) for _ in range(size)]


@functools.cache
def random_batch(seed):
    rng = random.Random(seed)
    size, width = rng.randint(1, 24), rng.randint(1, 5)
    columns = [random_column(rng, size) for _ in range(width)]
    if width > 1 and rng.random() < 0.4:  # a copy or an opposite of another component
        columns[1] = [value if rng.random() < 0.9 else 0.5 for value in columns[0]]
        if rng.random() < 0.5:
            columns[1] = [1.0 - value for value in columns[0]]
    rows = [list(row) for row in zip(*columns, strict=True)]
    labels = [rng.choice([-7, 0, 3, 10**12]) for _ in range(size)]
    weights = [rng.choice([1.0, 0.05, 0.6, -0.5, 0.0, 2.0]) for _ in range(width)]
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 3)):
            rows[rng.randrange(size)][rng.randrange(width)] = math.nan
    lengths = [rng.choice([0, 1, 2, 5, 40]) for _ in range(size)]
    return rows, labels, weights, lengths


def permutation(seed):
    return lambda n: torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()


VARIANTS = {
    "grpo": [({}, lambda r: r.grpo()), ({"epsilon": 1e-4}, lambda r: r.grpo(1e-4))],
    "dr_grpo": [({}, lambda r: r.dr_grpo())],
    "rloo": [({}, lambda r: r.rloo())],
    "mo_grpo": [({}, lambda r: r.mo_grpo()), ({"epsilon": 1e-2}, lambda r: r.mo_grpo(1e-2))],
    "gdpo": [
        ({}, lambda r: r.gdpo()),
        ({"epsilon": 1e-2}, lambda r: r.gdpo(epsilon=1e-2)),
        ({"whitening": "tokens"}, lambda r: r.gdpo("tokens")),
    ],
    "corr_gdpo": [
        ({}, lambda r: r.corr_gdpo()),
        ({"whitening": "tokens", "paper_exact": True}, lambda r: r.corr_gdpo("tokens", floor=0.0)),
        ({"min_correlation_sum": 0.5, "epsilon": 0.01}, lambda r: r.corr_gdpo(floor=0.5, epsilon=0.01)),
    ],
    "corrgrpo": [
        ({}, lambda r: r.corrgrpo()),
        ({"paper_exact": True}, lambda r: r.corrgrpo(0.0)),
        ({"min_correlation_sum": 1.0, "epsilon": 0.1}, lambda r: r.corrgrpo(1.0, 0.1)),
    ],
    "rdpo": [
        ({}, lambda r: r.rdpo()),
        ({"magnitude": 0.0, "ridge": 0.1}, lambda r: r.rdpo(0.0, 0.1)),
        ({"magnitude": 1.0, "ridge": 1.0}, lambda r: r.rdpo(1.0, 1.0)),
    ],
    "matched": [({}, lambda r: r.matched()), ({"paper_exact": True}, lambda r: r.matched(0.0))],
    "shuffled": [
        ({}, lambda r: r.shuffled(permutation(0))),
        ({"seed": 11, "paper_exact": True}, lambda r: r.shuffled(permutation(11), 0.0)),
    ],
}


def test_every_estimator_has_a_reference():
    assert set(VARIANTS) >= set(ESTIMATORS) - {"centered"}


@pytest.mark.parametrize("name", VARIANTS)
def test_agrees_with_the_loops(name):
    for seed in range(CASES):
        rows, labels, weights, lengths = random_batch(seed)
        reference = Reference(rows, labels, weights, lengths)
        options, expected_of = VARIANTS[name][seed % len(VARIANTS[name])]
        expected = torch.tensor(expected_of(reference), dtype=torch.float64)
        found = estimate(name, rows, labels, weights, lengths, **options).advantages.double()
        bound = 1e-6 * (1 + expected.abs().max().item())
        assert (found - expected).abs().max().item() <= bound, (seed, options)


def test_correlation_sum_agrees_with_the_matrix():
    for seed in range(500):
        rows, labels, weights, _ = random_batch(seed)
        reference = Reference(rows, labels, weights)
        found = estimate("corrgrpo", rows, labels, weights).diagnostics
        for label, value in zip(found["group"].tolist(), found["correlation_sum"].tolist(), strict=True):
            if reference.members[label]:
                assert value == pytest.approx(reference.correlation_sum(label), abs=1e-9)
            else:
                assert math.isnan(value)
