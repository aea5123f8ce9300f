"""Playing AgentDojo episodes: what its tests share."""

import hashlib
import json

import gymnasium as gym

import corrgrpo_envs  # noqa: F401
from corrgrpo_envs.agents.calls import ToolCall
from corrgrpo_envs.agents.formats import call_format

ATTACKED = "banking:user_task_0:injection_task_1:important_instructions"
CLEAN = "banking:user_task_0:clean"
EVENT = "workspace:user_task_6:clean"


def make(**options):
    return gym.make("corrgrpo/AgentDojo-v0", **{"split": "all", **options}).unwrapped


def call(name, **arguments):
    return call_format("hermes").render("", [ToolCall(name, arguments)])


def play(env, task_id, *texts):
    """Step through the texts, return all that was seen."""
    steps = [env.reset(options={"task_id": task_id})]
    for text in texts:
        steps.append(env.step(text))
        if steps[-1][2]:
            break
    return steps


def last_info(env, task_id, *texts):
    return play(env, task_id, *texts)[-1][4]


def play_reference(env, task_id):
    env.reset(options={"task_id": task_id})
    return env.reference()


def digest(steps):
    return hashlib.sha256(json.dumps(steps).encode()).hexdigest()
