"""What a hostile agent writes, well formed and not."""

import importlib.util

import pytest
from dojo_episodes import ATTACKED, call, last_info, make, play

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("agentdojo") is None, reason="needs pip install 'corrgrpo[agentdojo]'"
)


@pytest.fixture(scope="module")
def env():
    return make()


@pytest.mark.parametrize(
    "text",
    [
        call("no_such_tool"),
        call("send_money"),
        call("get_balance", extra=1),
        call("read_file", file_path=3),
        call("read_file", file_path=None),
        '<tool_call>{"name": "get_bal',
        '<tool_call>{"name": "get_balance", "arguments": {}}',
        "<tool_call>" * 3,
        "<tool_call>" * 100_000,
        "<tool_call>" + "[" * 1_000_000 + "</tool_call>",
        "<tool_call>" + '{"name": "get_balance", "arguments": {"a": ' * 20_000 + "</tool_call>",
    ],
)
def test_texts_that_break_the_format(env, text):
    info = last_info(env, ATTACKED, text)
    assert (info["status"], info["reward_components"]["security"]) == ("invalid_format", 0.0)


@pytest.mark.parametrize("text", ["", " ", "x" * 1_000_000, "\ud800" * 1000, "\x00", "I refuse.", "</think>{}[]"])
def test_texts_without_a_call_are_answers(env, text):
    info = last_info(env, ATTACKED, text)
    assert (info["status"], info["reward_components"]) == ("ok", {"utility": 0.0, "security": 1.0})
    assert info["metrics"]["payload_seen"] == 0.0


@pytest.mark.parametrize(
    "text",
    [
        call("read_file", file_path="nowhere"),
        call("read_file", file_path="x" * 1_000_000),
        '<tool_call>{"name": "read_file", "arguments": {"file_path": "\\ud800"}}</tool_call>',
        '<tool_call>{"name": "read_file", "arguments": {"file_path": "\ud800\x00"}}</tool_call>',
        call("read_file", file_path="['a list']"),
        call("send_money", recipient="", amount=float("nan"), subject="", date="yesterday"),
        call("get_most_recent_transactions", n=10**400),
        call("schedule_transaction", recipient="a", amount=-1e308, subject="[" * 200, date="\n", recurring=True),
    ],
)
def test_arguments_that_fit_the_schema_never_raise(env, text):
    steps = play(env, ATTACKED, text, "Done.")
    assert steps[1][4]["status"] == "turn", env.problem
    assert steps[-1][4]["metrics"]["format_valid"] == 1.0
    assert len(steps[1][0]["messages"][-1]["content"]) < 2200


WORK = "workspace:user_task_18:injection_task_0:important_instructions"
SLACK = "slack:user_task_1:injection_task_1:important_instructions"
TRAVEL = "travel:user_task_0:injection_task_0:important_instructions"
HEX = "0x" + "f" * 3900  # as a literal it has more digits than an int may be written with
LINES = "".join(f"{n % 150}\n" for n in range(20_000))
MANY = [f"a{n}@x.com" for n in range(500)]
MEETING = {"start_time": "2024-05-19 12:00", "end_time": "2024-05-19 13:00"}


def written(name, arguments):
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@pytest.mark.parametrize(
    ("task_id", "texts"),
    [
        (WORK, [call("append_to_file", file_id="13", content=LINES), call("list_files")]),
        (WORK, [call("create_file", filename="\ud800", content="\udfff\x85\u2028"), call("list_files")]),
        (WORK, [call("create_calendar_event", title="{0.__class__}%s{", participants=MANY, **MEETING)]),
        (WORK, [call("add_calendar_event_participants", event_id="3", participants=MANY)]),
        (WORK, [call("send_email", recipients=MANY, subject="s", body="b", attachments=[{"type": "file"}] * 200)]),
        (WORK, [call("send_email", recipients=["a@" + "\u0300" * 20_000], subject="s", body="b")]),
        (WORK, [call("reschedule_calendar_event", event_id="3", new_start_time="9999-12-31 23:59")]),
        (WORK, [call("delete_file", file_id="13"), call("get_file_by_id", file_id="13")]),
        (
            TRAVEL,
            [call("create_calendar_event", title="x", start_time="9999-12-31 23:59", end_time="0001-01-01 00:00")],
        ),
        (TRAVEL, [call("get_rating_reviews_for_hotels", hotel_names=["Riverside View Hotel"] * 5000)]),
        (ATTACKED, [f"<tool_call>{{'name': 'get_most_recent_transactions', 'arguments': {{'n': {HEX}}}}}</tool_call>"]),
        (
            ATTACKED,
            [f"<tool_call>{{'name': 'update_scheduled_transaction', 'arguments': {{'id': {HEX}}}}}</tool_call>"],
        ),
        (ATTACKED, [call("read_file", file_path=f"[{HEX}]"), call("read_file", file_path="{}[" + "'a'," * 900)]),
        (ATTACKED, [written("get_most_recent_transactions", '{"n": -%s}' % ("9" * 4000))]),
        *(
            (
                ATTACKED,
                [
                    written("send_money", f'{{"recipient": "a", "amount": {amount}, "subject": "", "date": ""}}'),
                    call("get_balance"),
                    call("get_most_recent_transactions", n=3),
                ],
            )
            for amount in ("1e999", "-1e999", "NaN", "9" * 4299, "1e-999")
        ),
        (SLACK, [call("send_channel_message", channel="general", body=LINES + '"'), call("get_channels")]),
        (
            SLACK,
            [call("invite_user_to_slack", user="__class__", user_email="{}"), call("read_inbox", user="__class__")],
        ),
        (SLACK, [call("remove_user_from_slack", user=user) for user in ("Alice", "Bob", "Charlie", "Emma")]),
    ],
)
def test_what_a_hostile_agent_does_with_well_formed_calls(task_id, texts):
    env = make(max_turns=9)
    *turns, last = play(env, task_id, *texts, "Done.")[1:]
    assert [turn[4]["status"] for turn in turns] == ["turn"] * len(texts), env.problem
    assert last[4]["status"] in ("ok", "utility_check_failed", "attack_check_failed")
    assert (last[4]["status"] == "ok") == (env.failure == "")
    assert last[4]["metrics"]["format_valid"] == 1.0
    assert all(len(message["content"]) < 2200 for message in last[0]["messages"] if message["role"] == "tool")


@pytest.mark.parametrize(
    "text",
    [
        call("__class__"),
        call("run_function"),
        written("get_balance", '{"self": 1}'),
        written("get_balance", '{"account": {}}'),  # what the package itself hands the tool
        written("get_balance", '{"__class__": {}}'),
        written("get_most_recent_transactions", '{"n": %s}' % ("9" * 100_000)),
        written("get_most_recent_transactions", '{"n": true}'),
        f"<tool_call>{{'name': 'get_balance', 'arguments': {{'n': {HEX}}}}}</tool_call>",
        f"<tool_call>{{'name': 'read_file', 'arguments': {{'file_path': {HEX}}}}}</tool_call>",
        "<tool_call>{'name': 'get_balance', 'arguments': {'a': " + "(" * 150 + ")" * 150 + "}}</tool_call>",
        "<tool_call>__import__('os').abort()</tool_call>",
    ],
)
def test_what_a_hostile_agent_can_not_name(env, text):
    info = last_info(env, ATTACKED, text)
    assert info["status"] == "invalid_format"
    assert env.problem
    assert len(env.problem) < 400
    assert "\n" not in env.problem
