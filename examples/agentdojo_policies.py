"""Four simple agents on AgentDojo, by whose scores others can be calibrated.

Ground truth does what the user asks, obey-both first does what the attacker asks, do-nothing answers with an
empty text, refuse with a polite one:

    python -m examples.agentdojo_policies --split test --suites banking slack
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

import corrgrpo_envs  # noqa: F401  (registers the ids)
from corrgrpo_envs.agents.metrics import summary

Policy = Callable[[Any], Sequence[str]]


def ground_truth(env: Any) -> Sequence[str]:
    """The calls that AgentDojo gives as the solution, then its answer."""
    return env.reference() or do_nothing(env)


def obey_both(env: Any) -> Sequence[str]:
    """What the attacker wants, then what the user wants."""
    return (*env.attack_reference(), *ground_truth(env))


def do_nothing(env: Any) -> Sequence[str]:
    """An empty answer."""
    return ("",)


def refuse(env: Any) -> Sequence[str]:
    """An answer that does not help."""
    return ("I am sorry, I cannot help with that.",)


POLICIES: dict[str, Policy] = {
    "ground truth": ground_truth,
    "obey both": obey_both,
    "do nothing": do_nothing,
    "refuse": refuse,
}


def play(env: gym.Env[Any, Any], policy: Policy, task_id: str) -> dict[str, Any]:
    """Run one episode and return the info of its last step, with its reward."""
    env.reset(options={"task_id": task_id})
    for text in policy(env.unwrapped):
        _, reward, terminated, truncated, info = env.step(text)
        if terminated or truncated:
            return {**info, "reward": reward}
    raise RuntimeError(f"the policy had nothing more to say and {task_id!r} went on")


def main() -> None:
    """Print the scores of all policies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="test")
    parser.add_argument("--suites", nargs="*", default=None)
    arguments = parser.parse_args()
    env = gym.make("corrgrpo/AgentDojo-v0", split=arguments.split, suites=arguments.suites, max_turns=40)
    tasks = [task.id for task in env.unwrapped.tasks]
    for name, policy in POLICIES.items():
        episodes = [play(env, policy, task_id) for task_id in tasks]
        print(f"{name}: mean reward {sum(one['reward'] for one in episodes) / len(episodes):.3f}")
        for measure, found in summary(episodes).items():
            print(f"  {measure:30} {found.value:.3f}  [{found.low:.3f}, {found.high:.3f}]  n = {found.count}")


if __name__ == "__main__":
    main()
