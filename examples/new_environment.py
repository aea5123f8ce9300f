"""A multi-reward environment of one's own, and a training run on it: name an animal, briefly, in lower case.

python -m corrgrpo_train --env examples.new_environment:zoo/Animal-v0 --model tiny --threads 1 --steps 20 \
      --group-size 8 --max-new-tokens 8 --learning-rate 1e-3 --validation-tasks 4 \
      --warm-start 26 --warm-start-epochs 8 --warm-start-learning-rate 1e-3 --output runs/animal
"""

import functools

from corrgrpo_envs import (
    Message,
    MultiRewardEnv,
    Opening,
    Outcome,
    RewardComponent,
    Task,
    TaskSet,
    drawn_split,
    register,
)

ANIMALS = "ant bee cat dog eel fox gnu hen ibis jay kiwi lynx mole newt owl pig quail ram seal toad vole wren yak zebu"


@functools.cache  # shared by all environments of the process
def load(split: str) -> TaskSet[str]:
    """One task per first letter."""
    tasks = [Task(name[0], drawn_split(name[0]), name) for name in ANIMALS.split()]
    return TaskSet(tasks, split, "animals")


class Animal(MultiRewardEnv):
    """Three components that pull in different directions: a long answer may hold the name, and is not brief."""

    components = (
        RewardComponent("named", weight=1.0, description="an animal with that letter is in the answer"),
        RewardComponent("brief", weight=0.5, description="1 for up to 5 characters, less for more"),
        RewardComponent("lower", weight=0.2, description="share of lower-case letters"),
    )

    def load_tasks(self) -> TaskSet[str]:
        """The tasks of this environment's split."""
        return load(self.split)

    def open(self, task: Task[str]) -> Opening:
        """What the conversation begins with."""
        return Opening([Message(role="user", content=f"An animal with {task.id}?")])

    def answer(self, text: str) -> Outcome:
        """Score whatever the model said; no text may raise."""
        lower = sum("a" <= letter <= "z" for letter in text) / max(1, len(text))
        return Outcome({"named": float(self.task.data in text), "brief": 5 / max(5, len(text)), "lower": lower})

    def reference(self) -> tuple[str]:
        """A right answer, for the warm start."""
        return (self.task.data,)


register("Animal", "examples.new_environment:Animal", namespace="zoo")
