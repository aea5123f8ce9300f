"""`corrgrpo/LiveCodeBench-v0`: releases and windows, packed tests, programs for standard input and methods."""

import base64
import datetime
import json
import os
import pickle
import sys
import types
import zlib

import gymnasium as gym
import pytest
from spoiled import spoiled
from stages import step

import corrgrpo_envs  # noqa: F401
from corrgrpo_envs.code.livecodebench_rows import RELEASES
from corrgrpo_envs.code.livecodebench_tests import FunctionTests, OutputTests, pickled_text
from corrgrpo_envs.errors import DatasetError
from corrgrpo_envs.sandbox import Case, Limits, Outcome, Sandbox


def packed(found, protocol=None):
    """Private tests as published: pickled JSON, deflated, in base 64."""
    return base64.b64encode(zlib.compress(pickle.dumps(found, protocol))).decode()


def listed(pairs, kind):
    return [{"input": given, "output": expected, "testtype": kind} for given, expected in pairs]


def row(question_id, public, private, function=None, date="2025-02-01T00:00:00", **changes):
    kind = "functional" if function else "stdin"
    return {
        "question_title": "A title",
        "question_content": f"Problem {question_id}.",
        "platform": "atcoder",
        "question_id": question_id,
        "contest_id": "c1",
        "contest_date": date,
        "starter_code": f"class Solution:\n    def {function}(self, *x):\n        " if function else "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(listed(public, kind)),
        "private_test_cases": packed(json.dumps(listed(private, kind))),
        "metadata": json.dumps({"func_name": function} if function else {}),
    } | changes


SUMS = row("sums", [("1 2\n", "3\n")], [("10 20", "30"), ("-1 1\n", "0\n\n")])
LINES = row("lines", [("3\na\nb\nc\n", "c\nb\na\n")], [("1\nx\n", "x\n"), ("0\n", "")])
HALVES = row("halves", [("1 3\n", "0.5 1.50\nend\n")], [("4\n", "2.000\nend\n")])
TWICE = row("twice", [("[1, 2]\n2", "[2, 4]")], [("[]\n3", "[]"), ("[5]\n0", "[0]")], "scaled")
WORDS = row("words", [('"äb"', '["ä", "b"]')], [('""', "[]")], "letters")


@pytest.fixture
def make(tmp_path):
    def made(rows=(SUMS, LINES, HALVES, TWICE, WORDS), name="test6.jsonl", **options):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return gym.make("corrgrpo/LiveCodeBench-v0", disable_env_checker=True, **{"dataset": str(tmp_path), **options})

    return made


def fenced(code):
    return f"Thus:\n```python\n{code}\n```\n"


SUM = "print(sum(map(int, input().split())))"


