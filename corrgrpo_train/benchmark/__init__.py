"""Comparisons of methods on one environment, with the same seeds and tasks for all.

- `plan`: what is compared; `cli`: the command line; `study`: the project's own study.
- `bandit_runs`, `trainer_runs`, `processes`, `fingerprint`: how it is run, cached and resumed; `measured`: what
  runs give.
- `statistics`, `fronts`, `comparison`: intervals, tests, Pareto fronts; `tables`, `charts`, `page`, `output`: how they
  are shown.
"""
