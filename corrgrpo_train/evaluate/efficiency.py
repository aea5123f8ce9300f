"""The published efficiency of the programs in a result, timed after the evaluation."""

from collections.abc import Sequence

from corrgrpo_envs.code.metrics import efficiency
from corrgrpo_envs.code.problems import REFERENCES, CodeProblem
from corrgrpo_train.evaluate.sample import Sample
from corrgrpo_train.evaluate.settings import EnvironmentChoice
from corrgrpo_train.rollout.environment import EpisodeRunner

TIMED = "LeetCode-v0"
"""The environment whose problems have references."""
EFFICIENCY_NAMES = ("efficiency",)
"""How the names of what is found begin."""


def efficiency_of(choice: EnvironmentChoice, samples: Sequence[Sample]) -> dict[str, float | None]:
    """Time the first sample of every task that passed against the task's reference, in eight rounds.

    Args:
        choice: `TIMED` with its arguments; its `reference` says which program is the reference.
        samples: the episodes.
    """
    runner = EpisodeRunner(choice.name, choice.arguments)
    try:
        problems: dict[str, CodeProblem] = {task.id: task.data for task in runner.env.unwrapped.tasks}  # type: ignore[attr-defined]
    finally:
        runner.close()
    passed = [
        sample
        for sample in samples
        if sample.sample == 0 and sample.components.get("correctness") == 1.0 and sample.task in problems
    ]
    reference = REFERENCES[choice.arguments.get("reference", "completion")]
    return efficiency([(problems[sample.task], sample.texts[-1]) for sample in passed], reference)
