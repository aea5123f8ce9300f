"""The system message of AgentDojo's agents, read from the package."""

import importlib
import importlib.resources
from functools import lru_cache


@lru_cache(maxsize=1)
def default_system_message() -> str:
    """The package's default system message: who the user is, and to look things up with tools."""
    path = importlib.resources.files("agentdojo") / "data" / "system_messages.yaml"
    messages = importlib.import_module("yaml").safe_load(path.read_text(encoding="utf-8"))
    return str(messages["default"])
