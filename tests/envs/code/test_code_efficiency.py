"""Efficiency as a reward (published closed forms) and as the published metric."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corrgrpo_envs.code import speed
from corrgrpo_envs.code.efficiency import TIMINGS, Efficiency, Pair, Yardstick, compared, measure
from corrgrpo_envs.sandbox import Check, Limits, Measurement, Outcome, Round, Times, Verdict, shared

NAN = math.nan
PASSED = Verdict(Outcome.PASSED, cpu_seconds=0.5)


@pytest.mark.parametrize(
    ("seconds", "reference", "passed", "value", "applied", "available"),
    [
        (0.25, 1, True, 0.75, True, True),
        (1, 1, True, 0, True, True),
        (2, 1, True, 0, True, True),
        (0.25, 1, False, 0, False, True),
        (0, 1, True, 0, False, True),
        (NAN, 1, True, 0, False, True),
        (0.25, 0, True, 0, False, False),
        (0.25, -1, True, 0, False, False),
        (0.25, math.inf, True, 0, False, False),
        (0.25, NAN, True, 0, False, False),
    ],
)
def test_published_cases(seconds, reference, passed, value, applied, available):
    found = compared(seconds, reference, passed=passed)
    assert (found.value, found.applied, found.available) == (value, applied, available)


@pytest.mark.parametrize(("seconds", "value"), [(0.5, 0.5), (0.94, 0.06), (0.96, 0.0), (1.5, 0.0)])
def test_within_the_band_is_zero(seconds, value):
    assert compared(seconds, 1.0, band=0.05).value == pytest.approx(value, abs=1e-12)


@given(st.floats(), st.floats(), st.booleans(), st.floats(0, 0.99))
def test_always_a_share(seconds, reference, passed, band):
    found = compared(seconds, reference, passed=passed, band=band)
    assert 0 <= found.value <= 1
    assert found.applied or found.value == 0
    assert found.available or not found.applied


class Measured:
    """A sandbox that has measured already."""

    def __init__(self, measurement):
        self.measurement = measurement

    def measure(self, *arguments, **options):
        return self.measurement


def times(calls):
    return Times(load=0.001, decode=0.0, calls=calls, encode=0.0, wall=2 * calls)


def rounds(*pairs):
    return tuple(Round(times(program), times(reference)) for program, reference in pairs)


def paired(measurement, tie_band=0.05, reference="r"):
    yardstick = Yardstick(Check("", ""), reference, None)
    return TIMINGS["paired"].measure(Measured(measurement), "p", PASSED, yardstick, Limits(), tie_band)


def test_paired_takes_the_ratio_of_the_faster_halves():
    found = paired(Measurement(PASSED, PASSED, rounds((0.5, 1.0), (0.5, 1.0), (0.9, 2.0), (0.9, 2.0))))
    assert (found.value, found.ratio, found.reference_seconds) == (0.5, 0.5, 1.0)
    assert found.applied
    assert found.available


def test_the_band_is_the_widest_reason_for_doubt():
    steady = Measurement(PASSED, PASSED, rounds(*[(0.92, 1.0)] * 4))
    assert paired(steady).value == pytest.approx(0.08)
    assert paired(steady, tie_band=0.1).value == 0
    unpinned = Measurement(PASSED, PASSED, steady.rounds, pinned=False)
    assert paired(unpinned).value == 0
    assert paired(unpinned, tie_band=0).value == pytest.approx(0.08)
    noisy = Measurement(PASSED, PASSED, rounds((0.85, 1.0), (0.99, 1.0), (0.85, 1.0), (0.99, 1.0)))
    assert noisy.noise == pytest.approx(math.log(0.99 / 0.85))
    assert paired(noisy).value == 0
    assert paired(noisy, tie_band=0).value == pytest.approx(0.15)
    short = Measurement(PASSED, PASSED, rounds(*[(0.92e-4, 1e-4)] * 4))  # 8 microseconds
    assert paired(short).value == 0
    assert paired(short, tie_band=0).value == pytest.approx(0.08)


def test_what_cannot_be_timed():
    failed, gone = Verdict(Outcome.FAILED), Verdict(Outcome.INFRASTRUCTURE_ERROR)
    assert paired(Measurement(failed, PASSED, why="changed its results")) == Efficiency(available=True)
    assert paired(Measurement(failed, failed, why="the reference does not pass")) == Efficiency()
    assert paired(None, reference=None) == Efficiency()
    assert math.isnan(paired(Measurement(gone, PASSED)).value)
    assert math.isnan(paired(Measurement(failed, gone)).value)
    same = paired(None, reference="p")
    assert (same.value, same.ratio, same.applied) == (0, 1, True)


def test_stored_and_off():
    yardstick = Yardstick(Check("", ""), None, 1.0)
    stored = TIMINGS["stored"].measure(None, "p", PASSED, yardstick, Limits(), 0.05)
    assert (stored.value, stored.applied) == (0.5, True)
    nothing = Yardstick(Check("", ""), "r", None)
    assert TIMINGS["stored"].measure(None, "p", PASSED, nothing, Limits(), 0.05) == Efficiency()
    assert TIMINGS["off"].measure(None, "p", PASSED, yardstick, Limits(), 0.05) == Efficiency()
    available = {name: (timing.available(yardstick), timing.available(nothing)) for name, timing in TIMINGS.items()}
    assert available == {"paired": (False, True), "stored": (True, False), "off": (False, False)}


# ---- the metric -------------------------------------------------------------------------------------------


class Recorded:
    """A sandbox that gives each program the times of its text, and notes what it was asked."""

    def __init__(self):
        self.asked = []

    def measure(self, program, reference, check, limits, *, rounds, max_rounds, core):
        self.asked.append((program, core, rounds, max_rounds, limits))
        if program == "wrong":
            return Measurement(Verdict(Outcome.FAILED), PASSED, why="the program does not pass")
        fast, slow = float(program), float(reference)
        one = Round(times(fast), times(slow))
        return Measurement(PASSED, PASSED, (one, one))


def pair(program, reference="1.0"):
    return Pair(program, reference, Check("", ""))


def test_metric_counts_strictly_faster_pairs_that_pass():
    sandbox = Recorded()
    found = measure([pair("0.5"), pair("1.0"), pair("2.0"), pair("0.9"), pair("wrong")], sandbox=sandbox, cores=[0])
    assert found.counted == (4,) * 8
    assert found.pairs == 5
    for clock in (found.wall, found.cpu):
        assert clock.rounds == (50.0,) * 8
        assert (clock.faster, clock.spread) == (50.0, 0.0)
        assert clock.ratios[:4] == pytest.approx((0.5, 1.0, 2.0, 0.9))
        assert math.isnan(clock.ratios[4])
        assert clock.noise[:4] == (0.0,) * 4
        assert clock.undecided == pytest.approx(0.25)
    assert {limits for *_, limits in sandbox.asked} == {Limits(cpu_seconds=5.0, memory_mb=1024)}


def test_cores_rotate_between_blocks_and_queues_are_shuffled_alike_every_time():
    runs = []
    for _ in range(2):
        sandbox = Recorded()
        measure([pair(str(number + 1)) for number in range(6)], sandbox=sandbox, cores=[0, 1])
        runs.append(sorted(sandbox.asked[:], key=lambda ask: ask[1]))
        assert len(sandbox.asked) == 6 * 4
        assert all(ask[2:4] == (2, 2) for ask in sandbox.asked)
        for number in range(6):
            cores = [ask[1] for ask in sandbox.asked if ask[0] == str(number + 1)]
            assert sorted(cores) == [0, 0, 1, 1]
            assert cores[0] != cores[1]
    assert [ask[:2] for ask in runs[0]] == [ask[:2] for ask in runs[1]]


def test_noise_is_what_the_orders_disagree_by():
    logs = [0.0, 0.2, 0.0, 0.2]
    assert speed._noise(logs) == pytest.approx(0.1)
    assert math.isnan(speed._noise([0.1, None, None, 0.2]))


def test_no_pairs_and_no_rounds():
    found = measure([], sandbox=Recorded(), cores=[0])
    assert math.isnan(found.cpu.faster)
    assert found.counted == (0,) * 8
    for wrong in (0, 3, True, 2.0):
        with pytest.raises(ValueError, match="rounds must be a positive even number"):
            measure([], wrong)
    with pytest.raises(ValueError, match="cores must name at least one"):
        measure([], sandbox=Recorded(), cores=[])
    with pytest.raises(ValueError, match="core 4096 is unknown"):
        measure([pair("1.0")], cores=[4096])


def test_physical_cores_are_usable_and_distinct():
    cores = speed.physical_cores()
    assert 0 < len(set(cores)) == len(cores) <= 16


def test_metric_on_real_programs():
    check = Check("def check(candidate):\n    for n in range(5):\n        assert candidate(n) == n", "f")
    program = "def f(n):\n    for _ in range({}): pass\n    return n\n"
    fast, slow = program.format(20_000), program.format(100_000)
    found = measure([Pair(fast, slow, check), Pair(slow, fast, check), Pair("f = str", fast, check)], rounds=4)
    assert found.counted == (2,) * 4
    assert found.cpu.rounds == (50.0,) * 4
    assert 0.1 < found.cpu.ratios[0] < 0.4
    assert 2.5 < found.cpu.ratios[1] < 10
    assert shared().judge("f = int", check).passed
