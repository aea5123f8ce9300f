"""No program passes without the answer; every honest one does; each leaves the sandbox as it was."""

import pytest
from sandbox_attacks import ATTACKS, CHECK, HONEST, HONEST_CHECK, SECRET

from corrgrpo_envs.sandbox import Limits, Sandbox

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=3.0, memory_mb=512, value_bytes=4 << 20)


def test_there_are_enough_attacks() -> None:
    assert len(ATTACKS) >= 60


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(sandbox: Sandbox, name: str) -> None:
    program, outcomes = ATTACKS[name]
    verdict = sandbox.judge(program, CHECK, LIMITS)
    assert verdict.outcome in outcomes, verdict
    assert SECRET not in verdict.message
    assert verdict.message.isprintable()


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
