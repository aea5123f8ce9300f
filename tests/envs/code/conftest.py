"""What takes minutes runs when it is asked for."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests of this folder but for `-m slow`."""
    if "slow" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("slow") and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="takes long: run with -m slow"))
