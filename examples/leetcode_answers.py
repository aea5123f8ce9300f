"""What answers of different kinds to one problem get, component by component.

python -m examples.leetcode_answers
"""

import gymnasium as gym

import corrgrpo_envs  # noqa: F401 (registers the environments)
from corrgrpo_envs.code.builtin import read_problems


def main() -> None:
    """Answer one built-in problem in seven ways."""
    env = gym.make("corrgrpo/LeetCode-v0", split="all")
    (problem,) = (problem for problem in read_problems() if problem.id == "across-the-swamp")
    answers = {
        "reference": f"```python\n{problem.reference}```",
        "reference, not fenced": problem.reference,
        "right and slow": f"```python\n{problem.slow_reference}```",
        "wrong": f"```python\n{problem.wrong_answer}```",
        "raises": "```python\nclass Solution:\n    def crossSwamp(self, swamp):\n        raise ValueError\n```",
        "does not parse": "```python\nclass Solution\n```",
        "no code": "",
    }
    names = env.unwrapped.reward_spec.names  # type: ignore[attr-defined]
    print(f"{'answer':22} {'reward':>6}  {'  '.join(names)}  status")
    for name, answer in answers.items():
        env.reset(options={"task_id": problem.id})
        _, reward, _, _, info = env.step(answer)
        values = "  ".join(f"{value:{len(key)}.2f}" for key, value in info["reward_components"].items())
        print(f"{name:22} {reward:6.3f}  {values}  {info['status']}")


if __name__ == "__main__":
    main()
