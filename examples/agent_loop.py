"""Play episodes of any environment with a trivial policy and print the mean of every reward component.

    python examples/agent_loop.py
    python examples/agent_loop.py --env corrgrpo/RLLA-v0 --policy reference --episodes 20

A third-party environment is named with its package: `--env package:namespace/Name-v0`. To put a language
model here, replace `act`: it gets the observation and returns the assistant's text.
"""

import argparse
import random
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym

import corrgrpo_envs  # noqa: F401 (registers the environments)


def random_letter(env: gym.Env[Any, str], seed: int) -> Callable[[Any], str]:
    """A policy that answers with a random letter."""
    draw = random.Random(seed)
    return lambda observation: draw.choice("ABCDEFGH")


def reference(env: gym.Env[Any, str], seed: int) -> Callable[[Any], str]:
    """A policy that says what the environment knows to be right, turn by turn."""
    texts = env.unwrapped.reference()
    if texts is None:
        raise SystemExit(f"task {env.unwrapped.task.id!r} has no reference; use --policy random")
    turns: Iterator[str] = iter(texts)
    return lambda observation: next(turns, "")


POLICIES = {"random": random_letter, "reference": reference}


def play(env: gym.Env[Any, str], policy: str, seed: int) -> dict[str, float]:
    """Play one episode and return the sum of every component over its steps."""
    observation, info = env.reset(seed=seed)
    act = POLICIES[policy](env, seed)
    totals: dict[str, float] = {}
    terminated = truncated = False
    while not (terminated or truncated):
        # observation["messages"] is the conversation, observation["tools"] the tools as JSON text.
        observation, _, terminated, truncated, info = env.step(act(observation))
        for name, value in info["reward_components"].items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def main() -> None:
    """Read the options, play, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="corrgrpo/CorrelatedBandit-v0", help="id of the environment")
    parser.add_argument("--split", default="train", help="train, validation, test or all")
    parser.add_argument("--policy", choices=POLICIES, default="random")
    parser.add_argument("--episodes", type=int, default=100)
    options = parser.parse_args()
    if options.episodes < 1:
        parser.error(f"--episodes must be at least 1, not {options.episodes}")
    try:
        env = gym.make(options.env, split=options.split)
    except (gym.error.Error, ValueError) as error:
        parser.error(str(error))
    episodes = [play(env, options.policy, seed) for seed in range(options.episodes)]
    env.close()
    weights = env.unwrapped.reward_spec.weights
    print(f"{options.env}: {options.episodes} episodes, policy {options.policy}")
    for name, weight in weights.items():
        mean = sum(episode[name] for episode in episodes) / len(episodes)
        print(f"  {name:<20} weight {weight:<6g} mean {mean:.3f}")
    total = sum(weights[name] * episode[name] for episode in episodes for name in weights if weights[name])
    print(f"  {'total':<20} {'':<13} mean {total / len(episodes):.3f}")


if __name__ == "__main__":
    main()
