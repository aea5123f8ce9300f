"""How long scoring a tool-call answer takes: ordinary, very many calls, pathological texts.

python benchmarks/rlla_scoring.py
"""

import json
import random
import time

from corrgrpo_envs.tools.scoring import Scorer
from corrgrpo_envs.tools.truth import GroundTruth, parse_truth

SIZE = 200_000


def answer(calls: list[dict[str, object]]) -> str:
    lines = "\n".join(json.dumps(call) for call in calls)
    return f"<think> t </think>\n<tool_call>\n{lines}\n</tool_call>"


def calls(count: int, start: int = 0) -> list[dict[str, object]]:
    return [{"name": "find", "parameters": {"x": i, "y": i % 7}} for i in range(start, start + count)]


def best_time(scorer: Scorer, text: str, truth: GroundTruth, rounds: int) -> float:
    """Seconds of the fastest of three runs of so many rounds, per round."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(rounds):
            scorer.score(text, truth)
        times.append((time.perf_counter() - start) / rounds)
    return min(times)


def main() -> None:
    three = parse_truth(answer(calls(3)))
    many = parse_truth(answer(calls(3000)))
    shuffled = random.Random(0).sample(calls(3000), 3000)
    cases = {
        "three calls, right": (answer(calls(3)), three, 1000),
        "three calls, two wrong": (answer(calls(3, start=2)), three, 1000),
        "no answer": ("I do not know.", three, 1000),
        "3,000 x 3,000 calls, shuffled": (answer(shuffled), many, 1),
        "3,000 x 3,000 calls, all differ": (answer(calls(3000, start=10_000)), many, 1),
        "3,000 x 3,000 calls, all alike": (answer(calls(1) * 3000), many, 1),
        "200 KB of opening tags": ("<tool_call>" * (SIZE // 11), three, 1),
        "200 KB of tag pairs": ("<tool_call></tool_call>" * (SIZE // 23), three, 1),
        "200 KB of closing think tags": ("<think>" + "</think> " * (SIZE // 9), three, 1),
        "200 KB of white space": ("<think></think>" + " \n" * (SIZE // 2) + "<tool_call>\nx", three, 1),
        "200 KB of brackets": (f"<tool_call>{'[' * SIZE}</tool_call>", three, 1),
        "200 KB of objects": ("<tool_call>" + '{"a":' * (SIZE // 5) + "</tool_call>", three, 1),
        "200 KB of quotes": ('<tool_call>{"name": "' + '\\"' * (SIZE // 2) + "</tool_call>", three, 1),
        "200 KB of calls": (answer(calls(1) * (SIZE // 48)), three, 1),
    }
    print(f"{'answer':34}{'greedy, ms':>12}{'optimal, ms':>12}")
    for name, (text, truth, rounds) in cases.items():
        times = [best_time(Scorer(matching=m), text, truth, rounds) for m in ("greedy", "optimal")]
        print(f"{name:34}" + "".join(f"{1000 * seconds:12.3f}" for seconds in times))


if __name__ == "__main__":
    main()
