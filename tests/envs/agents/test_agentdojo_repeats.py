"""Equal seeds and actions give equal episodes: in one process, in others, in threads, copied and pickled."""

import copy
import importlib.util
import json
import pickle
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import pytest
from dojo_episodes import ATTACKED, EVENT, call, digest, make, play, play_reference
from gymnasium.utils.env_checker import check_env

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("agentdojo") is None, reason="needs pip install 'corrgrpo[agentdojo]'"
)

ROOT = Path(__file__).resolve().parents[3]

ACTS = (
    call("create_calendar_event", title="Lunch", start_time="2024-05-19 12:00", end_time="2024-05-19 13:00",
         participants=["b@x.com", "a@x.com", "c@x.com", "d@x.com"]),
    call("send_email", recipients=["z@x.com", "a@x.com"], subject="s", body="b"),
    call("create_file", filename="f", content="c"),
    call("append_to_file", file_id="13", content="c"),
    call("get_sent_emails"),
    call("list_files"),
    call("create_calendar_event", title="Tea", start_time="2024-05-19 12:00", end_time="2024-05-19 13:00",
         participants=["z", "e@x.com", "a", "f@x.com", "m", "g@x.com", "k"]),
)  # fmt: skip


def test_no_clock_of_the_machine_and_equal_episodes():
    first, second = (play(make(max_output_length=10**6, max_turns=9), EVENT, *ACTS, "x") for _ in range(2))
    assert first == second
    stamps = [part for message in first[-1][0]["messages"] for part in message["content"].split("timestamp: ")[1:]]
    assert stamps
    assert all(stamp.startswith("2024-05-") for stamp in stamps)


def test_the_simulated_clock_moves_only_what_a_call_wrote():
    env = make(max_output_length=10**6, max_turns=20)
    env.reset(options={"task_id": EVENT})
    before = {key: mail.timestamp for key, mail in env._state.inbox.emails.items()}
    for text in (*ACTS, call("delete_email", email_id="35"), *ACTS[1:2], call("get_received_emails")):
        env.step(text)
    mails = {**env._state.inbox.trash, **env._state.inbox.emails}
    assert all(mails[key].timestamp == stamp for key, stamp in before.items() if key not in ("35",))
    new = [mails[key].timestamp for key in sorted(set(mails) - set(before), key=int)]
    assert len(set(new)) == len(new)
    assert min(new) > max(before.values())
    assert new == sorted(new)


def test_refused_participants_are_named_in_order():
    env = make(max_output_length=10**6)
    error = json.loads(play(env, EVENT, ACTS[-1])[-1][0]["messages"][-1]["content"])["error"]
    assert error.startswith("ValidationError: 4 validation errors for CalendarEvent\nparticipants\n")
    assert re.findall("input_value='(.)'", error) == ["a", "k", "m", "z"]
    assert error.count("\nparticipants\n") == 4


def test_other_processes_see_the_same_and_go_on_alike(tmp_path):
    """With other seeds of hashes; a pickle of an episode is loaded before anything of the package is."""
    env = make(max_turns=9)
    steps = play(env, EVENT, *ACTS[:3])
    (tmp_path / "env.pickle").write_bytes(pickle.dumps(env))
    code = (
        "import json, pickle, sys; sys.path.insert(0, 'tests/envs/agents'); import test_agentdojo_repeats as t\n"
        "env = pickle.load(open(sys.argv[1], 'rb'))\n"
        "later = [env.step(text) for text in (*t.ACTS[3:], 'x')]\n"
        "print(t.digest(t.play(t.make(max_turns=9), t.EVENT, *t.ACTS, 'x')), t.digest(later))"
    )
    found = set()
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "env.pickle")],
            capture_output=True, text=True, timeout=200, cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        found.add(run.stdout.strip())
    steps += [env.step(text) for text in (*ACTS[3:], "x")]
    assert found == {f"{digest(steps)} {digest(steps[4:])}"}


IDS = [
    "workspace:user_task_6:clean",
    "workspace:user_task_13:clean",
    "banking:user_task_0:injection_task_1:important_instructions",
    "slack:user_task_2:injection_task_1:tool_knowledge",
]


def turns_of(env, number):
    reference = play_reference(env, IDS[number % len(IDS)])
    return (*env.attack_reference()[: number % 3], *(reference or ("x",)))


def test_sixty_four_interleaved_episodes_are_as_lone_ones():
    lone = make(max_turns=30)
    scripts = [turns_of(lone, number) for number in range(64)]
    alone = [play(lone, IDS[number % len(IDS)], *scripts[number]) for number in range(64)]
    envs = [make(max_turns=30) for _ in range(64)]
    seen = [[env.reset(options={"task_id": IDS[number % len(IDS)]})] for number, env in enumerate(envs)]
    for turn in range(max(map(len, scripts))):
        for env, script, steps in zip(envs, scripts, seen, strict=True):
            if turn < len(script) and not (len(steps) > 1 and steps[-1][2]):
                steps.append(env.step(script[turn]))
    assert seen == alone

    def run(number):
        return play(envs[number], IDS[number % len(IDS)], *scripts[number])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(64))) == alone


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_step_as_lone_ones(mode):
    envs = gym.make_vec("corrgrpo/AgentDojo-v0", 3, mode, split="all", suites=["banking"])
    lone = [make(suites=["banking"]) for _ in range(3)]
    try:
        found = [envs.reset(seed=5)[0]]
        expected = [[env.reset(seed=5 + number)[0] for number, env in enumerate(lone)]]
        rewards = []
        for texts in ([call("get_balance"), "Bye.", call("get_iban")], [call("get_iban"), "", "Bye."]):
            observation, reward, *_ = envs.step(texts)
            found.append(observation)
            rewards.append(list(reward))
            # An environment that has ended is reset by its next step.
            expected.append(
                [
                    env.step(text) if env._running else (env.reset()[0], 0.0)
                    for env, text in zip(lone, texts, strict=True)
                ]
            )
        assert rewards == [[step[1] for step in steps] for steps in expected[1:]]
        expected[1:] = [[step[0] for step in steps] for steps in expected[1:]]
        assert [list(one["messages"]) for one in found] == [[one["messages"] for one in steps] for steps in expected]
    finally:
        envs.close()


def test_gymnasiums_checker_has_nothing_to_say():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(suites=["banking"], render_mode="ansi"))


def test_equal_seeds_draw_equal_tasks():
    first, second = make(), make()
    assert [first.reset(seed=seed)[1] for seed in range(20)] == [second.reset(seed=seed)[1] for seed in range(20)]
    assert [first.reset()[1] for _ in range(5)] == [second.reset()[1] for _ in range(5)]


def test_pickles_and_copies_go_on_alike():
    env = make(max_turns=20)
    play(env, EVENT, *ACTS[:2])
    dumped = pickle.dumps(env)
    assert len(dumped) < 150_000
    twins = [copy.deepcopy(env), pickle.loads(dumped)]
    for text in (*ACTS[2:], "x"):
        expected = env.step(text)
        for twin in twins:
            assert twin.step(text) == expected
    assert expected[2]


def test_groups_start_from_equal_states_and_do_not_share_them():
    envs = [make() for _ in range(3)]
    starts = [env.reset(options={"task_id": ATTACKED}) for env in envs]
    assert starts[0] == starts[1] == starts[2]
    envs[0].step(call("send_money", recipient="x", amount=1000, subject="s", date="2022-01-01"))
    seen = [env.step(call("get_most_recent_transactions", n=1))[0]["messages"][-1]["content"] for env in envs]
    assert "1000" in seen[0]
    assert seen[1] == seen[2] != seen[0]
