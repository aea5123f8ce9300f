"""The published efficiency metric (CorrGRPO, appendix J.3): in how many pairs the program is faster than its reference.

Both programs of a pair run one right after the other on one core, in rounds whose order alternates. Two adjacent
rounds use the same core, then the next one; every core works through a queue of its own, shuffled for each two rounds.
A pair counts in a round if both pass all tests and return the same in the timed run; a round's value is the percentage
of those pairs in which the program is strictly faster.
"""

import math
import os
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from corrgrpo_envs.errors import shown
from corrgrpo_envs.sandbox import Check, Limits, Round, Sandbox, Times, shared

_MOST_AT_ONCE = 16
_BLOCK = 2  # rounds on one core: one with the reference first, one with the program first


@dataclass(frozen=True, slots=True)
class Pair:
    """A generated program and the reference that it is compared with.

    Attributes:
        program: its source.
        reference: the reference's source.
        check: the test of both.
    """

    program: str
    reference: str
    check: Check


@dataclass(frozen=True, slots=True)
class Clock:
    """The metric by one clock.

    Attributes:
        faster: mean of the rounds' percentages of pairs with the program strictly faster; nan without any pair.
        rounds: percentage of each round; nan where no pair counts.
        spread: standard deviation of `rounds`.
        ratios: for each pair the median over its rounds of the program's time over the reference's; nan without one.
        noise: for each pair half the difference of the medians of log ratios between rounds that begin with the program
            and those that begin with the reference, in absolute value; nan with fewer than two of either.
        undecided: share of the pairs with rounds whose ratio is within their noise, or 1.
    """

    faster: float
    rounds: tuple[float, ...]
    spread: float
    ratios: tuple[float, ...]
    noise: tuple[float, ...]
    undecided: float


@dataclass(frozen=True, slots=True)
class Speed:
    """What `measure` returns.

    Attributes:
        wall: by wall time of the calls, which the published metric uses.
        cpu: by CPU time of the calls, which other work on the machine disturbs less.
        counted: for each round the number of pairs that count.
        pairs: the number of pairs given.
    """

    wall: Clock
    cpu: Clock
    counted: tuple[int, ...]
    pairs: int


def measure(
    pairs: Iterable[Pair],
    rounds: int = 8,
    *,
    limits: Limits | None = None,
    sandbox: Sandbox | None = None,
    cores: Sequence[int] | None = None,
    seed: int = 0,
) -> Speed:
    """Measure how often programs are faster than their references.

    Args:
        pairs: the pairs.
        rounds: rounds of each pair, an even number.
        limits: of each run; None is the published 5 s and 1,024 MiB.
        sandbox: where they run; None is this process's.
        cores: cores to use, one pair at a time on each; None takes the distinct physical cores of one socket, 16 at
            most.
        seed: of the shuffles.

    Raises:
        ValueError: for an odd or not positive number of rounds, or a core that this process may not use.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < _BLOCK or rounds % _BLOCK:
        raise ValueError(f"rounds must be a positive even number, not {shown(rounds)}")
    everything = tuple(pairs)
    used = tuple(physical_cores() if cores is None else cores)
    if not used:
        raise ValueError("cores must name at least one core")
    runner = shared() if sandbox is None else sandbox
    timed: list[list[Round | None]] = [[] for _ in everything]

    def work(core: int, queue: Sequence[int]) -> None:
        for number in queue:
            pair = everything[number]
            found = runner.measure(
                pair.program,
                pair.reference,
                pair.check,
                limits or Limits(),
                rounds=_BLOCK,
                max_rounds=_BLOCK,
                core=core,
            )
            timed[number] += found.rounds if len(found.rounds) == _BLOCK else [None] * _BLOCK

    generator = random.Random(seed)
    with ThreadPoolExecutor(max_workers=len(used)) as pool:
        for block in range(rounds // _BLOCK):
            queues: list[list[int]] = [
                [number for number in range(len(everything)) if (number + block) % len(used) == place]
                for place in range(len(used))
            ]
            for queue in queues:
                generator.shuffle(queue)
            list(pool.map(work, used, queues))
    counted = tuple(sum(one[number] is not None for one in timed) for number in range(rounds))
    return Speed(_clock(timed, rounds, lambda t: t.wall), _clock(timed, rounds, lambda t: t.calls), counted, len(timed))


def physical_cores() -> tuple[int, ...]:
    """Cores that this process may use, one for each physical core, of the socket that has most of them; 16 at most."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    sockets: dict[str, dict[str, int]] = {}
    for core in usable:
        folder = Path(f"/sys/devices/system/cpu/cpu{core}/topology")
        try:
            socket = (folder / "physical_package_id").read_text().strip()
            siblings = (folder / "thread_siblings_list").read_text().strip()
        except OSError:
            socket, siblings = "", str(core)
        sockets.setdefault(socket, {}).setdefault(siblings, core)
    return tuple(max(sockets.values(), key=len).values())[:_MOST_AT_ONCE]


def _clock(timed: Sequence[Sequence[Round | None]], rounds: int, seconds: Callable[[Times], float]) -> Clock:
    """The metric from the rounds of every pair, by one clock; a round counts with positive times on both sides."""
    logs = [[None if one is None else _log_ratio(one, seconds) for one in pair] for pair in timed]
    percentages = tuple(_percentage([pair[number] for pair in logs]) for number in range(rounds))
    valid = [value for value in percentages if not math.isnan(value)]
    middles = [_median([log for log in pair if log is not None]) for pair in logs]
    noise = tuple(map(_noise, logs))
    decided = [abs(log) > wide for log, wide in zip(middles, noise, strict=True) if not math.isnan(log + wide)]
    return Clock(
        faster=statistics.fmean(valid) if valid else math.nan,
        rounds=percentages,
        spread=statistics.stdev(valid) if len(valid) > 1 else math.nan,
        ratios=tuple(math.exp(log) for log in middles),
        noise=noise,
        undecided=1 - sum(decided) / len(decided) if decided else math.nan,
    )


def _log_ratio(one: Round, seconds: Callable[[Times], float]) -> float | None:
    program, reference = seconds(one.program), seconds(one.reference)
    return math.log(program / reference) if program > 0 and reference > 0 else None


def _percentage(logs: Sequence[float | None]) -> float:
    counted = [log for log in logs if log is not None]
    return 100 * sum(log < 0 for log in counted) / len(counted) if counted else math.nan


def _noise(logs: Sequence[float | None]) -> float:
    """How far two halves of a pair's rounds, by order, disagree about the middle of its log ratio."""
    halves = [[log for log in logs[start::_BLOCK] if log is not None] for start in range(_BLOCK)]
    if any(len(half) < 2 for half in halves):
        return math.nan
    first, second = map(_median, halves)
    return abs(first - second) / 2


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan
