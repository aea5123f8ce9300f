"""Small environments for the rollout's tests, registered by name."""

import os
import signal
from typing import Any

import gymnasium as gym

from corrgrpo_envs import MultiRewardEnv, Opening, Outcome, RewardComponent, Task, TaskSet

TOOLS = [{"type": "function", "function": {"name": "echo", "description": "says it again", "parameters": {}}}]


class ToyEnv(MultiRewardEnv):
    """Some turns of echo; the components are the share of the letter e and whether the text is short."""

    components = (RewardComponent("letters", 1.0), RewardComponent("short", 0.5))
    metric_names = ("turns",)

    def __init__(self, *, turns: int = 1, answer_tokens: int = 5, with_tools: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.turns, self.answer_tokens, self.with_tools = turns, answer_tokens, with_tools
        self.turn = 0

    def load_tasks(self):
        return TaskSet(
            [
                Task(f"toy-{i}", "train" if i < 6 else "validation", "a" + "b" * i, "even" if i % 2 == 0 else "odd")
                for i in range(10)
            ],
            self.split,
        )

    def open(self, task):
        self.turn = 0
        messages = [{"role": "system", "content": "spell"}, {"role": "user", "content": task.data}]
        return Opening(messages, TOOLS if self.with_tools else ())

    def answer(self, text):
        self.turn += 1
        done = self.turn >= self.turns
        components = {"letters": text.count("e") / max(1, len(text)), "short": float(len(text) < 4)} if done else None
        added = [] if done else [{"role": "tool", "content": f"<|im_end|>{text}"}]
        return Outcome(components, done, "ok", added, {"turns": float(self.turn)})

    def cut(self, text):
        return Outcome({"letters": 0.0, "short": 1.0}, True, "ok", (), {"turns": float(self.turn)})

    def reference(self):
        return ("e",) * self.turns


class FailingEnv(ToyEnv):
    """Raises: `fail="step"` at every second step call of the process, `"always"` at each, `"reset"` on task toy-1."""

    calls = 0

    def __init__(self, *, fail: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fail = fail

    def reset(self, **kwargs):
        if self.fail == "reset" and (kwargs.get("options") or {}).get("task_id") == "toy-1":
            raise ConnectionError("no simulator")
        return super().reset(**kwargs)

    def step(self, action):
        FailingEnv.calls += 1
        if self.fail == "always" or (self.fail == "step" and FailingEnv.calls % 2):
            raise ConnectionError("no simulator")
        return super().step(action)


class MortalEnv(ToyEnv):
    """Kills its process at the step call at which `left` reaches 0: a moment that no load of the machine moves."""

    left = 0

    def step(self, action):
        MortalEnv.left -= 1
        if MortalEnv.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class BareEnv(gym.Env):
    """Only what a third-party environment must do: no tasks, no reference, no finish."""

    observation_space, action_space = gym.spaces.Dict(), gym.spaces.Text(100)

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = "xyz"[self.np_random.integers(3)]
        if self.fault == "no messages":
            return {"text": self.word}, {}
        return {"messages": ({"role": "user", "content": self.word},)}, {}

    def step(self, action):
        components, weights = {"hit": float(self.word in action)}, {"hit": 2.0}
        info = {"reward_components": components, "reward_weights": weights}
        if self.fault == "no components":
            del info["reward_components"]
        if self.fault == "other keys":
            weights["miss"] = 1.0
        if self.fault == "infinite":
            components["hit"] = float("inf")
        reward = 7.0 if self.fault == "other reward" else 2 * components["hit"]
        ended = self.fault != "rewrites"
        messages = ({"role": "user", "content": "changed"}, {"role": "assistant", "content": action})
        return {"messages": messages}, reward, ended, False, info


class NanEnv(ToyEnv):
    """Fails to score the component named by `nan`."""

    def __init__(self, *, nan: str = "short", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nan = nan

    def answer(self, text):
        outcome = super().answer(text)
        return Outcome({**outcome.components, self.nan: float("nan")}, True, "infrastructure_error")


for name, entry in {"Toy": ToyEnv, "Failing": FailingEnv, "Mortal": MortalEnv, "Bare": BareEnv, "Nan": NanEnv}.items():
    if f"rollout/{name}-v0" not in gym.registry:
        gym.register(f"rollout/{name}-v0", entry)