@pytest.mark.parametrize(
    ("task_id", "code", "stages", "status"),
    [
        ("sums", SUM, "1111", "passed"),
        ("sums", "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", "1111", "passed"),
        ("sums", "import sys\nfor line in sys.stdin.buffer:\n    print(sum(map(int, line.split())))", "1111", "passed"),
        ("sums", "print(sum(map(int, stdin.readline().split())))", "1111", "passed"),  # sys's names are there
        ("sums", f"def main():\n    {SUM}\n\nif __name__ == '__main__':\n    main()", "1111", "passed"),
        ("sums", f"{SUM}\nexit()", "1111", "passed"),
        ("sums", f"{SUM}\nimport sys\nsys.exit(3)", "1111", "passed"),
        ("sums", "print(' ', sum(map(int, input().split())), '\\n')", "1111", "passed"),
        ("sums", "print(float(sum(map(int, input().split()))))", "1111", "passed"),
        ("sums", "from __future__ import annotations\n" + SUM, "1111", "passed"),
        ("sums", f"class Sum:\n    def run(self) -> List[int]:\n        {SUM}\nSum().run()", "1111", "passed"),
        ("sums", "print(3)", "1110", "failed"),  # the public test alone
        ("sums", SUM + "\nprint('debug')", "1110", "failed"),
        ("sums", "print('sum:', sum(map(int, input().split())))", "1110", "failed"),
        ("sums", "print(sum(map(int, input().split())) + 1e-9)", "1110", "failed"),
        ("sums", "print('sNaN')", "1110", "failed"),
        ("sums", "pass", "1110", "failed"),
        ("sums", "def solve(): " + SUM, "1110", "failed"),
        ("sums", SUM + "\nraise ValueError", "1100", "exception"),
        ("sums", "input(); print(input())", "1100", "exception"),
        ("sums", "while True: pass", "1100", "timeout"),
        ("sums", "import time; time.sleep(100)", "1100", "timeout"),
        ("sums", "while True: print('x' * 9999)", "1100", "output_limit"),
        ("sums", "x = [0] * 10**10", "1100", "memory_limit"),
        ("sums", "import numpy as np\n" + SUM, "1100", "missing_package:numpy"),
        ("sums", "print(sum(", "1000", "syntax_error"),
        ("lines", "n = int(input())\nprint(*[input() for _ in range(n)][::-1], sep='\\n')", "1111", "passed"),
        ("lines", "import sys\nprint('\\n'.join(sys.stdin.read().split()[:0:-1]))", "1111", "passed"),
        ("lines", "n = int(input())\nprint(*[input() for _ in range(n)], sep='\\n')", "1110", "failed"),
        ("lines", "n = int(input())\nprint(*[input() for _ in range(n)][::-1])", "1110", "failed"),  # one line
        ("halves", "print(*[int(n) / 2 for n in input().split()])\nprint('end')", "1111", "passed"),
        ("halves", "print(*[f'{int(n) / 2:.9f}' for n in input().split()])\nprint('end')", "1111", "passed"),
        ("halves", "print(*[f'{int(n) / 2:e}' for n in input().split()])\nprint('end')", "1111", "passed"),
        ("halves", "print(*[int(n) / 2 for n in input().split()])\nprint('End')", "1110", "failed"),
        ("halves", "print(*[int(n) / 2 + 1e-12 for n in input().split()])\nprint('end')", "1110", "failed"),
        ("halves", "print(*[int(n) // 2 for n in input().split()])\nprint('end')", "1110", "failed"),
    ],
)  # fmt: skip
def test_programs_that_read_standard_input(make, task_id, code, stages, status):
    assert step(make(time_limit=1.0, memory_limit=1024), task_id, fenced(code)) == (stages, status)


KEEPING = """
class Solution:
    done = []
    def scaled(self, xs, k):
        self.done += [k * x for x in xs]
        return self.done
"""


def solution(body, head="def scaled(self, xs, k)"):
    return f"class Solution:\n    {head}:\n        {body}\n"


@pytest.mark.parametrize(
    ("task_id", "code", "stages", "status"),
    [
        ("twice", solution("return [k * x for x in xs]", "def scaled(self, xs: List[int], k: int)"), "1111", "passed"),
        ("twice", solution("return tuple(k * x for x in xs)"), "1111", "passed"),  # a tuple counts as a list
        ("twice", solution("return [float(k * x) for x in xs]"), "1111", "passed"),  # == decides
        ("twice", "class Solution:\n    scaled = staticmethod(lambda xs, k: [k * x for x in xs])", "1111", "passed"),
        ("twice", solution("print('x'); return [k * x for x in xs]"), "1111", "passed"),
        ("twice", solution("return [2, 4]"), "1110", "failed"),  # the public test alone
        ("twice", solution("return (k * x for x in xs)"), "1110", "failed"),
        ("twice", solution("return xs"), "1110", "failed"),
        ("twice", solution("return None"), "1110", "failed"),
        ("twice", solution("return str([k * x for x in xs])"), "1110", "failed"),
        # One object serves all tests, as published.
        ("twice", KEEPING, "1110", "failed"),
        ("twice", "def scaled(xs, k): return [k * x for x in xs]", "1100", "exception"),
        ("twice", solution("return [k * x for x in xs]", "def scale(self, xs, k)"), "1100", "exception"),
        ("twice", solution("return [k * x for x in xs]", "def scaled(self, xs)"), "1100", "exception"),
        ("twice", solution("return 1 / k"), "1110", "failed"),
        ("twice", solution("return [k * x for x in xs] if k else 1 / 0"), "1100", "exception"),
        ("twice", solution("assert k != 0; return [k * x for x in xs]"), "1100", "exception"),
        ("twice", solution("while True: pass"), "1100", "timeout"),
        ("twice", solution("return [0] * 10**10"), "1100", "memory_limit"),
        ("twice", solution("return [k * x for x in"), "1000", "syntax_error"),
        ("words", solution("return list(word)", "def letters(self, word)"), "1111", "passed"),
        ("words", solution("return sorted(word)", "def letters(self, word)"), "1110", "failed"),
    ],
)  # fmt: skip
def test_methods(make, task_id, code, stages, status):
    assert step(make(time_limit=1.0, memory_limit=1024), task_id, fenced(code)) == (stages, status)


