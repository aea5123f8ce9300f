"""Episodes against the package's own run of the same task: verdicts and tool outputs."""

import importlib.util
import json
import pickle
import re
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import corrgrpo_envs  # noqa: F401
from corrgrpo_envs.agents.calls import ToolCall
from corrgrpo_envs.agents.formats import call_format
from corrgrpo_envs.agents.suites import load_suite
from corrgrpo_envs.agents.verdicts import DIFFED

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("agentdojo") is None, reason="needs pip install 'corrgrpo[agentdojo]'"
)

MEETING = {"start_time": "2024-05-19 12:00", "end_time": "2024-05-19 13:00"}
DEEDS = {
    "workspace": [
        [],
        [("get_unread_emails", {})],
        [("send_email", {"recipients": ["a@x.com"], "subject": "s", "body": "b"})],
        [("create_calendar_event", {"title": "t", "participants": ["a@x.com"], **MEETING})],
        [("delete_email", {"email_id": "none"}), ("get_file_by_id", {"file_id": "['1']"})],
        [("delete_email", {"email_id": "1"}), ("delete_file", {"file_id": "13"})],
    ],
    "travel": [[], [("cancel_calendar_event", {"event_id": "3"})]],
    "banking": [[], [("update_password", {"password": "x"})], [("get_balance", {}), ("read_file", {"file_path": "-"})]],
    "slack": [[], [("add_user_to_channel", {"user": "Alice", "channel": "random"})]],
}


def scripts(suite, user_task, injection_task, injections, deeds):
    """What agents do: the truth, both tasks, the attacker's alone; each with some deeds before it."""

    def calls(task):
        state = pickle.loads(suite.state(injections))
        return [(call.function, json.loads(json.dumps(dict(call.args)))) for call in task.ground_truth(state)]

    truth, attack = calls(user_task), calls(injection_task)
    for some in deeds:
        yield [*some, *truth], user_task.GROUND_TRUTH_OUTPUT
        yield [*some, *attack, *truth], user_task.GROUND_TRUTH_OUTPUT
        yield [*some, *attack, *truth[:-1]], injection_task.GROUND_TRUTH_OUTPUT


def by_the_package(suite, user_task, injection_task, injections, made, answer):
    """Verdicts and tool outputs of `run_task_with_pipeline`, by the package's own states, runtime and executor."""
    from agentdojo.agent_pipeline import BasePipelineElement, ToolsExecutor
    from agentdojo.functions_runtime import FunctionCall
    from agentdojo.types import ChatAssistantMessage, get_text_content_as_str, text_content_block_from_string

    class Scripted(BasePipelineElement):
        seen = ()

        def query(self, query, runtime, env, messages=(), extra_args=None):
            messages = list(messages)
            for name, arguments in made:
                # Validating a call would turn numbers of its arguments into texts.
                call = FunctionCall.model_construct(function=name, args=dict(arguments), id=None)
                messages.append(ChatAssistantMessage(role="assistant", content=None, tool_calls=[call]))
                *_, messages, _ = ToolsExecutor().query(query, runtime, env, messages, {})
            content = [text_content_block_from_string(answer)]
            messages = [*messages, ChatAssistantMessage(role="assistant", content=content, tool_calls=None)]
            Scripted.seen = [
                {"error": one["error"]} if one["error"] else get_text_content_as_str(one["content"])
                for one in messages
                if one["role"] == "tool"
            ]
            return query, runtime, env, messages, {}

    utility, attacked = suite.package.run_task_with_pipeline(Scripted(), user_task, injection_task, dict(injections))
    return utility, attacked, Scripted.seen


def here(env, task_id, made, answer):
    env.reset(options={"task_id": task_id})
    hermes = call_format("hermes")
    for name, arguments in made:
        *_, info = env.step(hermes.render("", [ToolCall(name, arguments)]))
        assert info["status"] == "turn", env.problem
    obs, reward, *_, info = env.step(answer)
    assert info["status"] == "ok"
    components = info["reward_components"]
    assert reward == components["utility"] + components["security"]
    assert components["security"] == 1.0 - info["metrics"]["attack_success"]
    seen = [message["content"] for message in obs["messages"] if message["role"] == "tool"]
    return components["utility"] == 1.0, components["security"] == 0.0, seen


STAMPS = re.compile(r"(timestamp|last_modified): [^\n]+")


def comparable(output):
    """An output without what is ours: the clock, the order of participants, and letters beyond ASCII as they are."""
    import yaml

    if isinstance(output, dict):
        return output
    if output.startswith('{"error"'):
        return json.loads(output)
    text = STAMPS.sub(r"\1: now", output)
    try:
        return in_order(yaml.load(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError:
        return text


def in_order(value):
    if isinstance(value, dict):
        return {key: sorted(item) if key == "participants" else in_order(item) for key, item in value.items()}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def compared(suite_name, pairs, deeds):
    suite = load_suite("v1.2.2", suite_name)
    env = gym.make("corrgrpo/AgentDojo-v0", split="all", max_turns=60, max_output_length=10**7).unwrapped
    verdicts = set()
    for user, injection in pairs:
        user_task, injection_task = (
            suite.user_tasks[f"user_task_{user}"],
            suite.injection_tasks[f"injection_task_{injection}"],
        )
        injections = suite.injections(user_task.ID, injection_task.ID, "important_instructions", "local")
        task_id = f"{suite_name}:{user_task.ID}:{injection_task.ID}:important_instructions"
        for made, answer in scripts(suite, user_task, injection_task, injections, deeds):
            utility, attacked, outputs = by_the_package(suite, user_task, injection_task, injections, made, answer)
            found = here(env, task_id, made, answer)
            assert found[:2] == (utility, attacked), (task_id, made)
            for theirs, ours in zip(outputs, found[2], strict=True):
                assert comparable(ours) == comparable(theirs)
            verdicts.add((utility, attacked))
    return verdicts


BOTH = {(True, False), (True, True), (False, True)}


def test_banking_is_judged_as_by_the_package():
    assert compared("banking", [(0, 1), (3, 5), (5, 8), (11, 4), (15, 7)], DEEDS["banking"]) >= BOTH


def test_slack_is_judged_as_by_the_package():
    assert compared("slack", [(1, 1), (4, 2), (6, 5), (17, 3), (20, 4)], DEEDS["slack"]) >= BOTH


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_workspace_and_travel_are_judged_as_by_the_package():
    assert compared("travel", [(0, 0), (3, 6), (7, 2), (12, 1), (17, 4)], DEEDS["travel"])
    found = compared("workspace", [(6, 1), (13, 6), (18, 0), (30, 3), (38, 4), (15, 12)], DEEDS["workspace"])
    assert {(True, False), (False, True), (False, False)} <= found


def test_only_the_suites_named_compare_states_by_a_diff():
    for name in ("workspace", "travel", "banking", "slack"):
        modules = {sys.modules[type(task).__module__] for task in load_suite("v1.2.2", name).user_tasks.values()}
        assert any("DeepDiff" in Path(module.__file__).read_text() for module in modules) == (name in DIFFED)
