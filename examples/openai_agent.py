"""An agent of one's own over any OpenAI-compatible server, in any environment here.

    python examples/openai_agent.py --server http://localhost:8000/v1 --model NAME --env corrgrpo/RLLA-v0

The server may be vLLM, `transformers serve`, llama.cpp or a provider (its key in OPENAI_API_KEY); needs `pip install
openai`. A model that calls tools in the server's own way is understood: its `tool_calls` become the text that the
environment takes. For numbers with intervals over a whole split use `python -m corrgrpo_train.evaluate --server URL`.
"""

import argparse
import json
import os
from typing import Any

import gymnasium as gym
from openai import OpenAI, OpenAIError

import corrgrpo_envs  # noqa: F401 (registers the environments)
from corrgrpo_envs.agents.formats import action_text


def messages_of(observation: dict[str, Any]) -> list[dict[str, str]]:
    """The conversation as servers take it: a tool's output without the id of a call is told as a user's message."""
    return [
        {**message, "role": "user" if message["role"] == "tool" else message["role"]}
        for message in observation["messages"]
    ]


def play(client: OpenAI, model: str, env: gym.Env[Any, str], index: int) -> tuple[dict[str, float], str]:
    """One episode: the sum of every component over its turns, and how it ended."""
    observation, info = env.reset(options={"task_index": index})
    totals: dict[str, float] = {}
    terminated = truncated = False
    while not (terminated or truncated):
        tools = json.loads(observation["tools"])
        more = {"tools": tools} if tools else {}
        reply = client.chat.completions.create(
            model=model, messages=messages_of(observation), temperature=0, max_tokens=512, **more
        )
        text = action_text(reply.choices[0].message.model_dump())
        observation, _, terminated, truncated, info = env.step(text)
        for name, value in info["reward_components"].items():
            totals[name] = totals.get(name, 0.0) + value
    return totals, info["status"]


def main() -> None:
    """Play some tasks and print what each earned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="address that ends in /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--env", default="corrgrpo/RLLA-v0")
    parser.add_argument("--split", default="test")
    parser.add_argument("--tasks", type=int, default=10)
    options = parser.parse_args()
    client = OpenAI(base_url=options.server, api_key=os.environ.get("OPENAI_API_KEY", "none"), timeout=120)
    env = gym.make(options.env, split=options.split)
    try:
        for index in range(min(options.tasks, len(env.unwrapped.tasks))):
            components, status = play(client, options.model, env, index)
            told = ", ".join(f"{name} {value:+.2f}" for name, value in components.items())
            print(f"{env.unwrapped.task.id}: {told} ({status})")
    except OpenAIError as error:
        raise SystemExit(f"{options.server}: {error}") from None
    finally:
        env.close()


if __name__ == "__main__":
    main()