def test_forms_of_answers(make):
    env = make()
    for answer, expected in [
        (SUM, ("0111", "passed")),
        (f"<think>{fenced('print(1)')}</think>\n{SUM}", ("0111", "passed")),
        (fenced("print(1)") + fenced(SUM), ("1111", "passed")),
        (fenced(SUM) + fenced("print(1)"), ("1110", "failed")),
        ("```python\n" + SUM, ("0000", "syntax_error")),
        ("", ("0000", "empty_code")),
        ("```python\n\n```", ("0000", "empty_code")),
    ]:
        assert step(env, "sums", answer) == expected


def test_many_lines_of_input(make):
    rng = list(range(60_000))
    big = "\n".join(map(str, rng))
    many = row("many", [(f"{len(rng)}\n{big}\n", "\n".join(str(n + 1) for n in rng) + "\n")], [])
    env = make([many])
    program = "import sys\ndata = sys.stdin.buffer.read().split()\nprint('\\n'.join(str(int(n) + 1) for n in data[1:]))"
    assert step(env, "many", fenced(program)) == ("1111", "passed")
    assert step(env, "many", fenced(program.replace("data[1:]", "data[1:-1]"))) == ("1110", "failed")
    # The last line alone is wrong.
    wrong = program.replace("int(n) + 1)", "int(n) + 1 - (n == b'59999'))")
    assert wrong != program
    assert step(env, "many", fenced(wrong)) == ("1110", "failed")


def test_large_arguments(make):
    numbers = list(range(200_000))
    many = row("many", [(f"{json.dumps(numbers)}\n1", json.dumps(numbers))], [], "scaled")
    env = make([many])
    assert step(env, "many", fenced(solution("return [k * x for x in xs]"))) == ("1111", "passed")
    assert step(env, "many", fenced(solution("return [k * x for x in xs[1:]]"))) == ("1110", "failed")


def test_deep_recursion_and_long_numbers(make):
    deep = row("deep", [("20000", "1" + "0" * 20_000)], [])
    program = "def f(n): return 1 if n == 0 else 10 * f(n - 1)\nprint(f(int(input())))"
    assert step(make([deep]), "deep", fenced(program)) == ("1111", "passed")


def test_outputs_and_results_may_be_as_long_as_expected(make):
    count = 800_000
    printed = row("printed", [(f"{count}", "7\n" * count)], [])
    env = make([printed])
    assert step(env, "printed", fenced("print('7\\n' * int(input()))")) == ("1111", "passed")
    assert step(env, "printed", fenced("print('7\\n' * (int(input()) - 1))")) == ("1110", "failed")
    assert step(env, "printed", fenced("print('7\\n' * 10**8)")) == ("1100", "output_limit")
    returned = row("returned", [(f'"{"ab" * 10_000_000}"', f'"{"ba" * 10_000_000}"')], [], "turned")
    env = make([returned])
    turn = "class Solution:\n    def turned(self, text):\n        return text[::-1]"
    assert step(env, "returned", fenced(turn)) == ("1111", "passed")
    assert step(env, "returned", fenced(turn.replace("[::-1]", ""))) == ("1110", "failed")


def test_long_numbers_of_methods(make):
    many = row("long", [("40000", "1" + "0" * 40_000), ("1", "10")], [], "power")
    power = "class Solution:\n    def power(self, n):\n        return 10**n"
    assert step(make([many]), "long", fenced(power)) == ("1111", "passed")
    assert step(make([many]), "long", fenced(power + " + 1")) == ("1110", "failed")
    with pytest.raises(DatasetError, match="must be JSON, one line an argument"):
        make([row("long", [("1", "1" * 50_001)], [], "power")]).reset()


SEEK = """
import gc, sys
class Solution:
    def scaled(self, xs, k):
        texts, frame = [str(found) for found in gc.get_objects() if type(found) in (dict, list, tuple)], sys._getframe()
        while frame:
            texts.append(str(frame.f_locals) + str(frame.f_globals))
            frame = frame.f_back
        assert any("".join(("79191", "23457")) in text for text in texts)  # the argument can be found
        return ["seen"] if any("".join(("158382", "46914")) in text for text in texts) else [k * x for x in xs]
"""


def test_expected_outputs_never_reach_the_program(make):
    env = make([row("twice", [("[7919123457]\n2", "[15838246914]")], [], "scaled")])
    assert step(env, "twice", fenced(SEEK)) == ("1111", "passed")


