"""Keep one component above a threshold while another one is raised: a Lagrangian run against fixed weights.

    python -m examples.lagrangian --output runs/lagrangian

Two components pull against each other: `detail` pays for a long answer, `brief` for a short one. With fixed weights
the policy trades the one for the other as the weights say: it writes as much as it may. With a multiplier `brief` must
stay above a half in the mean, and `detail` is raised as far as that allows.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import gymnasium as gym

from corrgrpo_envs import Message, MultiRewardEnv, Opening, Outcome, RewardComponent, Task, TaskSet, register
from corrgrpo_train.config import Config
from corrgrpo_train.trainer import train

LONGEST = 8


class Answer(MultiRewardEnv):
    """Say something: long is detailed, short is brief."""

    components = (
        RewardComponent("detail", weight=1.0, description="length, as a share of 8 characters"),
        RewardComponent("brief", weight=0.2, description="what is left of 8 characters, as a share"),
    )

    def load_tasks(self) -> TaskSet[None]:
        """Sixteen tasks that differ in a number."""
        return TaskSet([Task(str(number), "train", None) for number in range(16)], self.split, "answers")

    def open(self, task: Task[None]) -> Opening:
        """What the conversation begins with."""
        return Opening([Message(role="user", content=f"Question {task.id}")])

    def answer(self, text: str) -> Outcome:
        """Score the length of whatever was said."""
        share = min(LONGEST, len(text)) / LONGEST
        return Outcome({"detail": share, "brief": 1 - share})


if "tradeoff/Answer-v0" not in gym.registry:  # started with -m, this module is imported a second time by its name
    register("Answer", "examples.lagrangian:Answer", namespace="tradeoff")

COMMON: dict[str, Any] = {
    "env": "tradeoff/Answer-v0",
    "model": "tiny",
    "threads": 1,
    "steps": 120,
    "group_size": 8,
    "max_new_tokens": LONGEST,
    "learning_rate": 1e-3,
    "entropy_coefficient": 0.05,  # keeps answers of several lengths alive, so that it can turn back
    "validation_tasks": 0,
    "checkpoint_every": 0,
    "quiet": True,
}
RULES: dict[str, dict[str, Any]] = {
    "fixed": {},
    "lagrangian": {"weighting": "lagrangian", "weighting_args": {"at_least": {"brief": 0.5}, "learning_rate": 0.05}},
}


def rows(run: Path) -> list[dict[str, float]]:
    """The run's training steps, as they are in its `metrics.jsonl`."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "components/detail/mean" in line]


def main() -> None:
    """Train twice and print both components over the run."""
    parser = argparse.ArgumentParser(description="A Lagrangian run against fixed weights.")
    parser.add_argument("--output", type=Path, default=Path("runs/lagrangian"), help="folder for the two runs")
    output = parser.parse_args().output
    for name, rule in RULES.items():
        steps = rows(train(Config(**COMMON, **rule, output=str(output / name))))
        print(f"{name}:")
        for begin in range(0, len(steps), len(steps) // 4):
            part = steps[begin : begin + len(steps) // 4]
            first, second, weight = (
                sum(row[key] for row in part) / len(part)
                for key in ("components/detail/mean", "components/brief/mean", "weights/effective/brief")
            )
            print(f"  from step {begin + 1:3}: detail {first:+.2f}, brief {second:+.2f} (its weight {weight:.2f})")


if __name__ == "__main__":
    main()
