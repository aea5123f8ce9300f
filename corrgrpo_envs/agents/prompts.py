"""The system message of AgentDojo's agents, read from the package, and a short list of tools to go with it."""

import importlib
import importlib.resources
from functools import lru_cache

from corrgrpo_envs.agents.calls import ToolCall
from corrgrpo_envs.agents.formats import CallFormat
from corrgrpo_envs.agents.toolbox import Toolbox


@lru_cache(maxsize=1)
def default_system_message() -> str:
    """The package's default system message: who the user is, and to look things up with tools."""
    path = importlib.resources.files("agentdojo") / "data" / "system_messages.yaml"
    messages = importlib.import_module("yaml").safe_load(path.read_text(encoding="utf-8"))
    return str(messages["default"])


def with_signatures(system: str, toolbox: Toolbox, written: CallFormat) -> str:
    """A system message that lists the tools, one a line, and shows how a call is written."""
    example = written.render("", [ToolCall("tool", {"parameter": "value"})])
    return (
        f"{system.rstrip()}\n\nTo call a tool, answer with\n{example}\nWithout a call your answer ends the task. "
        f"Tools (? is optional):\n{toolbox.signatures}"
    )