SPIN = """
import time
class Solution:
    def f(self, n):
        begin = time.process_time()
        while time.process_time() - begin < {}:
            pass
        return n
"""


def test_the_time_limit_is_that_of_one_test(embedded_sandbox):
    tests = FunctionTests("f", tuple(Case(str(n), str(n)) for n in range(4)))
    slow = tests.judge(embedded_sandbox, SPIN.format(0.1), Limits(cpu_seconds=0.25))
    assert (slow.outcome, slow.calls) == (Outcome.PASSED, 4)
    assert slow.cpu_seconds > 0.4
    over = tests.judge(embedded_sandbox, SPIN.format("0.05 if n < 2 else 9"), Limits(cpu_seconds=0.25))
    assert (over.outcome, over.calls) == (Outcome.TIMEOUT, 2)


@pytest.fixture(scope="module")
def embedded_sandbox():
    sandbox = Sandbox("embedded", workers=1)
    yield sandbox
    sandbox.close()


# ---- prompts ----------------------------------------------------------------------------------------------


def test_prompts_are_plain_chat(make):
    env = make()
    for task_id in ("sums", "twice"):
        obs, _ = env.reset(options={"task_id": task_id})
        assert [message["role"] for message in obs["messages"]] == ["system", "user"]
        assert f"Problem {task_id}." in obs["messages"][1]["content"]
        assert ("def scaled(self" in obs["messages"][1]["content"]) == (task_id == "twice")
        assert ("standard input" in obs["messages"][1]["content"]) == (task_id == "sums")
        assert env.unwrapped.reference() is None  # published rows have none


# ---- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_private_tests_of_every_form(make, protocol):
    private = listed([("10 20", "30")], "stdin")
    for given in (packed(json.dumps(private), protocol), json.dumps(private), private):
        env = make([SUMS | {"private_test_cases": given}])
        assert step(env, "sums", fenced(SUM)) == ("1111", "passed")
        assert env.unwrapped.verdict.calls == 2
        assert step(env, "sums", fenced("print(3)")) == ("1110", "failed")


class Evil:
    def __reduce__(self):
        return os.system, ("echo evil > evil.txt",)


@pytest.mark.parametrize(
    "found",
    [Evil(), [Evil()], {"a": datetime.date(2025, 1, 1)}, os.system, types.SimpleNamespace, bytearray(b"x"), {1}],
    ids=["call", "list", "date", "function", "class", "bytes", "set"],
)
def test_pickles_of_anything_else_are_refused(make, tmp_path, monkeypatch, found):
    monkeypatch.chdir(tmp_path)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        env = make([SUMS | {"private_test_cases": packed(found, protocol)}])
        with pytest.raises(DatasetError, match=r"test6\.jsonl, row 1: field 'private_test_cases' must be"):
            env.reset()
    assert not (tmp_path / "evil.txt").exists()


def test_a_pickle_is_read_as_one_text_or_refused():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for text in ("[]", "ä\n\\u0041\ud800", "x" * 300, ""):
            assert pickled_text(pickle.dumps(text, protocol)) == text
    for name in ("builtins.str", "builtins.eval", "collections.OrderedDict", "os.system"):
        module, attribute = name.split(".")
        with pytest.raises(ValueError, match="one text and no GLOBAL"):
            pickled_text(f"c{module}\n{attribute}\n.".encode())
    for data, opcode in (
        (b"Pname\n.", "PERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"(ios\nsystem\n.", "MARK"),
        (b"N.", "NONE"),
        (b"(l.", "MARK"),
    ):
        with pytest.raises(ValueError, match=f"one text and no {opcode}"):
            pickled_text(data)
    # To unpickle this would take 16 GiB: a text kept under a number of 2**30.
    assert pickled_text(b"X\x02\0\0\0[]r\0\0\0\x40.") == "[]"
    with pytest.raises(ValueError, match="one text, not 2"):
        pickled_text(b"X\x01\0\0\0aX\x01\0\0\0b.")
    for data in (b"", b"X\xff\xff\xff\xff", b"X\x01\0\0\0a"):
        with pytest.raises(ValueError, match=r"pickle exhausted|only \d+ remain"):
            pickled_text(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"private_test_cases": "not base 64!"}, "field 'private_test_cases' must be JSON, or JSON that was pickled"),
        ({"private_test_cases": base64.b64encode(b"rubbish").decode()}, "field 'private_test_cases' must be JSON, or"),
        ({"private_test_cases": packed("[]")[:-8] + "A" * 8}, "field 'private_test_cases' must be JSON, or"),
        ({"private_test_cases": packed(3)}, "field 'private_test_cases' must be JSON, or .* no BININT1"),
        ({"private_test_cases": packed("{}")}, "field 'private_test_cases' must be a list of tests"),
        ({"private_test_cases": packed("nonsense")}, "field 'private_test_cases' must be a list of tests as JSON"),
        ({"private_test_cases": [{"input": 1, "output": ""}]}, r"field 'private_test_cases\[0\].input' must be a text"),
        ({"public_test_cases": "[1]"}, r"field 'public_test_cases\[0\]' must be an object"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "must be at least one test"),
        ({"metadata": '{"func_name": "sum"}'}, "field 'input or output of a test of a method' must be JSON"),
        ({"metadata": '{"func_name": "a.b"}'}, "field 'metadata.func_name' must be a method's name"),
        ({"metadata": {"func_name": "class"}}, "field 'metadata.func_name' must be a method's name"),
        ({"metadata": {"func_name": "x²"}}, "field 'metadata.func_name' must be a method's name"),
        ({"metadata": "{"}, "field 'metadata' must be an object as JSON"),
        ({"contest_date": "soon"}, "field 'contest_date' must be a day"),
        ({"question_id": ""}, "field 'question_id' must be a text that is not empty"),
        ({"question_content": " "}, "field 'question_content' must be a text that is not empty"),
    ],
)
def test_wrong_rows_are_named(make, changes, message):
    with pytest.raises(DatasetError, match=r"test6\.jsonl, row 1: .*" + message):
        make([SUMS | changes]).reset()


