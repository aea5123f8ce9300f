# ruff: noqa: E501 (programs, as long as they are)
"""Timing two programs: what comes out, and that no program makes itself look faster."""

import math

import pytest

from corrgrpo_envs.sandbox import Check, Limits, Measurement, Outcome, Round, Sandbox, Times, Verdict

LIMITS = Limits(cpu_seconds=5.0)
CHECK = Check(
    "def check(candidate):\n    for n in range(20):\n        assert candidate(n) == sum(k * k % 7 for k in range(2000 + n))",
    "f",
)


def program(times: int, body: str = "", before: str = "") -> str:
    """The right answer, computed `times` times over."""
    return f"""
{before}
def g(n): return sum(k * k % 7 for k in range(2000 + n))
def f(n):
    {body or "pass"}
    for _ in range({times}):
        result = g(n)
    return result
"""


def test_equal_and_slower_programs(embedded: Sandbox) -> None:
    equal = embedded.measure(program(2), program(2), CHECK, LIMITS)
    slower = embedded.measure(program(4), program(2), CHECK, LIMITS)
    faster = embedded.measure(program(1), program(2), CHECK, LIMITS)
    assert equal.measured
    assert len(equal.rounds) >= 8
    assert 0.85 < equal.ratio < 1.15
    assert 1.6 < slower.ratio < 2.4
    assert 0.4 < faster.ratio < 0.6
    assert equal.noise < 0.2
    for one in equal.rounds:
        assert one.program.calls > 0.001
        assert one.reference.wall > 0


def test_wrong_program_or_reference_is_not_timed(embedded: Sandbox) -> None:
    wrong = embedded.measure("def f(n): return n", program(1), CHECK, LIMITS)
    assert (wrong.program.outcome, wrong.reference.outcome) == (Outcome.FAILED, Outcome.PASSED)
    assert not wrong.measured
    assert math.isnan(wrong.ratio)
    reference = embedded.measure(program(1), "def f(n): return n", CHECK, LIMITS)
    assert reference.reference.outcome is Outcome.FAILED
    assert "reference" in reference.why


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("import time\ntime.perf_counter = time.process_time = time.time = lambda: 0.0", ""),
        (
            "import functools\ncache = {}",
            "if n in cache: return cache[n]\n    cache[n] = g(n)",
        ),  # between rounds: nothing left
    ],
)
def test_tricks_do_not_pay(embedded: Sandbox, before: str, body: str) -> None:
    measured = embedded.measure(program(4, body, before), program(2), CHECK, LIMITS, rounds=4, max_rounds=4)
    assert measured.measured
    assert measured.ratio > (1.4 if not body else 0.4)  # the cached form computes once: half of the reference's two


def test_work_moved_before_the_calls_is_charged(embedded: Sandbox) -> None:
    before = "table = {n: sum(k * k % 7 for k in range(2000 + n)) for n in range(20) for _ in range(30)}"
    moved = f"{before}\ndef f(n): return table[n]"
    measured = embedded.measure(moved, program(2), CHECK, LIMITS, rounds=4, max_rounds=4)
    assert measured.rounds[0].program.calls < 0.2 * measured.rounds[0].reference.calls
    assert measured.ratio > 5  # thirty times the work of one pass, against two; some is allowed for loading


def test_other_results_in_timed_rounds_fail(embedded: Sandbox) -> None:
    # Without the clone of threads the timed child can be told from the judged one; garbage there is a failure.
    detects = program(
        1,
        "if TIMED: return 0",
        "import threading\ntry:\n    t = threading.Thread(target=int); t.start(); t.join(); TIMED = False\nexcept RuntimeError:\n    TIMED = True",
    )
    measured = embedded.measure(detects, program(2), CHECK, LIMITS, rounds=2, max_rounds=2)
    assert measured.program.outcome is Outcome.FAILED
    assert "another result" in measured.program.message
    assert not measured.measured


def test_slow_pairs_make_two_rounds(embedded: Sandbox) -> None:
    measured = embedded.measure(program(2), program(2), CHECK, LIMITS, budget_seconds=0.001)
    assert len(measured.rounds) == 2


def test_edited_arguments_and_exceptions_are_timed(embedded: Sandbox) -> None:
    check = Check(
        "def check(candidate):\n    xs = [3, 1]\n    candidate(xs)\n    assert xs == [1, 3]\n    try: candidate(None)\n"
        "    except AttributeError: pass\n    else: assert False",
        "f",
    )
    assert embedded.measure("def f(xs): xs.sort()", "def f(xs): xs.sort()", check, LIMITS).measured


def test_wrong_arguments_are_named(embedded: Sandbox) -> None:
    with pytest.raises(ValueError, match="rounds"):
        embedded.measure("", "", CHECK, rounds=1)
    with pytest.raises(ValueError, match="core"):
        embedded.measure("", "", CHECK, core=10_000)


def times(calls: float, outside: float = 0.001) -> Times:
    return Times(load=outside, decode=0.0, calls=calls, encode=0.0, wall=calls)


def test_ratio_is_that_of_the_faster_halves() -> None:
    passed = Verdict(Outcome.PASSED)
    rounds = tuple(Round(times(p), times(r)) for p, r in ((1.0, 2.0), (1.0, 2.0), (9.0, 2.0), (9.0, 50.0)))
    assert Measurement(passed, passed, rounds).ratio == pytest.approx(0.5)
    # 0.1 s beside the calls, the reference 0.01 s: 0.1 - 1.5 * 0.01 - 0.002 is charged.
    hidden = (Round(times(0.0, 0.1), times(1.0, 0.01)),) * 2
    assert Measurement(passed, passed, hidden).ratio == pytest.approx(0.083)
    drift = (Round(times(1.0), times(1.0)), Round(times(2.0), times(1.0)))
    assert Measurement(passed, passed, drift).noise == pytest.approx(math.log(2))
