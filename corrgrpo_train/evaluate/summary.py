"""From episodes to measures: of one environment, and of several together."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from corrgrpo_envs.code.metrics import code_average
from corrgrpo_envs.tools.apibank_metrics import overall
from corrgrpo_train.evaluate.benchmarks import Info, Summary, benchmark_of, plain_values
from corrgrpo_train.evaluate.bootstrap import clustered, interval
from corrgrpo_train.evaluate.results import EnvironmentResult

CODE = ("LeetCode-v0", "HumanEval-v0", "MBPP-v0", "LiveCodeBench-v0")


def summarised(one: EnvironmentResult, further: Mapping[str, float | None] | None = None) -> EnvironmentResult:
    """The environment with its measures.

    Args:
        one: its episodes.
        further: measures that were found in another way.
    """
    benchmark = benchmark_of(one.name)
    scored = [sample.info() for sample in one.samples if sample.scored]
    notes = _notes(one)
    infos = [*scored, *filter(None, (benchmark.unscored(s.info()) for s in one.samples if not s.scored))]
    summary: Summary = {}
    try:
        summary, more = benchmark.summarise(infos)
    except (ValueError, KeyError) as error:
        # Another version's file, or an environment whose options leave its measures without meaning.
        more = [f"the measures of {one.name} can't be computed: {error}"]
    found = {**summary, **_plain(scored), **(further or {})}
    # A sum of rewards near the largest number is none.
    known = {name: value if value is not None and math.isfinite(value) else None for name, value in found.items()}
    return replace(one, summary=known, notes=(*notes, *more))


def _plain(scored: Sequence[Info]) -> Summary:
    found: Summary = {}
    for name, values in plain_values(scored).items():
        if not values:
            continue
        whole = clustered([value.number for value in values], [value.cluster for value in values])
        low, high = interval(whole)
        known = not math.isnan(low)
        found[name] = whole.mean
        found[f"{name}_low"], found[f"{name}_high"] = (low, high) if known else (None, None)
        found[f"{name}_count"] = float(len(values))
    return found


def _notes(one: EnvironmentResult) -> list[str]:
    notes = []
    unscored = [sample for sample in one.samples if not sample.scored]
    if unscored:
        reasons = Counter(sample.error or sample.status for sample in unscored)
        listed = "; ".join(f"{count} × {reason[:200]}" for reason, count in reasons.most_common(3))
        notes.append(
            f"{len(unscored)} of {len(one.samples)} episodes could not be scored and count nowhere ({listed}); "
            "--retry plays them again"
        )
    played = {sample.task for sample in one.samples}
    if len(played) < len(one.tasks):
        notes.append(f"only {len(played)} of the {len(one.tasks)} tasks have been played: this is a part")
    return notes


def aggregates(environments: Mapping[str, EnvironmentResult]) -> dict[str, float | None]:
    """Measures over several environments, where all of them are there.

    Returns:
        `code_average`, the mean of Pass@1 of the four code benchmarks; `overall`, the mean of RLLA's all-exact share
        and API-Bank's average.
    """
    found: dict[str, float | None] = {}
    passes = [_known(environments, name, "pass_at_1") for name in CODE]
    if None not in passes:
        found["code_average"] = code_average(*(value for value in passes if value is not None))
    exact, average = _known(environments, "RLLA-v0", "all_exact"), _known(environments, "APIBank-v0", "average")
    if exact is not None and average is not None:
        found["overall"] = overall(exact, average)
    return found


def _known(environments: Mapping[str, EnvironmentResult], name: str, measure: str) -> float | None:
    return environments[name].summary.get(measure) if name in environments else None