def test_kinds_of_tests(make):
    tasks = make().unwrapped.tasks
    assert isinstance(tasks.get("sums").data.tests, OutputTests)
    assert isinstance(tasks.get("twice").data.tests, FunctionTests)
    assert [case.given for case in tasks.get("sums").data.tests.cases] == ["1 2\n", "10 20", "-1 1\n"]


# ---- releases and windows ---------------------------------------------------------------------------------


def test_releases_are_files():
    assert RELEASES["v6"] == ("test6.jsonl",)
    assert RELEASES["v1"] == RELEASES["release_v1"] == ("test.jsonl",)
    assert RELEASES["release_v3"] == ("test.jsonl", "test2.jsonl", "test3.jsonl")
    assert RELEASES["v4_v6"] == ("test4.jsonl", "test5.jsonl", "test6.jsonl")
    assert len(RELEASES["release_v6"]) == 6


def test_a_release_is_chosen_in_a_folder(make, tmp_path):
    make([row("b", [("", "")], []), row("a", [("", "")], [])], name="test5.jsonl")
    env = make([row("c", [("", "")], [])], name="test6.jsonl")
    (tmp_path / "notes.jsonl").write_text('{"not": "a row"}')
    assert [task.id for task in env.unwrapped.tasks] == ["c"]
    for release, ids in [("v6", "c"), ("v5", "ab"), ("v5_v6", "abc")]:
        env = gym.make("corrgrpo/LiveCodeBench-v0", dataset=str(tmp_path), release=release)
        assert "".join(task.id for task in env.unwrapped.tasks) == ids
    with pytest.raises(DatasetError, match=r"has no file 'test\.jsonl'; .*\['test5.jsonl', 'test6.jsonl'\]"):
        gym.make("corrgrpo/LiveCodeBench-v0", dataset=str(tmp_path), release="release_v6").reset()
    file = str(tmp_path / "test5.jsonl")
    assert len(gym.make("corrgrpo/LiveCodeBench-v0", dataset=file).unwrapped.tasks) == 2
    assert len(gym.make("corrgrpo/LiveCodeBench-v0", dataset=file, release="v5").unwrapped.tasks) == 2
    with pytest.raises(DatasetError, match="release 'v6' chooses among the published files"):
        gym.make("corrgrpo/LiveCodeBench-v0", dataset=file, release="v6").reset()
    with pytest.raises(DatasetError, match="release 'v6' chooses among the published files"):
        gym.make("corrgrpo/LiveCodeBench-v0", release="v6").reset()
    with pytest.raises(ValueError, match="release 'v7' is unknown"):
        gym.make("corrgrpo/LiveCodeBench-v0", release="v7")


