"""verl: our estimators, environments and settings in verl's trainer, for many GPUs.

    python -m corrgrpo_train.integrations.verl --preset paper/RLLA-v0 --print-config

What each module holds:

- `components`: the reward components of a batch, on their way to an estimator that verl calls without them.
- `estimators`: the estimators in verl's registry; with `components` and `corrgrpo_train.advantages` it can be lifted.
- `trainer`: verl's synchronous trainer, which fetches the components.
- `agent_loop`, `episode_output`: an episode of one of our environments, sampled by verl's servers, and its form there.
- `dataset`: an environment's tasks as verl's data set.
- `registration`: imports what registers itself; verl does that in every process, see `VERL_USE_EXTERNAL_MODULES`.
- `settings`, `configs`, `compose`, `launch`: from a preset and flags to verl's configuration, and the start.

Importing this package imports nothing of verl.
"""
