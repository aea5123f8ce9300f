"""Every benchmark end to end: a server that knows the right answers, and one that knows nothing."""

import importlib.util
import json
import re

import gymnasium as gym
import pytest
from fake_server import completion, serving

import corrgrpo_envs  # noqa: F401  (registers the environments)
from corrgrpo_train.evaluate.cli import main
from corrgrpo_train.evaluate.results import read_result

# What a perfect and what an empty answer scores, in the benchmark's own measures.
EXPECTED = {
    "RLLA-v0": (
        {"all_exact": 1.0, "function_name": 1.0, "parameter_values": 1.0, "format": 1.0},
        {"all_exact": 0.0, "format": 0.0},
    ),
    "APIBank-v0": ({"level_1": 1.0, "pooled": 1.0}, {"pooled": 0.0}),
    "AgentDojo-v0": (
        {"clean_utility": 1.0, "utility_under_attack": 1.0, "attack_success_rate": 0.0, "joint_accuracy": 1.0},
        {"clean_utility": 0.0, "utility_under_attack": 0.0, "attack_success_rate": 0.0, "joint_accuracy": 0.0},
    ),
    "ASB-v0": (
        {"clean_utility": 1.0, "attack_success_rate": 0.0, "joint_accuracy": 1.0, "nrp": 1.0},
        {"clean_utility": 0.0, "attack_success_rate": 0.0, "joint_accuracy": 0.0, "nrp": 0.0},
    ),
    "InjecAgent-v0": ({"asr_valid_total": 0.0, "valid_rate": 1.0}, {"valid_rate": 0.0, "asr_all_total": 0.0}),
    "HumanEval-v0": ({"pass_at_1": 1.0, "executable": 1.0}, {"pass_at_1": 0.0}),
    "MBPP-v0": ({"pass_at_1": 1.0, "executable": 1.0}, {"pass_at_1": 0.0}),
    "LiveCodeBench-v0": ({"pass_at_1": 1.0, "executable": 1.0}, {"pass_at_1": 0.0}),
    "LeetCode-v0": ({"pass_at_1": 1.0, "executable": 1.0}, {"pass_at_1": 0.0, "executable": 0.0}),
}
ARGUMENTS = {
    "AgentDojo-v0": {"suites": ["banking"], "attacks": ["tool_knowledge"], "max_reference_turns": 3},
    "LeetCode-v0": {"efficiency": "off", "difficulty": "easy"},
}
CODE = ("LeetCode-v0", "HumanEval-v0", "MBPP-v0", "LiveCodeBench-v0")
TASKS = {**dict.fromkeys(CODE, 4), "AgentDojo-v0": 1000, "ASB-v0": 1000, "InjecAgent-v0": 40}


def opening_of(messages, tools):
    """What tells one task's conversation from another's, from its beginning on."""
    roles = [message["role"] for message in messages]
    first = messages[: roles.index("assistant")] if "assistant" in roles else messages
    return json.dumps([[message["content"] for message in first], tools])


def references(name):
    """The right texts of every task, by what its conversation begins with."""
    env = gym.make(f"corrgrpo/{name}", split="test", **ARGUMENTS.get(name, {}))
    known = {}
    for task in env.unwrapped.tasks:
        observation, _ = env.reset(options={"task_id": task.id})
        texts = env.unwrapped.reference()
        if texts is not None:
            known[opening_of(observation["messages"], json.loads(observation["tools"]))] = texts
    env.close()
    return known


def answering(known):
    """An answer to every request: the right text of its turn."""

    def right(body):
        texts = known[opening_of(body["messages"], body.get("tools", []))]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return 200, completion(texts[turn])

    return right


def evaluated(name, path, answer, *arguments):
    with serving(answer) as served:
        given = ["--env", name, "--env-args", json.dumps(ARGUMENTS.get(name, {})), "--tasks", str(TASKS.get(name, 12))]
        given += ["--server", served.url, "--tool-mode", "template", "--quiet", "--output", str(path)]
        assert main([*given, *arguments]) == 0
    return read_result(path).environments[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_right_answers_score_everything_and_empty_ones_nothing(name, tmp_path, capsys):
    if name == "AgentDojo-v0" and importlib.util.find_spec("agentdojo") is None:
        pytest.skip("agentdojo is not installed")
    perfect, nothing = EXPECTED[name]
    more = ["--efficiency"] if name == "LeetCode-v0" else []
    found = evaluated(name, tmp_path / "right.json", answering(references(name)), *more)
    assert found.notes == ()
    assert {measure: found.summary[measure] for measure in perfect} == pytest.approx(perfect)
    assert all(sample.scored for sample in found.samples)
    if more:
        # Each program is its own reference: it is neither faster nor slower, but by noise.
        assert found.summary["efficiency_count"] == 4
        assert 0 <= found.summary["efficiency"] <= 1
    found = evaluated(name, tmp_path / "nothing.json", lambda body: (200, completion("")))
    assert {measure: found.summary[measure] for measure in nothing} == pytest.approx(nothing)
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "nothing.json"), str(tmp_path / "right.json")]) == 0
    shown = capsys.readouterr().out
    assert "McNemar" in shown or "sign flip" in shown


def test_the_code_average_spans_the_four_benchmarks_of_one_call(tmp_path, capsys):
    known, path = {}, tmp_path / "r.json"
    for name in CODE:
        known |= references(name)
    # One of the four is answered with nothing.
    lost = references("MBPP-v0")
    known |= dict.fromkeys(lost, ("",))
    chosen = [word for name in CODE for word in ("--env", name)]
    options = ["--env-args", f"LeetCode-v0={json.dumps(ARGUMENTS['LeetCode-v0'])}", "--tasks", "2", "--quiet"]
    with serving(answering(known)) as served:
        assert main([*chosen, *options, "--server", served.url, "--output", str(path)]) == 0
    assert read_result(path).aggregates == {"code_average": pytest.approx(0.75)}
    row = next(line for line in capsys.readouterr().out.splitlines() if "here: m" in line)
    # Table 1: Eff. and Exec., then the four, then their mean.
    assert re.findall(r"\d+\.\d+|-", row) == ["-", "100.00", "100.00", "100.00", "0.00", "100.00", "75.00"]
