"""Evaluation: a model's episodes on environments, their measures with intervals, and comparisons."""

from typing import TYPE_CHECKING

from corrgrpo_train.lazy import exports

if TYPE_CHECKING:
    from corrgrpo_train.evaluate.comparison import Difference, compared
    from corrgrpo_train.evaluate.evaluation import evaluate, merged
    from corrgrpo_train.evaluate.results import EnvironmentResult, Result, read_result
    from corrgrpo_train.evaluate.sample import Job, Sample
    from corrgrpo_train.evaluate.settings import EnvironmentChoice, Settings

__all__ = [
    "Difference",
    "EnvironmentChoice",
    "EnvironmentResult",
    "Job",
    "Result",
    "Sample",
    "Settings",
    "compared",
    "evaluate",
    "merged",
    "read_result",
]

__getattr__ = exports(
    __name__,
    comparison="Difference compared",
    evaluation="evaluate merged",
    results="EnvironmentResult Result read_result",
    sample="Job Sample",
    settings="EnvironmentChoice Settings",
)
