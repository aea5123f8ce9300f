"""Evaluation against a server: the protocol, and everything that a server may do wrong."""

import asyncio
import json
import signal
import time

import pytest
import rollout_envs
from fake_server import completion, serving

from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate import EnvironmentChoice, Settings, evaluate, read_result
from corrgrpo_train.evaluate.chat_client import (
    MOST_BYTES,
    ChatClient,
    Reply,
    RequestFailedError,
    TooLongError,
    reply_of,
)
from corrgrpo_train.evaluate.cli import main
from corrgrpo_train.evaluate.conversation import TOOL_MODES, text_of
from corrgrpo_train.evaluate.served import ServedSampler

TOY = "rollout_envs:rollout/Toy-v0"


class Silent:
    def __init__(self):
        self.notes = []

    def begin(self, name, done, total):
        pass

    def advance(self, samples):
        pass

    def note(self, text):
        self.notes.append(text)


def played(served, output, *, arguments=None, name=TOY, retries=2, concurrency=3, timeout=5.0, retry=False, **settings):
    """Evaluate on Toy against the server and return the samples."""
    arguments = {**({"split": "train"} if name == TOY else {}), **(arguments or {})}
    settings = Settings(
        environments=(EnvironmentChoice(name, arguments),), model="m", engine="server", max_new_tokens=8, **settings
    )
    client = ChatClient(served.url, retries=retries, pause=0.01, timeout=timeout, connections=concurrency)
    sampler = ServedSampler(settings, client, concurrency=concurrency, workers=2, timeout=5.0)
    result = evaluate(settings, output, lambda: sampler, Silent(), retry=retry)
    return result.environments[name].samples


def spoken(body):
    """An answer that depends on nothing but the request."""
    return 200, completion("e" * (len(body["messages"][1]["content"]) % 5) + str(body["seed"] % 7), tokens=3)


def test_requests_say_what_is_asked(tmp_path):
    with serving(spoken) as served:
        samples = played(served, tmp_path / "r.json", samples=2, temperature=0.5, seed=3)
    assert len(samples) == len(served.bodies) == 12
    for body in served.bodies:
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.5, 8)
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert body["tools"] == rollout_envs.TOOLS
    assert len({body["seed"] for body in served.bodies}) == 12
    assert all(0 <= body["seed"] < 2**63 for body in served.bodies)
    assert all(sample.texts[0].startswith("e" * ((int(sample.task[4:]) + 1) % 5)) for sample in samples)
    assert {sample.tokens for sample in samples} == {3}


