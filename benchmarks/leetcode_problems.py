"""How much slower the slow references of the built-in problems are than the fast ones.

Compares, for every problem, the CPU time that both spend inside the candidate's calls while the problem's own tests
run; each figure is the median of the rounds, which alternate. Prints the problems with the smallest ratios.

    python -m benchmarks.leetcode_problems [--rounds 3] [--show 15]
"""

import argparse
import statistics
import time

from corrgrpo_envs.code.builtin import Problem, read_problems


def spent(problem: Problem, source: str) -> float:
    """CPU seconds inside the candidate while the problem's tests run."""
    names: dict[str, object] = {"__name__": "problem"}
    exec(compile(problem.row()["prompt"], "prelude", "exec"), names)
    exec(compile(source, problem.id, "exec"), names)
    exec(compile(problem.tests, f"{problem.id} tests", "exec"), names)
    candidate, total = eval(problem.entry_point, names), 0.0

    def timed(*args: object, **kwargs: object) -> object:
        nonlocal total
        start = time.process_time()
        result = candidate(*args, **kwargs)
        total += time.process_time() - start
        return result

    names["check"](timed)  # type: ignore[operator]
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--show", type=int, default=15)
    args = parser.parse_args()
    rows = []
    for problem in read_problems():
        rounds = [
            (spent(problem, problem.reference), spent(problem, problem.slow_reference)) for _ in range(args.rounds)
        ]
        fast, slow = (statistics.median(side) for side in zip(*rounds, strict=True))
        rows.append((slow / max(fast, 1e-9), fast, slow, problem.id))
    rows.sort()
    print(f"{len(rows)} problems; median ratio {statistics.median(row[0] for row in rows):.0f}")
    print(f"{'problem':32} {'fast ms':>8} {'slow ms':>8} {'ratio':>7}")
    for ratio, fast, slow, name in rows[: args.show]:
        print(f"{name:32} {1e3 * fast:8.2f} {1e3 * slow:8.2f} {ratio:7.1f}")


if __name__ == "__main__":
    main()
