"""Files, network, processes, signals and memory are out of reach, on every kind of host."""

import os
import platform
import shutil
from collections.abc import Iterator

import pytest
from sandbox_attacks import ATTACKS, CHECK
from sandbox_probes import PROBES, REACHING

from corrgrpo_envs.sandbox import Limits, Sandbox, SandboxError
from corrgrpo_envs.sandbox.hosts.embedded import EmbeddedHost

SYSTEM_PYTHON = "/usr/bin/python3"


def _sandbox(host: EmbeddedHost) -> Sandbox:
    sandbox = Sandbox("embedded", workers=1)
    sandbox._hosts = [host]
    return sandbox


@pytest.fixture(params=["default", "no namespaces", "ordinary user", "ordinary user, no namespaces", "container"])
def held(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param == "container":
        yield request.getfixturevalue("docker")
        return
    namespaces = "no namespaces" not in request.param
    if "user" in request.param:
        if os.getuid() != 0 or not shutil.which(SYSTEM_PYTHON):
            pytest.skip("needs root and a system Python, to become an ordinary user")
        host = EmbeddedHost((), namespaces=namespaces, interpreter=SYSTEM_PYTHON, user=65534)
    else:
        host = EmbeddedHost((), namespaces=namespaces)
    sandbox = _sandbox(host)
    yield sandbox
    sandbox.close()


def test_doors_are_shut(held: Sandbox) -> None:
    returned = held.call(PROBES, "probe")
    assert returned.verdict.passed, returned.verdict
    opened, tried = returned.value
    assert tried >= 40
    # Listing names of installed packages is all that Landlock alone leaves: the folder lies in the library.
    known = {"installed packages"} if not held.isolation().namespaces or held.isolation().host == "docker" else set()
    assert {name for name, how in opened.items() if how == "open"} <= known


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86-64")
def test_system_calls_that_reach_out_are_refused(held: Sandbox) -> None:
    x32 = [number | 0x40000000 for number in REACHING.values()]
    returned = held.call(PROBES, "refused", [*REACHING.values(), *x32])
    assert returned.verdict.passed, returned.verdict
    assert [name for name, number in REACHING.items() if number in returned.value] == []
    assert returned.value == []


def test_descriptors_are_the_three_streams_and_the_wire(held: Sandbox) -> None:
    assert held.call(PROBES, "descriptors").value == [0, 1, 2, 3]


def test_environment_says_nothing(held: Sandbox) -> None:
    variables, arguments, path, user, _ = held.call(PROBES, "environment").value
    assert set(variables) <= {
        "PYTHONHASHSEED",
        "MALLOC_ARENA_MAX",
        "LC_ALL",
        "LC_CTYPE",
        "PATH",
        "HOME",
        "HOSTNAME",
        "LD_LIBRARY_PATH",
    }
    assert arguments == ["-c"]
    assert all("site-packages" not in folder for folder in path)
    assert user != 0 or os.getuid() != 0


@pytest.mark.parametrize("name", ["memory scan", "reads the parent's memory", "kills everyone", "endless loop"])
def test_attacks_fail_there_too(held: Sandbox, name: str) -> None:
    program, outcomes = ATTACKS[name]
    assert held.judge(program, CHECK, Limits(cpu_seconds=0.5)).outcome in outcomes


def test_level_is_reported_and_required() -> None:
    sandbox = Sandbox("embedded", workers=1)
    isolation = sandbox.isolation()
    assert isolation.level in ("reduced", "basic", "strong", "full")
    assert any(isolation.level in line for line in isolation.lines())
    sandbox.close()
    without = _sandbox(EmbeddedHost((), namespaces=False))
    without._minimum = "full"
    with pytest.raises(SandboxError, match="namespaces"):
        without.isolation()
