"""What is reported of recorded programs: Pass@k, Executable, the published efficiency, and the code average.

The episodes are those of any environment here whose components have `runtime` and `correctness`: LeetCode, HumanEval,
MBPP, LiveCodeBench. An episode is one sampled program; those of one task are its samples.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from corrgrpo_envs.code.extraction import extract
from corrgrpo_envs.code.problems import CodeProblem, from_completion
from corrgrpo_envs.code.speed import Clock, Pair, Speed, measure
from corrgrpo_envs.errors import shown
from corrgrpo_envs.intervals import Estimate, estimate, flat, wilson
from corrgrpo_envs.sandbox import Limits, Sandbox

_NOTHING = Estimate(math.nan, math.nan, math.nan, 0)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k samples, drawn from n without replacement, is among the c right ones.

    1 - C(n - c, k) / C(n, k): the unbiased estimate of Pass@k (arXiv 2107.03374, equation 1).

    Args:
        n: number of samples.
        c: number of right ones, 0 to n.
        k: number of samples drawn, 1 to n.

    Raises:
        ValueError: for numbers outside these ranges.
    """
    if not 0 <= c <= n:
        raise ValueError(f"the number of right samples must be in 0..{n}, not {shown(c)}")
    if not 1 <= k <= n:
        raise ValueError(f"k must be in 1..{n}, the number of samples, not {shown(k)}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def summary(
    episodes: Iterable[Mapping[str, Any]], ks: Sequence[int] = (1,), confidence: float = 0.95
) -> dict[str, float | None]:
    """Evaluate recorded episodes.

    Args:
        episodes: the `info` of each episode's last step, or any mappings with its `task_id` and `reward_components`.
        ks: the numbers of samples of Pass@k.
        confidence: of the intervals.

    Returns:
        Shares from 0 to 1, each also with `_low`, `_high` and `_count`, None over nothing: `pass_at_1` and so on, means
        over tasks (Wilson's interval over the number of tasks, which is on the safe side where tasks have several
        samples); over all samples `executable`, those that run to the end of the test or to a comparison that fails,
        and `syntax` and `format`, where there are such components (see `intervals.estimate`; the samples of a task are
        a cluster). `unscored_count`: episodes whose correctness is nan; they count nowhere else, and a task with
        fewer than k others is left out of Pass@k.

    Raises:
        ValueError: if an episode lacks what is needed, or a task has fewer than k samples.
    """
    rows = [_row(episode) for episode in episodes]
    scored = [(task_id, components) for task_id, components in rows if not math.isnan(components["correctness"])]
    samples = _counted(task_id for task_id, _ in rows)
    valid = _counted(task_id for task_id, _ in scored)
    right = _counted(task_id for task_id, components in scored if components["correctness"] == 1.0)
    estimates = {}
    for k in map(_checked_k, ks):
        for task_id, count in samples.items():
            if count < k:
                raise ValueError(f"Pass@{k} needs {k} samples a task, and task {task_id!r} has {count}")
        values = [pass_at_k(n, right.get(task_id, 0), k) for task_id, n in valid.items() if n >= k]
        estimates[f"pass_at_{k}"] = _mean(values, len(values), confidence)
    for name, component in (("executable", "runtime"), ("syntax", "syntax"), ("format", "format")):
        known = [(task_id, float(found[component])) for task_id, found in scored if component in found]
        estimates[name] = estimate([value for _, value in known], [task_id for task_id, _ in known], confidence)
    return {**flat(estimates), "unscored_count": float(len(rows) - len(scored))}


def efficiency(
    answers: Iterable[tuple[CodeProblem, str]],
    reference: Callable[[CodeProblem], str | None] = from_completion,
    confidence: float = 0.95,
    *,
    rounds: int = 8,
    limits: Limits | None = None,
    sandbox: Sandbox | None = None,
    cores: Sequence[int] | None = None,
    seed: int = 0,
) -> dict[str, float | None]:
    """Measure the published efficiency (CorrGRPO, appendix J.3) of answers to LeetCode's problems.

    Every program is timed against its problem's reference; pairs in which either does not pass count nowhere, so wrong
    answers may be given or left out.

    Args:
        answers: problems (`task.data` of `LeetCode-v0`) and texts of answers.
        reference: gives a problem's reference, see `problems.REFERENCES`; answers to problems without one are left out.
        confidence: of the intervals.
        rounds: rounds of each pair, an even number.
        limits: of each run; None is the published 5 s and 1,024 MiB.
        sandbox: where programs run; None is this process's.
        cores: cores to use; None takes the distinct physical ones of one socket.
        seed: of the order of pairs.

    Returns:
        `efficiency`, by wall time as published, and `efficiency_cpu`, by CPU time: the share of pairs in which the
        program is strictly faster, mean of the rounds, each also with `_low`, `_high` (Wilson's interval over the
        number of pairs) and `_count`, the most pairs that counted in a round; None if none did.
    """
    pairs = []
    for problem, text in answers:
        wanted, code = reference(problem), extract(text).code
        if wanted is not None and code:
            pairs.append(Pair(problem.program(code), problem.program(wanted), problem.check))
    speed = measure(pairs, rounds, limits=limits, sandbox=sandbox, cores=cores, seed=seed)
    return flat(
        {
            "efficiency": _faster(speed, speed.wall, confidence),
            "efficiency_cpu": _faster(speed, speed.cpu, confidence),
        }
    )


def code_average(leetcode: float, humaneval: float, mbpp: float, livecodebench: float) -> float:
    """The paper's "Avg.": the mean of the four benchmarks' Pass@1, in the same unit."""
    return fmean((leetcode, humaneval, mbpp, livecodebench))


def _row(episode: Mapping[str, Any]) -> tuple[str, Mapping[str, float]]:
    task_id, components = episode.get("task_id"), episode.get("reward_components")
    if not isinstance(components, Mapping) or not {"runtime", "correctness"} <= components.keys():
        raise ValueError(f"the episode of {task_id!r} lacks 'reward_components' with 'runtime' and 'correctness'")
    return str(task_id), components


def _counted(task_ids: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for task_id in task_ids:
        counts[task_id] = counts.get(task_id, 0) + 1
    return counts


def _checked_k(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k of Pass@k must be a positive integer, not {shown(k)}")
    return k


def _mean(values: Sequence[float], count: int, confidence: float) -> Estimate:
    return wilson(fmean(values), count, count, confidence) if values else _NOTHING


def _faster(speed: Speed, clock: Clock, confidence: float) -> Estimate:
    count = max(speed.counted, default=0)
    return _mean([] if math.isnan(clock.faster) else [clock.faster / 100], count, confidence)
