"""What HumanEval, MBPP and LiveCodeBench share: options, components, prompts, extraction, state."""

import copy
import math
import pickle

import gymnasium as gym
import pytest

import corrgrpo_envs  # noqa: F401
from corrgrpo_envs.code.extraction import last_block
from corrgrpo_envs.code.metrics import summary
from corrgrpo_envs.code.programs import joined
from corrgrpo_envs.code.scoring import Runner
from corrgrpo_envs.sandbox import Outcome, Verdict

IDS = ("corrgrpo/HumanEval-v0", "corrgrpo/MBPP-v0", "corrgrpo/LiveCodeBench-v0")
PLACEHOLDERS = {
    "HumanEval": ("prompt",),
    "MBPP": ("statement", "tests"),
    "LiveCodeBench": ("statement", "starter_code"),
}
each = pytest.mark.parametrize("env_id", IDS)


@each
def test_components_and_splits(env_id):
    base = gym.make(env_id).unwrapped
    assert base.reward_spec.weights == {"format": 0.0, "syntax": 0.0, "runtime": 0.0, "correctness": 1.0}
    assert len(base.tasks) == 8
    assert {task.split for task in base.tasks} == {"test"}
    with pytest.raises(ValueError, match="split 'train' of data set 'builtin' is empty"):
        gym.make(env_id, split="train").reset()


@each
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": 0}, "time_limit must be a positive number, not 0"),
        ({"memory_limit": 10}, "memory_limit must be at least 64"),
        ({"sandbox": "dokcer"}, "sandbox 'dokcer' is unknown; .*Did you mean 'docker'"),
        ({"isolation": "none"}, "isolation 'none' is unknown"),
        ({"sandbox_image": 5}, "sandbox_image must be the name of an image or None, not 5"),
        ({"prompt_template": 3}, "prompt_template must be a path or None, not 3"),
        ({"prompt_template": "/nowhere"}, "prompt_template '/nowhere' cannot be read"),
    ],
)
def test_wrong_options_are_named(env_id, options, message):
    with pytest.raises(ValueError, match=message):
        gym.make(env_id, **options)


@each
def test_an_unknown_argument_is_named(env_id):
    with pytest.raises(TypeError, match="time_limits"):
        gym.make(env_id, time_limits=3)


@each
def test_prompt_templates(env_id, tmp_path):
    names = PLACEHOLDERS[env_id.split("/")[1].removesuffix("-v0")]
    file = tmp_path / "prompt.txt"
    file.write_text("[system]\nBe brief.\n[user]\n" + "\n".join(f"<{name}> ${name}" for name in names))
    env = gym.make(env_id, prompt_template=file)
    obs, _ = env.reset(options={"task_index": 0})
    system, user = obs["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    for name in names:
        assert f"<{name}> {env.unwrapped.task.data.values[name]}" in user["content"]
    file.write_text("No placeholder.")
    with pytest.raises(ValueError, match=rf"must contain \${names[0]}"):
        gym.make(env_id, prompt_template=file)
    file.write_text("$statment $prmpt")
    with pytest.raises(ValueError, match=r"placeholder 'prmpt' is unknown; allowed: "):
        gym.make(env_id, prompt_template=file)


@each
def test_references_are_not_in_the_prompt(env_id):
    env = gym.make(env_id)
    for task in env.unwrapped.tasks:
        obs, _ = env.reset(options={"task_id": task.id})
        (reference,) = env.unwrapped.reference()
        assert reference.strip() not in "".join(message["content"] for message in obs["messages"])


@each
def test_episodes_are_copied_and_pickled_in_the_middle(env_id):
    env = gym.make(env_id)
    env.reset(options={"task_index": 3})
    answer = env.unwrapped.reference()[0]
    twins = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    step = env.step(answer)
    assert step[1] == 1.0
    assert all(twin.step(answer) == step for twin in twins)


@each
def test_the_verdict_is_that_of_the_last_answer(env_id):
    env = gym.make(env_id)
    base = env.unwrapped
    assert base.verdict is None
    env.reset(options={"task_index": 0})
    env.step(base.reference()[0])
    assert base.verdict.passed
    env.reset(options={"task_index": 0})
    assert base.verdict is None
    env.step("")
    assert base.verdict is None


class BrokenSandbox:
    def judge(self, *arguments):
        return Verdict(Outcome.INFRASTRUCTURE_ERROR, "gone")

    judge_output = judge


@each
def test_a_failure_of_the_sandbox_is_no_score(env_id, monkeypatch):
    monkeypatch.setattr(Runner, "sandbox", lambda runner: BrokenSandbox())
    env = gym.make(env_id, disable_env_checker=True)
    env.reset(seed=0)
    _, reward, *_, info = env.step("    return 1")
    assert math.isnan(reward)
    assert info["status"] == "infrastructure_error"
    assert [math.isnan(info["reward_components"][name]) for name in ("syntax", "runtime", "correctness")] == [True] * 3
    assert summary([info])["unscored_count"] == 1.0


@each
def test_infos_are_what_the_metrics_take(env_id):
    env = gym.make(env_id)
    infos = []
    for task in env.unwrapped.tasks:
        for answer in (env.unwrapped.reference, lambda: ("1 +",)):
            env.reset(options={"task_id": task.id})
            infos.append(env.step(answer()[0])[4])
    found = summary(infos, ks=(1, 2))
    assert (found["pass_at_1"], found["pass_at_2"], found["executable"], found["syntax"]) == (0.5, 1.0, 0.5, 0.5)
    assert (found["pass_at_1_count"], found["executable_count"], found["unscored_count"]) == (8.0, 16.0, 0.0)


# ---- extraction and assembly ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "fenced"),
    [
        ("x = 1", "x = 1", False),
        ("\n \n    return 1\n\n", "    return 1", False),
        ("```python\n    return 1\n```", "    return 1", True),
        ("```\na\n```\n```py\nb\n```", "b", True),
        ("a ```python\nb\n``` c", "b", True),
        ("<think>```python\na\n```</think>\nb", "b", False),
        ("<think>a</think>b</think>c", "c", False),
        ("<think>never ends", "<think>never ends", False),
        ("```python\nopen", "```python\nopen", False),
        ("``````", "", True),
        ("", "", False),
        ("\ud800", "\ud800", False),
    ],
)
def test_last_block(answer, code, fenced):
    found = last_block(answer)
    assert (found.code, found.fenced) == (code, fenced)


def test_joined_moves_future_statements_to_the_front():
    assert joined("import math\n", "x = 1\n\n") == "import math\n\nx = 1\n"
    assert joined("", "x = 1") == "x = 1\n"
    found = joined("import math", "# mine\nfrom __future__ import annotations\nx: X = 1")
    assert found == "from __future__ import annotations\nimport math\n\n# mine\n\nx: X = 1\n"
    compile(found, "program", "exec")


def test_long_hostile_answers_take_no_long_time():
    for text in (
        "```" * 100_000,
        "</think>" * 100_000,
        " \n" * 200_000,
        "from __future__ import " * 50_000,
        "`" * 10**6,
    ):
        joined("import math", last_block(text).code)
