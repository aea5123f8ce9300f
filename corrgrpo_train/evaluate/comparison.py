"""Two results, task by task: is the difference more than chance?"""

from collections.abc import Sequence
from dataclasses import dataclass

from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.benchmarks import Value, benchmark_of, plain_values
from corrgrpo_train.evaluate.bootstrap import clustered, interval, means_by_task, sign_flip
from corrgrpo_train.evaluate.results import EnvironmentResult, Result
from corrgrpo_train.outcome import sign_test


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure on the tasks that both results have.

    Attributes:
        environment, measure: which.
        tasks: number of tasks.
        first, second: the means over these tasks, of each task the mean over its samples.
        low, high: ends of the 95 % interval of second - first, by a bootstrap over clusters of tasks; nan with one.
        better, worse: tasks on which the second is higher, and lower.
        p: two-sided p value of no difference.
        test: `"McNemar"`, exact, where every task stands alone and is passed or failed; else `"sign flip"`, by
            flipping the sign of the difference of whole clusters.
    """

    environment: str
    measure: str
    tasks: int
    first: float
    second: float
    low: float
    high: float
    better: int
    worse: int
    p: float
    test: str

    @property
    def difference(self) -> float:
        """How much higher the second is."""
        return self.second - self.first


def compared(first: Result, second: Result) -> list[Difference]:
    """Compare two results in every measure that is a mean over episodes.

    Raises:
        UsageError: if they have no environment with tasks in common.
    """
    shared = [name for name in first.environments if name in second.environments]
    found = [
        difference for name in shared for difference in _compared(first.environments[name], second.environments[name])
    ]
    if not found:
        raise UsageError(
            f"the two results have no scored task in common: the first is on {', '.join(first.environments)}, the "
            f"second on {', '.join(second.environments)}"
        )
    return found


def _compared(first: EnvironmentResult, second: EnvironmentResult) -> list[Difference]:
    one, other = _values(first), _values(second)
    found = [_difference(first.name, name, one[name], other[name]) for name in one if name in other]
    return [difference for difference in found if difference is not None]


def _values(environment: EnvironmentResult) -> dict[str, list[Value]]:
    infos = [sample.info() for sample in environment.samples if sample.scored]
    try:
        own = benchmark_of(environment.name).values(infos)
    except (ValueError, KeyError) as error:
        raise UsageError(f"the measures of {environment.name} can't be computed: {error}") from None
    return {**own, **plain_values(infos)}


def _difference(environment: str, measure: str, first: Sequence[Value], second: Sequence[Value]) -> Difference | None:
    one = means_by_task([(value.task, value.number) for value in first])
    other = means_by_task([(value.task, value.number) for value in second])
    tasks = [task for task in one if task in other]
    if not tasks:
        return None
    cluster_of = {value.task: value.cluster for value in first}
    clusters = [cluster_of[task] for task in tasks]
    gains = [other[task] - one[task] for task in tasks]
    by_cluster = clustered(gains, clusters)
    low, high = interval(by_cluster)
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    alone = len(set(clusters)) == len(tasks)
    binary = all(value in (0.0, 1.0) for task in tasks for value in (one[task], other[task]))
    return Difference(
        environment,
        measure,
        len(tasks),
        sum(one[task] for task in tasks) / len(tasks),
        sum(other[task] for task in tasks) / len(tasks),
        low,
        high,
        better,
        worse,
        sign_test(better, worse) if alone and binary else sign_flip(by_cluster),
        "McNemar" if alone and binary else "sign flip",
    )