def test_files_of_a_hub_id_are_downloaded_by_name(tmp_path, monkeypatch):
    asked = []

    def download(name, file, *, repo_type, revision):
        asked.append((name, file, repo_type, revision))
        (tmp_path / file).write_text(json.dumps(row(file, [("", "")], [])))
        return str(tmp_path / file)

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(hf_hub_download=download))
    hub = "livecodebench/code_generation_lite"
    env = gym.make("corrgrpo/LiveCodeBench-v0", dataset=hub)
    assert [task.id for task in env.unwrapped.tasks] == ["test6.jsonl"]
    assert asked[0] == (hub, "test6.jsonl", "dataset", None)
    env = gym.make("corrgrpo/LiveCodeBench-v0", dataset=f"{hub}@abc", release="v1_v2")
    assert len(env.unwrapped.tasks) == 2
    assert (hub, "test2.jsonl", "dataset", "abc") in asked

    with pytest.raises(DatasetError, match=r"'owner/name' or 'owner/name@revision', not 'livecodebench/.*:release_v6'"):
        gym.make("corrgrpo/LiveCodeBench-v0", dataset=f"{hub}:release_v6").reset()

    def broken(*args, **options):
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(hf_hub_download=broken))
    with pytest.raises(DatasetError, match=r"file 'test6.jsonl' of data set 'livecodebench/.*hub: no network"):
        gym.make("corrgrpo/LiveCodeBench-v0", dataset=hub).reset()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'corrgrpo\[hub\]'"):
        gym.make("corrgrpo/LiveCodeBench-v0", dataset=hub).reset()


def test_a_window_of_days(make):
    days = ["2024-12-31T23:59:59", "2025-01-01T00:00:00", "2025-01-31", "2025-02-01"]
    rows = [row(f"q{number}", [("", "")], [], date=day) for number, day in enumerate(days)]
    for options, ids in [
        ({}, "0123"),
        ({"start_date": "2025-01-01"}, "123"),
        ({"end_date": "2025-01-31"}, "012"),
        ({"start_date": "2025-01-01", "end_date": datetime.date(2025, 1, 31)}, "12"),
        ({"start_date": "2025-01-31", "end_date": "2025-01-31"}, "2"),
        ({"start_date": datetime.datetime(2025, 2, 1, 12)}, "3"),
    ]:
        env = make(rows, **options)
        assert "".join(task.id[1:] for task in env.unwrapped.tasks) == ids
    with pytest.raises(ValueError, match=r"leave no problem of .*4 problems are from 2024-12-31 to 2025-02-01"):
        make(rows, start_date="2025-03-01").reset()
    for options, message in [
        ({"start_date": "January"}, "start_date must be a day such as '2025-01-31', not 'January'"),
        ({"end_date": 2025}, "end_date must be a day"),
        ({"start_date": "2025-02-01", "end_date": "2025-01-01"}, "start_date 2025-02-01 is after end_date 2025-01-01"),
    ]:
        with pytest.raises(ValueError, match=message):
            make(rows, **options)


# ---- built-in items ---------------------------------------------------------------------------------------


def test_built_in_references_pass_and_spoiled_ones_fail():
    env = gym.make("corrgrpo/LiveCodeBench-v0")
    kinds = []
    for task in env.unwrapped.tasks:
        kinds.append(type(task.data.tests))
        env.reset(options={"task_id": task.id})
        (reference,) = env.unwrapped.reference()
        *_, info = env.step(reference)
        assert set(info["reward_components"].values()) == {1.0}, (task.id, env.unwrapped.verdict)
        count = len(task.data.tests.cases)
        assert info["metrics"]["calls"] == count
        code = reference.removeprefix("```python\n").removesuffix("\n```")
        if kinds[-1] is FunctionTests:
            wrong = spoiled(code + f"\n_answer = Solution().{task.data.row.function}\n", "_answer", count)
            wrong += f"\nclass Solution:\n    def {task.data.row.function}(self, *x): return _answer(*x)\n"
        else:
            last = task.data.tests.cases[-1].given
            wrong = f"_given = open(0).read()\nif _given.strip() == {last.strip()!r}:\n    print('spoiled')\nelse:\n"
            wrong += "    import io, sys\n    sys.stdin = io.TextIOWrapper(io.BytesIO(_given.encode()))\n"
            wrong += f"    exec({code!r})\n"
        env.reset(options={"task_id": task.id})
        *_, info = env.step(fenced(wrong))
        assert (info["status"], info["reward_components"]["correctness"]) == ("failed", 0.0), task.id
        assert info["metrics"]["calls"] in (count, count - 1), task.id
    assert kinds.count(FunctionTests) == kinds.count(OutputTests) == 4
