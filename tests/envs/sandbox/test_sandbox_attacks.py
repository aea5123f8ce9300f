"""No program passes without the answer; every honest one does; each leaves the sandbox as it was."""

from dataclasses import replace

import pytest
from sandbox_attacks import ATTACKS, CHECK, HONEST, HONEST_CHECK, SECRET
from sandbox_processes import files_of_programs, lasting, worker_processes
from sandbox_tricks import TRICKS

from corrgrpo_envs.sandbox import Case, Check, Limits, Outcome, Sandbox

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=3.0, memory_mb=512, value_bytes=4 << 20)
# A busy machine takes longer than half a second to fill 512 MiB: of the two limits, memory's is the one to meet.
AMPLE = replace(LIMITS, cpu_seconds=10.0, wall_seconds=60.0)


def test_there_are_enough_attacks() -> None:
    assert len(ATTACKS) >= 60


def test_no_two_attacks_have_the_same_name() -> None:
    assert not ATTACKS.keys() & TRICKS.keys()


@pytest.mark.parametrize("name", [*ATTACKS, *TRICKS])
def test_attack(sandbox: Sandbox, name: str) -> None:
    program, outcomes = (ATTACKS | TRICKS)[name]
    sandbox.judge(HONEST["plain"], HONEST_CHECK, LIMITS)
    before = worker_processes(sandbox)
    verdict = sandbox.judge(program, CHECK, AMPLE if Outcome.MEMORY_LIMIT in outcomes else LIMITS)
    assert verdict.outcome in outcomes, verdict
    after = worker_processes(sandbox)
    assert after[: lasting(sandbox)] == before[: lasting(sandbox)]  # the next job waits for no new worker
    assert len(after) <= lasting(sandbox) + 1  # the judge, which may be another one
    honest = sandbox.judge(HONEST["plain"], HONEST_CHECK, LIMITS)
    assert honest.passed, honest
    assert worker_processes(sandbox)[: lasting(sandbox)] == before[: lasting(sandbox)]
    assert SECRET not in verdict.message
    assert verdict.message.isprintable()
    assert len(verdict.message) <= 1001
    assert not files_of_programs()


@pytest.mark.parametrize("name", HONEST)
def test_honest_program_passes(sandbox: Sandbox, name: str) -> None:
    verdict = sandbox.judge(HONEST[name], HONEST_CHECK, LIMITS)
    assert verdict.passed, verdict


def test_the_test_itself_can_be_passed(sandbox: Sandbox) -> None:
    program = f"class Solution:\n    def f(self, n): return '{SECRET}-%d' % n"
    assert sandbox.judge(program, CHECK, LIMITS).passed


def test_nothing_of_an_earlier_job_is_found(sandbox: Sandbox) -> None:
    # The secret's own program ran just before; now it is looked for in what a later program inherits.
    sandbox.judge(f"x = '{SECRET}'\nclass Solution:\n    def f(self, n): return x + '-%d' % n", CHECK, LIMITS)
    verdict = sandbox.judge(ATTACKS["memory scan"][0], CHECK, LIMITS)
    assert not verdict.passed


MUTATION = """
inputs = [[3, 1, 2], [5, 4]]
def check(candidate):
    for given in inputs:
        assert candidate(list(given)) == sorted(given)
    for given in inputs:
        assert candidate(given) == sorted(given)
    assert inputs == [[3, 1, 2], [5, 4]]
"""


def test_edited_inputs_do_not_change_what_is_expected(sandbox: Sandbox) -> None:
    clears = "def f(xs):\n    xs.clear()\n    return xs"
    for _ in range(2):  # nor for the next program
        assert sandbox.judge(clears, Check(MUTATION, "f"), LIMITS).outcome is Outcome.FAILED
        assert sandbox.judge("def f(xs): return sorted(xs)", Check(MUTATION, "f"), LIMITS).passed
        edits = sandbox.judge("def f(xs):\n    xs.sort()\n    return xs", Check(MUTATION, "f"), LIMITS)
        assert edits.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        ("1.0", "1", True),  # what Python's == says, no more and no less
        ("True", "1", True),
        ("-0.0", "0.0", True),
        ("float('nan')", "float('nan')", False),
        ("1e400", "float('inf')", True),
        ("(1, 2)", "[1, 2]", False),
        ("0.1 + 0.2", "0.3", False),
        ("'1'", "1", False),
        ("{1: 2}", "{1.0: 2}", True),
        ("frozenset([1])", "{1}", True),
        ("bytearray(b'x')", "b'x'", True),
        ("range(3)", "[0, 1, 2]", False),
        ("None", "0", False),
    ],
)
def test_values_are_compared_as_python_does(embedded: Sandbox, value: str, expected: str, same: bool) -> None:
    check = Check(f"def check(candidate):\n    assert candidate() == {expected}", "f")
    verdict = embedded.judge(f"def f(): return {value}", check, LIMITS)
    assert verdict.outcome is (Outcome.PASSED if same else Outcome.FAILED), verdict


TEXTS = ("", "\0", "\ud800", "x" * 300_000, "(" * 3000, "\r\f\u2028", "'" * 3, "\n" * 100_000)
FINE = ("", "\n" * 100_000)  # as a setup, that is: a module of nothing


@pytest.mark.parametrize("part", ["test", "setup", "entry_point", "program", "given", "expected", "names"])
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_any_text_anywhere_gets_a_verdict(embedded: Sandbox, part: str, number: int) -> None:
    text = TEXTS[number]
    good = {"test": "def check(c): assert c() == 1", "setup": "", "entry_point": "f", "program": "def f(): return 1"}
    if part in ("given", "expected"):
        case = Case(text if part == "given" else "1", text if part == "expected" else "1")
        verdict = embedded.judge_output("print(len(input()) or 1)", [case], LIMITS)
    else:
        names = (text,) if part == "names" else ()
        parts = {**good, **({part: text} if part in good else {})}
        program = parts.pop("program")
        verdict = embedded.judge(program, Check(**parts, names=names), LIMITS)
    assert verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR, verdict
    if part == "test" or (part == "setup" and text not in FINE):
        assert verdict.outcome is Outcome.INVALID_TEST
    assert verdict.message.isprintable()
    assert embedded.judge("def f(): return 1", Check(good["test"], "f"), LIMITS).passed
