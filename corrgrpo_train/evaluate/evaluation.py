"""An evaluation: play what has not been played, measure, write the result."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from corrgrpo_envs.errors import shown
from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.efficiency import EFFICIENCY_NAMES, TIMED, efficiency_of
from corrgrpo_train.evaluate.journal import Journal
from corrgrpo_train.evaluate.results import EnvironmentResult, Result, joined, read_result
from corrgrpo_train.evaluate.sample import Job, Key, Sample
from corrgrpo_train.evaluate.sampler import Sampler
from corrgrpo_train.evaluate.settings import Settings, differences
from corrgrpo_train.evaluate.summary import aggregates, summarised
from corrgrpo_train.evaluate.tasks import Plan, planned


class Progress(Protocol):
    """What is told of a running evaluation."""

    def begin(self, name: str, done: int, total: int) -> None:
        """An environment begins, of whose episodes some are there already."""

    def advance(self, samples: Sequence[Sample]) -> None:
        """Episodes are finished."""

    def note(self, text: str) -> None:
        """Something that a person should know."""


def evaluate(
    settings: Settings,
    output: Path,
    make_sampler: Callable[[], Sampler],
    progress: Progress,
    *,
    shard: tuple[int, int] = (1, 1),
    retry: bool = False,
    efficiency: bool = False,
    timeout: float | None = None,
) -> Result:
    """Evaluate, or go on with an evaluation, and write its result.

    Every finished episode is at once added to a journal beside the result, from which the same call goes on.

    Args:
        settings: what is evaluated and how.
        output: the result file; the journal has `.jsonl` after its name.
        make_sampler: makes what plays episodes; called only if there is something to play.
        progress: told of what happens.
        shard: number of this shard and how many there are.
        retry: play episodes again that could not be scored.
        efficiency: measure the published efficiency of programs that passed, which takes time.
        timeout: seconds that an environment may take to show its tasks; None waits for ever.

    Raises:
        UsageError: if something is wrong with the settings, the model, an environment or the files.
    """
    settings.check()
    if efficiency and TIMED not in [choice.short for choice in settings.environments]:
        raise UsageError(f"efficiency needs {TIMED}, whose problems have references: name it, or leave efficiency out")
    before = _there(output, settings.as_json(), shard)
    plans = [planned(choice, settings, timeout) for choice in settings.environments]
    header = {"settings": settings.as_json(), "shard": list(shard)}
    journal = Journal(output.with_name(output.name + "l"), _flat(header))
    try:
        _keep(before, journal)
        _play(plans, settings, shard, journal, make_sampler, progress, retry)
        found = {plan.choice.short: _found(plan, shard, journal.samples) for plan in plans}
        result = measured(settings.as_json(), shard, found, _timed(plans, found, before, progress, efficiency))
        result.write(output)
        return result
    finally:
        journal.close()


def merged(parts: Sequence[Path], output: Path) -> Result:
    """Put the results of all shards together and write the whole; the parts stay as they are.

    The published efficiency, which is a matter of one machine, is not among the measures; `evaluate` with `efficiency`
    on the whole measures it.

    Raises:
        UsageError: if they don't belong together, or `output` is there already with other settings.
    """
    read = [(path, read_result(path)) for path in parts]
    settings, environments = joined(read)
    before = _there(output, settings, (1, 1))
    if before is not None and {name: _rows(one) for name, one in before.environments.items()} != {
        name: _rows(one) for name, one in environments.items()
    }:
        raise UsageError(f"{output} holds other episodes of this evaluation: choose another --output")
    result = measured(settings, (1, 1), environments, {name: _kept(before, one) for name, one in environments.items()})
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}; choose another --output") from error
    result.write(output)
    return result


def measured(
    settings: Mapping[str, Any],
    shard: tuple[int, int],
    environments: Mapping[str, EnvironmentResult],
    further: Mapping[str, Mapping[str, float | None]],
) -> Result:
    """A result with all measures, from episodes; `further` are those found in another way, by environment."""
    found = {name: summarised(one, further.get(name)) for name, one in environments.items()}
    return Result(settings, shard, found, aggregates(found))


def _keep(before: Result | None, journal: Journal) -> None:
    """Add what a result holds, merged from shards perhaps, and its journal does not."""
    there = before.environments.values() if before is not None else ()
    journal.add([sample for one in there for sample in one.samples if sample.key not in journal.samples])


def _play(
    plans: Sequence[Plan],
    settings: Settings,
    shard: tuple[int, int],
    journal: Journal,
    make_sampler: Callable[[], Sampler],
    progress: Progress,
    retry: bool,
) -> None:
    def is_there(job: Job) -> bool:
        sample = journal.samples.get(job.key)
        return sample is not None and (sample.scored or not retry)

    # Batches are played again as a whole: what is sampled together decides the last digits of probabilities.
    whole = settings.engine != "server"
    sampler: Sampler | None = None
    try:
        for plan in plans:
            units = plan.of_shard(shard)
            if whole:
                missing = [unit for unit in units if not all(map(is_there, unit))]
            else:
                missing = [left for unit in units if (left := tuple(job for job in unit if not is_there(job)))]
            total, to_play = sum(map(len, units)), sum(map(len, missing))
            progress.begin(plan.choice.short, total - to_play, total)
            if not missing:
                continue

            def done(samples: Sequence[Sample]) -> None:
                journal.add(samples)
                progress.advance(samples)

            sampler = sampler or make_sampler()
            sampler.play(plan.choice, missing, plan.starts, done)
    finally:
        if sampler is not None:
            sampler.close()


def _found(plan: Plan, shard: tuple[int, int], samples: Mapping[Key, Sample]) -> EnvironmentResult:
    jobs = [job for unit in plan.of_shard(shard) for job in unit]
    return EnvironmentResult(plan.choice.short, tuple(plan.starts), tuple(samples[job.key] for job in jobs))


def _timed(
    plans: Sequence[Plan],
    found: Mapping[str, EnvironmentResult],
    before: Result | None,
    progress: Progress,
    efficiency: bool,
) -> dict[str, Mapping[str, float | None]]:
    """The published efficiency by environment: measured if asked for, else what an earlier call has measured."""
    timed: dict[str, Mapping[str, float | None]] = {}
    for plan in plans:
        name = plan.choice.short
        if efficiency and name == TIMED:
            progress.note(f"{name}: measuring the efficiency of programs")
            timed[name] = efficiency_of(plan.choice, found[name].samples)
        else:
            timed[name] = _kept(before, found[name])
    return timed


def _kept(before: Result | None, found: EnvironmentResult) -> Mapping[str, float | None]:
    """The efficiency in an earlier result, if it is that of the same episodes."""
    there = before.environments.get(found.name) if before is not None else None
    if there is None or _rows(there) != _rows(found):
        return {}
    return {key: value for key, value in there.summary.items() if key.startswith(EFFICIENCY_NAMES)}


def _rows(found: EnvironmentResult) -> list[dict[str, Any]]:
    """Episodes that can be compared: nan is None."""
    return [sample.row() for sample in found.samples]


def _there(output: Path, settings: Mapping[str, Any], shard: tuple[int, int]) -> Result | None:
    """The result that is there already.

    Raises:
        UsageError: if it is that of another evaluation, which would be replaced.
    """
    if output.suffix != ".json":
        raise UsageError(f"output must be a file whose name ends with .json, not {shown(str(output))}")
    try:
        if not output.exists():
            return None
    except OSError as error:
        raise UsageError(f"{shown(str(output))} cannot be written: {error.strerror}") from error
    there = read_result(output)
    differing = differences({**there.settings, "shard": list(there.shard)}, {**settings, "shard": list(shard)})
    if differing:
        raise UsageError(f"{output} holds an evaluation with {'; '.join(differing)}: choose another --output")
    return there


def _flat(header: Mapping[str, Any]) -> dict[str, Any]:
    """The settings and the shard side by side, so that a message names the one that differs."""
    return {**header["settings"], "shard": header["shard"]}
