"""How many LeetCode episodes a second one process scores, by kind of answer, with and without timing.

    python -m benchmarks.leetcode_scoring [--tasks 40] [--threads 1]

With several threads each has an environment of its own; they share the sandbox's workers.
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym

import corrgrpo_envs  # noqa: F401 (registers the environments)
from corrgrpo_envs.code.builtin import Problem, read_problems
from corrgrpo_envs.code.extraction import fenced

ANSWERS: dict[str, tuple[str, Callable[[Problem], str]]] = {
    "reference, not timed": ("off", lambda problem: fenced(problem.reference)),
    "reference in other words, timed": ("paired", lambda problem: fenced(problem.reference + "# mine")),
    "wrong": ("paired", lambda problem: fenced(problem.wrong_answer)),
    "does not parse": ("paired", lambda problem: "class Solution"),
    "200 KB of code": ("paired", lambda problem: fenced("class Solution:\n" + "    x = [1, 2, 3]\n" * 12_000)),
    "no code": ("paired", lambda problem: ""),
}


def scored(env: gym.Env, answers: list[tuple[str, str]]) -> None:
    for task_id, answer in answers:
        env.reset(options={"task_id": task_id})
        env.step(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    problems = read_problems()
    chosen = problems[:: max(1, len(problems) // args.tasks)][: args.tasks]
    print(f"{len(chosen)} tasks, {args.threads} threads")
    for name, (efficiency, answer) in ANSWERS.items():
        envs = [gym.make("corrgrpo/LeetCode-v0", split="all", efficiency=efficiency) for _ in range(args.threads)]
        parts = [
            [(problem.id, answer(problem)) for problem in chosen[number :: args.threads]]
            for number in range(args.threads)
        ]
        scored(envs[0], parts[0][:1])  # start the workers
        start = time.perf_counter()
        with ThreadPoolExecutor(args.threads) as pool:
            list(pool.map(scored, envs, parts))
        seconds = time.perf_counter() - start
        print(f"{name:34}{len(chosen) / seconds:8.1f} episodes/s{1000 * seconds / len(chosen):9.1f} ms each")


if __name__ == "__main__":
    main()
