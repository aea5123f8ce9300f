"""AgentDojo: how long a reset and a whole episode take, against the package's own means, and memory.

    python benchmarks/agentdojo_speed.py --cases 6

Both sides of a ratio are measured in the same run, on the same cases, in CPU time of this process.
"""

import argparse
import os
import pickle
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

import corrgrpo_envs  # noqa: F401  (registers the ids)

SUITES = ("workspace", "travel", "banking", "slack")
ATTACK = "important_instructions"
LIVE = 256


def seconds(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def megabytes() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def play(env: gym.Env[Any, Any], task_id: str, texts: Sequence[str]) -> float:
    env.reset(options={"task_id": task_id})
    for text in texts:
        _, reward, terminated, _, _ = env.step(text)
    assert terminated
    return float(reward)


def packages_pipeline(calls: Sequence[Any], answer: str) -> Any:
    """The package's pipeline with its tool loop, and an agent that makes the calls given."""
    from agentdojo.agent_pipeline import AgentPipeline, InitQuery, ToolsExecutionLoop, ToolsExecutor
    from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
    from agentdojo.types import ChatAssistantMessage, text_content_block_from_string

    class Scripted(BasePipelineElement):
        def query(self, query: Any, runtime: Any, env: Any, messages: Any = (), extra_args: Any = None) -> Any:
            made = sum(message["role"] == "assistant" for message in messages)
            said = text_content_block_from_string(answer if made == len(calls) else "")
            todo = [calls[made]] if made < len(calls) else None
            message = ChatAssistantMessage(role="assistant", content=[said], tool_calls=todo)
            return query, runtime, env, [*messages, message], extra_args or {}

    agent = Scripted()
    return AgentPipeline([InitQuery(), agent, ToolsExecutionLoop([ToolsExecutor(), agent], max_iters=40)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=6, help="attacked cases of each suite")
    arguments = parser.parse_args()
    from corrgrpo_envs.agents.suites import load_suite

    env = gym.make("corrgrpo/AgentDojo-v0", split="all", attacks=[ATTACK], max_turns=60, disable_env_checker=True)
    tasks = [task for task in env.unwrapped.tasks if task.data.injection_task == "injection_task_1"]
    print(f"{'reset, ms':14}{'package':>10}{'first':>10}{'later':>10}{'package / later':>17}")
    chosen: dict[str, list[Any]] = {}
    for name in SUITES:
        own = [task for task in tasks if task.data.suite == name]
        chosen[name] = own = own[:: max(1, len(own) // arguments.cases)][: arguments.cases]
        suite = load_suite("v1.2.2", name)
        first, later, package = [], [], []
        for task in own:
            options = {"task_id": task.id}
            first.append(seconds(lambda options=options: env.reset(options=options)))
            later.append(seconds(lambda options=options: [env.reset(options=options) for _ in range(50)]) / 50)
            injections = dict(suite.injections(task.data.user_task, "injection_task_1", ATTACK, "local"))
            package.append(seconds(lambda i=injections, s=suite: s.package.load_and_inject_default_environment(i)))
        theirs, once, ours = (1000 * statistics.median(times) for times in (package, first, later))
        print(f"{name:14}{theirs:10.1f}{once:10.1f}{ours:10.3f}{theirs / ours:17.0f}")

    print(f"\n{'episodes / s':14}{'package':>10}{'here':>10}{'ratio':>8}")
    spent = [0.0, 0.0, 0.0]
    for name, own in chosen.items():
        suite = load_suite("v1.2.2", name)
        theirs = here = 0.0
        for task in own:
            env.reset(options={"task_id": task.id})
            texts = env.unwrapped.reference()
            injections = suite.injections(task.data.user_task, "injection_task_1", ATTACK, "local")
            user_task = suite.user_tasks[task.data.user_task]
            calls = user_task.ground_truth(pickle.loads(suite.state(injections)))
            pipeline = packages_pipeline(calls, texts[-1])
            injection_task = suite.injection_tasks["injection_task_1"]
            found: list[Any] = []
            theirs += seconds(
                lambda s=suite, p=pipeline, u=user_task, a=injection_task, i=injections, f=found: f.append(
                    s.package.run_task_with_pipeline(p, u, a, dict(i))
                )
            )
            here += seconds(lambda t=task, x=texts, f=found: f.append(play(env, t.id, x)))
            assert found == [(True, False), 2.0], (task.id, found)
        count = len(own)
        print(f"{name:14}{count / theirs:10.1f}{count / here:10.1f}{theirs / here:8.1f}")
        spent = [spent[0] + count, spent[1] + theirs, spent[2] + here]
    print(f"{'all':14}{spent[0] / spent[1]:10.1f}{spent[0] / spent[2]:10.1f}{spent[1] / spent[2]:8.1f}")

    before = megabytes()
    live = [gym.make("corrgrpo/AgentDojo-v0", split="all", disable_env_checker=True) for _ in range(LIVE)]
    ids = [task.id for own in chosen.values() for task in own]
    for number, one in enumerate(live):
        one.reset(options={"task_id": ids[number % len(ids)]})
    print(f"\n{LIVE} live environments: {megabytes() - before:.0f} MB more, {megabytes():.0f} MB in all")


if __name__ == "__main__":
    main()
