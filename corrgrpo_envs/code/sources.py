"""Where programming problems come from: the built-in set, files and folders, the hub."""

from functools import lru_cache

from corrgrpo_envs.code.builtin import read_problems
from corrgrpo_envs.code.problems import CodeProblem, read_problem, usable_seconds
from corrgrpo_envs.datasets import Row, fingerprint, read_rows
from corrgrpo_envs.errors import DatasetError, shown
from corrgrpo_envs.tasks import Task, with_validation

Problems = tuple[Task[CodeProblem], ...]


def problems(dataset: str) -> Problems:
    """Read all problems of a data set, with a validation split.

    Args:
        dataset: `"builtin"`; a file or folder of LeetCodeDataset's rows (v0.2.0 or v0.3.1); or a hub id, such as
            `"newfacade/LeetCodeDataset"`.

    Raises:
        DatasetError: naming file, row and field.
    """
    return _problems(dataset, fingerprint(dataset))


def runtimes(path: str) -> dict[str, float]:
    """Read stored running times of references: seconds by task id.

    The file has rows with `task_id` and `reference_runtime_seconds`, as CorrGRPO's calibration writes them; rows whose
    time is null or not positive are left out.

    Raises:
        DatasetError: naming file, row and field, also for a task that occurs twice.
    """
    return dict(_runtimes(path, fingerprint(path)))


@lru_cache(maxsize=8)
def _problems(dataset: str, state: object) -> Problems:
    if dataset == "builtin":
        rows = [Row(problem.row(), "builtin", number) for number, problem in enumerate(read_problems(), 1)]
        return with_validation(map(read_problem, rows))
    return with_validation(read_problem(row) for row in read_rows(dataset))


@lru_cache(maxsize=8)
def _runtimes(path: str, state: object) -> tuple[tuple[str, float], ...]:
    found: dict[str, float | None] = {}
    for row in read_rows(path):
        task_id = row.require("task_id", str)
        if task_id in found:
            raise DatasetError(f"{row.source}, row {row.number}: task_id {shown(task_id)} occurs twice")
        found[task_id] = usable_seconds(row.require("reference_runtime_seconds", float, 0.0))
    return tuple((task_id, seconds) for task_id, seconds in found.items() if seconds is not None)