def test_the_result_depends_neither_on_order_nor_on_interruption(tmp_path):
    def late(body):
        time.sleep(0.03 if body["seed"] % 2 else 0)
        return spoken(body)

    files = []
    for number, answer in enumerate((spoken, late)):
        path = tmp_path / f"{number}.json"
        with serving(answer) as served:
            played(served, path, arguments={"turns": 2}, samples=2, temperature=1.0, concurrency=1 + 4 * number)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    journal = (tmp_path / "1.jsonl").read_bytes()
    path = tmp_path / "2.json"
    path.with_name("2.jsonl").write_bytes(journal[: len(journal) // 2])
    with serving(spoken) as served:
        played(served, path, arguments={"turns": 2}, samples=2, temperature=1.0)
        assert 0 < len(served.bodies) < 24, "what is there is not asked again"
    assert path.read_bytes() == files[0]


def test_a_conversation_goes_on(tmp_path):
    with serving(lambda body: (200, completion(f"say {len(body['messages'])}"))) as served:
        samples = played(served, tmp_path / "r.json", arguments={"turns": 3}, concurrency=1)
    assert samples[0].texts == ("say 2", "say 4", "say 6")
    third = served.bodies[2]["messages"]
    assert [message["role"] for message in third] == ["system", "user", "assistant", "user", "assistant", "user"]
    # Toy answers by a tool's output; no call was made, so it is a user's message.
    assert third[2]["content"] == "say 2"
    assert third[3]["content"] == "<|im_end|>say 2"


def call(name="echo", arguments='{"text": "a"}', **more):
    return {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def test_calls_are_written_in_the_environment_s_format_and_sent_back_as_calls(tmp_path):
    def answer(body):
        return 200, completion(None, "tool_calls", tool_calls=[call(), call(arguments='{"text": "b"}')])

    with serving(answer) as served:
        samples = played(served, tmp_path / "r.json", arguments={"turns": 2}, concurrency=1)
    block = '<tool_call>\n{"name": "echo", "arguments": {"text": "%s"}}\n</tool_call>'
    assert samples[0].texts[0] == block % "a" + "\n" + block % "b"
    assistant, tool = served.bodies[1]["messages"][2:]
    # One output came: the call without one is not sent back.
    assert [one["function"]["arguments"] for one in assistant["tool_calls"]] == ['{"text": "a"}']
    assert (tool["role"], tool["tool_call_id"]) == ("tool", assistant["tool_calls"][0]["id"])


MESSAGES = (
    {"role": "system", "content": "s"},
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "text with calls"},
    {"role": "tool", "content": "out 1"},
    {"role": "tool", "content": "out 2"},
    {"role": "user", "content": "and now"},
    {"role": "assistant", "content": "plain"},
    {"role": "tool", "content": "stray \ud800"},
)
REPLIES = (Reply("words", (call(), call("other", None), call("third"))), Reply("plain"))


def test_tool_modes_write_the_same_conversation_in_their_own_ways():
    modes = {name: mode.messages(MESSAGES, 2, REPLIES, rollout_envs.TOOLS) for name, mode in TOOL_MODES.items()}
    calls = modes["calls"]
    assert [m["role"] for m in calls] == ["system", "user", "assistant", "tool", "tool", "user", "assistant", "user"]
    assert calls[2]["content"] == "words"
    assert [one["function"]["name"] for one in calls[2]["tool_calls"]] == ["echo", "other"]
    assert [m["tool_call_id"] for m in calls[3:5]] == [one["id"] for one in calls[2]["tool_calls"]]
    assert calls[2]["tool_calls"][1]["function"]["arguments"] == "{}"
    assert "tool_calls" not in calls[6]
    assert calls[7]["content"] == "stray ?"
    template = modes["template"]
    assert [m["role"] for m in template] == [m["role"] for m in MESSAGES]
    assert template[2]["content"] == "text with calls"
    text = modes["text"]
    assert [m["role"] for m in text] == [
        *("system", "user", "assistant", "user", "user", "user", "assistant", "user"),
    ]
    assert json.dumps(rollout_envs.TOOLS[0]) in text[0]["content"]
    fields = {name: mode.fields(rollout_envs.TOOLS) for name, mode in TOOL_MODES.items()}
    assert fields["calls"] == {"tools": rollout_envs.TOOLS}
    assert fields["template"] == {"tools": rollout_envs.TOOLS, "tool_choice": "none"}
    assert fields["text"] == {}
    assert all(mode.fields([]) == {} for mode in TOOL_MODES.values())


def test_texts_of_replies():
    assert text_of(Reply("a", reasoning="why"), "hermes") == "<think>\nwhy\n</think>\n\na"
    assert text_of(Reply("a", reasoning="why"), "hermes", "drop") == "a"
    said = text_of(Reply("", (call(arguments="{not json"),)), "hermes")
    assert json.loads(said.split("\n")[1]) == {"name": "echo", "arguments": {"arguments": "{not json"}}
    # A value that this format can't write.
    assert "</parameter>" in text_of(Reply("", (call(arguments='{"a": "</parameter>"}'),)), "qwen3_coder")


# ---- faults that pass ----


def once_then(*first):
    """Answers with these, then well."""
    left = list(first)

    def answer(body):
        return left.pop(0) if left else spoken(body)

    return answer


def dropped(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def dripping(handler):
    """Never idle, never done."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(40):
        time.sleep(0.05)
        try:
            handler.wfile.write(b" ")
            handler.wfile.flush()
        except OSError:
            break
    handler.close_connection = True


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(2 * MOST_BYTES // 2**16):
            handler.wfile.write(b"x" * 2**16)
    except OSError:
        pass
    handler.close_connection = True


PASSING = {
    "500": [(500, {"error": {"message": "boom"}}), (503, b"<html>")],
    "429": [lambda handler: handler.reply(429, {"error": "slow down"}, Retry_After=0.2)],
    "dropped": [dropped, dropped],
    "no json": [(200, b"<html>ok</html>")],
    "empty": [(200, b""), (200, b"{}")],
    "no choices": [(200, {"choices": []}), (200, {"choices": [{"message": None}]})],
    "content number": [(200, completion(5))],
    "call without name": [(200, completion("", tool_calls=[{"function": {}}]))],
    "calls no list": [(200, completion("", tool_calls={"a": 1}))],
    "deep": [(200, b"[" * 200_000)],
    "too much": [endless],
}


@pytest.mark.parametrize("name", PASSING)
def test_a_failure_that_passes_costs_nothing(name, tmp_path):
    with serving(once_then(*PASSING[name])) as served:
        samples = played(served, tmp_path / "r.json", concurrency=1)
        assert len(served.bodies) == 6 + len(PASSING[name])
    assert all(sample.scored for sample in samples)
    assert served.bodies[0] == served.bodies[1]


def test_an_answer_that_never_ends_is_given_up(tmp_path):
    begun = time.monotonic()
    with serving(once_then(dripping)) as served:
        samples = played(served, tmp_path / "r.json", concurrency=1, timeout=0.3)
    assert all(sample.scored for sample in samples)
    assert time.monotonic() - begun < 60, "a drip of bytes does not keep a request alive"


# ---- faults that stay ----


def test_one_request_that_always_fails_costs_one_episode(tmp_path):
    def answer(body):
        if body["messages"][1]["content"] == "abb":
            return 500, {"error": {"message": "kernel panic"}}
        return spoken(body)

    path = tmp_path / "r.json"
    with serving(answer) as served:
        samples = played(served, path, concurrency=1)
        assert len(served.bodies) == 5 + 3
    (failed,) = [sample for sample in samples if not sample.scored]
    assert (failed.task, failed.status) == ("toy-2", "request_failed")
    assert failed.error == "no answer in 3 tries: status 500: kernel panic"
    with serving(spoken) as served:
        assert all(sample.scored for sample in played(served, path, retry=True))
        assert len(served.bodies) == 1


def test_a_refused_request_is_not_sent_again(tmp_path):
    refusal = (400, {"error": {"message": "content policy", "code": "content_filter"}})
    with serving(lambda body: refusal if body["messages"][1]["content"] == "a" else spoken(body)) as served:
        samples = played(served, tmp_path / "r.json")
        assert len(served.bodies) == 6
    assert samples[0].error == "status 400: content_filter: content policy"


def test_a_server_that_only_fails_ends_the_evaluation_and_nothing_is_lost(tmp_path):
    path = tmp_path / "r.json"
    with serving(once_then(*[spoken({"messages": [0, {"content": ""}], "seed": 1})] * 2, *[(500, b"")] * 99)) as served:
        with pytest.raises(UsageError, match=r"8 episodes in a row failed, the last: .*status 500"):
            played(served, path, concurrency=1, samples=3, temperature=1.0, retries=0)
        assert len(served.bodies) == 10
    assert not path.exists()
    with serving(spoken) as served:
        samples = played(served, path, samples=3, temperature=1.0, retries=0, retry=True)
        assert len(served.bodies) == 16
    assert all(sample.scored for sample in samples)


FATAL = {
    "key": ((401, {"error": {"message": "bad key"}}), r"refuses requests without a key \(status 401\)"),
    "forbidden": ((403, b""), r"refuses requests without a key \(status 403\)"),
    "model": (
        (404, {"error": {"message": "The model `m` does not exist"}}),
        r"the server has no model 'm'; it lists 'n', 'mm'\. Did you mean 'mm'\?",
    ),
    "address": ((404, {"detail": "Not Found"}), r"/chat/completions is not there \(404\): .* ends with /v1"),
    "method": ((405, b""), r"takes no chat request \(status 405\)"),
    "redirect": ((302, b""), r"takes no chat request \(status 302\)"),
    "tools": (
        (400, {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice'}}),
        "the server refuses tools: .*--tool-mode template or text",
    ),
}


@pytest.mark.parametrize("name", FATAL)
def test_what_no_request_will_get_past_ends_the_evaluation_at_once(name, tmp_path):
    reply, expected = FATAL[name]
    with serving(lambda body: reply, models=("n", "mm")) as served:
        with pytest.raises(UsageError, match=expected):
            played(served, tmp_path / "r.json", concurrency=1)
        assert len(served.bodies) == 1


def test_servers_that_are_not_there_are_told(tmp_path, capsys):
    with serving(spoken, models=None) as served:
        with pytest.raises(UsageError, match=r"refuses requests without a key \(status 401\)"):
            played(served, tmp_path / "r.json")
        assert not served.bodies
        gone = served.url
    arguments = ["--env", TOY, "--split", "train", "--output", str(tmp_path / "x.json"), "--model", "m"]
    assert main([*arguments, "--server", gone]) == 2
    said = capsys.readouterr().err
    assert f"the server {gone} does not answer: ConnectError" in said
    assert "is it running, and is this its URL?" in said


# ---- limits of length ----


TOO_LONG = (400, {"error": {"message": "This model's maximum context length is 64 tokens. However, …"}})


def test_without_room_for_the_limit_the_server_chooses_it(tmp_path):
    with serving(lambda body: TOO_LONG if "max_tokens" in body else spoken(body)) as served:
        samples = played(served, tmp_path / "r.json", concurrency=1)
    assert all(sample.status == "ok" for sample in samples)
    assert len(served.bodies) == 12


def test_a_first_prompt_that_is_too_long_is_told(tmp_path):
    with serving(lambda body: TOO_LONG) as served:
        samples = played(served, tmp_path / "r.json", concurrency=1)
    assert all("the first messages are too long for the server" in sample.error for sample in samples)
    assert {sample.status for sample in samples} == {"environment_error"}


def test_an_episode_without_room_is_broken_off_and_scored(tmp_path):
    with serving(lambda body: TOO_LONG if len(body["messages"]) > 2 else spoken(body)) as served:
        samples = played(served, tmp_path / "r.json", arguments={"turns": 3})
    assert {sample.status for sample in samples} == {"length"}
    assert all(sample.truncated and sample.scored and len(sample.texts) == 1 for sample in samples)
    assert served.bodies


def test_a_cut_before_the_limit_breaks_the_episode_off(tmp_path):
    replies = {"a": ("length", 4), "ab": ("length", 8), "abb": ("stop", 4)}

    def answer(body):
        finish, tokens = replies.get(body["messages"][1]["content"], ("stop", 1))
        return 200, completion("e", finish, tokens)

    with serving(answer) as served:
        samples = played(served, tmp_path / "r.json")
    assert [sample.status for sample in samples[:3]] == ["length", "ok", "ok"]
    assert served.bodies


# ---- hostile texts ----


def test_hostile_texts_are_kept_as_they_are(tmp_path):
    texts = ["\ud800", "<|im_end|>\x00\x1b[31m", "e" * 300_000, "", "\u202e", "[" * 50_000]

    def answer(body):
        return 200, completion(texts[len(body["messages"][1]["content"]) - 1])

    path = tmp_path / "r.json"
    with serving(answer) as served:
        played(served, path, arguments={"turns": 2})
    samples = read_result(path).environments[TOY].samples
    assert [sample.texts for sample in samples] == [(text, text) for text in texts]
    assert main(["show", str(path)]) == 0


def test_replies_are_read_with_suspicion():
    parts = {"choices": [{"message": {"content": [{"type": "text", "text": "a"}, 5, {"x": 1}]}}], "usage": "many"}
    assert reply_of(json.dumps(parts).encode()) == Reply("a")
    odd = completion("a", tokens=True, reasoning_content="t")
    assert reply_of(json.dumps(odd).encode()) == Reply("a", (), "t", "stop", None)
    for body in (b"", b"null", b"[]", b'{"choices": 1}', b'{"choices": [{"message": []}]}', b"\xff\xfe", b"9" * 5000):
        with pytest.raises(ValueError, match=r"."):
            reply_of(body)


# ---- the client and the command line ----


def test_request_args_add_and_take_out_fields(tmp_path):
    more = {"top_p": 0.9, "seed": None, "max_completion_tokens": 8, "max_tokens": None}
    with serving(lambda body: (200, completion("e"))) as served:
        played(served, tmp_path / "r.json", request_args=more)
    assert all("seed" not in body and "max_tokens" not in body for body in served.bodies)
    assert all((body["top_p"], body["max_completion_tokens"]) == (0.9, 8) for body in served.bodies)


def test_the_key_is_sent_and_never_written(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sesame")
    path = tmp_path / "r.json"
    arguments = ["--env", TOY, "--split", "train", "--output", str(path), "--server-key-env", "SOME_KEY", "--quiet"]
    with serving(spoken, models=("only",)) as served:
        # One model is listed: it needs no name.
        assert main([*arguments, "--server", served.url]) == 0
    assert {header["authorization"] for header in served.headers} == {"Bearer sesame"}
    assert {body["model"] for body in served.bodies} == {"only"}
    assert read_result(path).model == "only"
    assert not any("sesame" in file.read_text() for file in tmp_path.iterdir())


def test_several_models_want_a_name(tmp_path, capsys):
    with serving(spoken, models=("one", "two")) as served:
        assert main(["--env", TOY, "--server", served.url, "--output", str(tmp_path / "r.json")]) == 2
    assert "name the server's model with --model: it lists one, two" in capsys.readouterr().err


def test_pauses_grow_and_heed_the_server(monkeypatch):
    pauses, sleep = [], asyncio.sleep

    async def noted(seconds):
        pauses.append(seconds)
        await sleep(0)

    async def ask(client):
        async with client:
            return await client.complete({"model": "m", "messages": []})

    monkeypatch.setattr("corrgrpo_train.evaluate.chat_client.asyncio.sleep", noted)
    first = lambda handler: handler.reply(429, b"", Retry_After=7)  # noqa: E731
    with serving(once_then(first, (500, b""), (500, b""), (200, completion("x")))) as served:
        assert asyncio.run(ask(ChatClient(served.url))).content == "x"
    assert pauses == [7.0, 14.0, 28.0]
    with serving(lambda body: (500, b"")) as served:
        with pytest.raises(RequestFailedError, match="no answer in 2 tries: status 500: no reason given"):
            asyncio.run(ask(ChatClient(served.url, retries=1)))
        assert len(served.bodies) == 2
    full = (400, {"error": {"code": "context_length_exceeded", "message": "?"}})
    with serving(lambda body: full) as served, pytest.raises(TooLongError):
        asyncio.run(ask(ChatClient(served.url)))


@pytest.mark.parametrize("url", ["", "localhost", "ftp://x/v1", "http://", "http://[", "v1"])
def test_urls_that_are_none(url):
    with pytest.raises(UsageError, match="server must be a URL like"):
        ChatClient(url)


def test_an_environment_that_breaks_the_contract_is_told(tmp_path):
    name, fault = "rollout_envs:rollout/Bare-v0", {"fault": "no components"}
    with serving(lambda body: (200, completion("x"))) as served:
        with pytest.raises(UsageError, match="info must hold 'reward_components'"):
            played(served, tmp_path / "r.json", name=name, arguments=fault)
        assert served.bodies


def test_an_interrupt_ends_everything_and_loses_nothing(tmp_path):
    path, progress = tmp_path / "r.json", Silent()
    progress.advance = lambda samples: signal.raise_signal(signal.SIGINT)
    with serving(spoken) as served:
        settings = Settings(environments=(EnvironmentChoice(TOY, {"split": "train"}),), model="m", engine="server")
        client = ChatClient(served.url)
        with pytest.raises(KeyboardInterrupt):
            evaluate(settings, path, lambda: ServedSampler(settings, client, concurrency=1), progress)
        assert len(path.with_name("r.jsonl").read_text().splitlines()) == 2
        progress.advance = lambda samples: None
        evaluate(settings, path, lambda: ServedSampler(settings, client), progress)
        # What was asked when the interrupt came may be asked again, what was finished is not.
        assert 6 <= len(served.bodies) <= 7


def test_a_key_that_the_server_repeats_is_not_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SERVER_KEY", "sk-secret-123")

    def answer(body):
        return 400, {"error": {"message": "you sent Authorization: Bearer sk-secret-123"}}

    with serving(answer) as served:
        arguments = ["--env", TOY, "--split", "train", "--server", served.url, "--server-key-env", "SERVER_KEY"]
        assert main([*arguments, "--output", str(tmp_path / "r.json"), "--tasks", "3"]) == 0
    (reason,) = {sample.error for sample in read_result(tmp_path / "r.json").environments[TOY].samples}
    assert "Authorization: Bearer [key]" in reason
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    told = capsys.readouterr()
    assert "sk-secret-123" not in written + told.out + told.err


def test_calls_that_a_server_refuses_later_cost_one_episode(tmp_path):
    def answer(body):
        if any(message["role"] == "assistant" for message in body["messages"]):
            return 400, {"error": {"message": "messages[2].tool_calls: arguments are no JSON"}}
        return 200, completion(None, tool_calls=[call(arguments="{")])

    with serving(answer) as served:
        samples = played(served, tmp_path / "r.json", arguments={"turns": 2}, tasks=3)
    assert [sample.status for sample in samples] == ["request_failed"] * 3


def test_what_a_server_says_does_not_steer_the_terminal(tmp_path, capsys):
    def answer(body):
        return 404, b"\x1b]0;title\x07 \x1b[31mnot here"

    with serving(answer) as served:
        arguments = ["--env", TOY, "--split", "train", "--server", served.url, "--output", str(tmp_path / "r.json")]
        assert main([*arguments, "--quiet"]) == 2
    told = capsys.readouterr().err
    assert "?]0;title? ?[31mnot here" in told
    assert not set(told) & {"\x1b", "\x07"}


@pytest.mark.parametrize(("tokens", "kept"), [(3, 3), (10**4000, None), (-1, None), (True, None), (1.5, None)])
def test_numbers_of_tokens_that_can_be(tokens, kept):
    assert reply_of(json.dumps(completion(tokens=tokens)).encode()).tokens == kept


def test_parts_without_text_are_nothing():
    parts = [{"type": "text", "text": None}, {"type": "text", "text": "e"}, {"type": "image"}, 5]
    assert reply_of(json.dumps(completion(parts)).encode()).content == "e"


@pytest.mark.parametrize("name", ["messages", "model", "stream", "n"])
def test_request_args_that_would_change_the_question_are_refused(name):
    settings = Settings(environments=(EnvironmentChoice(TOY),), model="m", engine="server", request_args={name: None})
    with pytest.raises(UsageError, match=f"can't hold '{name}'"):
        settings.check()
