"""Sandboxes to test on: beside this process, and in containers where an engine runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from corrgrpo_envs.sandbox import Sandbox, SandboxError

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"
IMAGE = "corrgrpo-sandbox:test"  # made by tests/docker/engine.sh


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes from minutes to hours unless it is asked for: `-m slow`."""
    if "slow" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("slow") and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="takes long: run with -m slow"))


@pytest.fixture(scope="session")
def embedded() -> Iterator[Sandbox]:
    sandbox = Sandbox("embedded", workers=1)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def docker() -> Iterator[Sandbox]:
    pytest.importorskip("docker", reason="the Docker SDK is not installed")
    if "DOCKER_HOST" not in os.environ:
        pytest.skip("no Docker engine: run by `make test-docker`")
    sandbox = Sandbox("docker", workers=1, image=IMAGE)
    try:
        sandbox.isolation()
    except SandboxError as error:
        pytest.skip(str(error))
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session", params=["embedded", "docker"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def data() -> Path:
    if not DATA.is_dir():
        pytest.skip(f"no data folder at {DATA}")
    return DATA
