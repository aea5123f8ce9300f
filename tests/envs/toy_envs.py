"""Environments for tests, at module level so that other processes find them."""

import functools

from corrgrpo_envs import MultiRewardEnv, Opening, Outcome, RewardComponent, Task, TaskSet, register

HOSTILE = (
    "",
    "\x00",
    "a\x00b\x00",
    "\ud800",
    "\ud83d\ude00",  # two lone surrogates that JSON would join to one character
    "é\u2028\u0085\r\n\x0b",
    "{}[]\"'\\ </s><|im_end|>",
    "\U0010ffff" * 3,
    "A",
    "ÿ" * 5000,
)


@functools.cache
def toy_tasks(split):
    kinds = {0: "validation", 1: "test"}
    return TaskSet(
        [Task(f"toy-{i}", kinds.get(i % 10, "train"), f"question {i} \ud800 \x00 é") for i in range(40)],
        split,
        "toy",
    )


class SingleTurn(MultiRewardEnv):
    """Scores the length and the first character; `nan` and `inf` are asked for by name."""

    components = (
        RewardComponent("length", 0.5, 0, 1),
        RewardComponent("first", 2.0, -1, 1),
        RewardComponent("extra", 0.0, 0, 1),
    )
    metric_names = ("characters", "noise")

    def load_tasks(self):
        return toy_tasks(self.split)

    def open(self, task):
        return Opening([{"role": "system", "content": "Say something."}, {"role": "user", "content": task.data}])

    def answer(self, text):
        values = {"length": 1 / (1 + len(text)), "first": 1 if text[:1] > "a" else -1, "extra": True}
        name, _, component = text.partition(" ")
        if name in ("nan", "inf", "-inf") and component:
            values[component] = float(name)
        metrics = {"characters": len(text)}
        if len(text) % 2:
            metrics["noise"] = self.np_random.random()
        return Outcome(values, metrics=metrics)

    def reference(self):
        return (f"{self.task.id}",)


class MultiTurn(MultiRewardEnv):
    """Echoes as a tool; scores only at the end, after `max_turns` or at the word stop."""

    components = (RewardComponent("turns", 1.0, 0, 8), RewardComponent("finished", 1.0, 0, 1))
    metric_names = ("total_length",)

    def __init__(self, *, max_turns=3, **kwargs):
        super().__init__(**kwargs)
        self.max_turns = max_turns

    def load_tasks(self):
        return toy_tasks(self.split)

    def open(self, task):
        self.texts = []
        schema = {
            "type": "function",
            "function": {"name": "echo", "description": "é\ud800", "parameters": {}},
        }
        return Opening([{"role": "user", "content": task.data}], [schema])

    def answer(self, text):
        self.texts.append(text)
        if text == "stop" or len(self.texts) == self.max_turns:
            return self._end(finished=1.0 if text == "stop" else 0.0)
        echo = f"{text}|{self.np_random.integers(1000)}"
        return Outcome(None, done=False, status="turn", messages=[{"role": "tool", "content": echo}])

    def cut(self, text):
        self.texts.append(text)
        return self._end(finished=0.0)

    def _end(self, finished):
        values = {"turns": float(len(self.texts)), "finished": finished}
        return Outcome(values, metrics={"total_length": sum(map(len, self.texts))})


SINGLE = register("Single", "toy_envs:SingleTurn", namespace="toy")[0]
MULTI = register("Multi", "toy_envs:MultiTurn", namespace="toy")[0]
