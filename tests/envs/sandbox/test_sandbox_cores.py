"""The processes of a request share a core; what runs for longer is let go."""

import os
from collections.abc import Iterator

import pytest

from corrgrpo_envs.sandbox import Check, Limits, Sandbox

USABLE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
LOOK = """
import os, time
def f(seconds):
    before, end = len(os.sched_getaffinity(0)), time.process_time() + seconds
    while time.process_time() < end:
        pass
    return [before, len(os.sched_getaffinity(0))]
"""
CHECK = Check("def check(candidate):\n    assert candidate(2) == 4", "f")
GOOD = "def f(x): return 2 * x"
LIMITS = Limits(cpu_seconds=5.0)

pytestmark = pytest.mark.skipif(USABLE < 2, reason="needs two cores")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox("embedded", workers=1)
    yield made
    made.close()


def test_a_program_begins_on_one_core_and_may_use_all_when_it_runs_for_longer(sandbox: Sandbox) -> None:
    # A start that took longer than usual has been let go before the first look: on a busy machine a few may.
    seen = [sandbox.call(LOOK, "f", 0.2, limits=LIMITS).value for _ in range(10)]
    assert [1, USABLE] in seen
    assert {after for _, after in seen} == {USABLE}


def test_requests_do_not_bind_the_process_that_asks(sandbox: Sandbox) -> None:
    assert sandbox.judge(GOOD, CHECK, LIMITS).passed
    assert len(os.sched_getaffinity(0)) == USABLE
