"""ASB's cases: agents with a task and tools of their own, each clean and with every tool of its attackers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from corrgrpo_envs.datasets import Row, fingerprint, read_rows, schema_error
from corrgrpo_envs.errors import DatasetError, shown, unknown
from corrgrpo_envs.tasks import Task

CLEAN = "clean"
ATTACK_TOOLS = {
    "all": "all_attack_tools.jsonl",
    "aggressive": "all_attack_tools_aggressive.jsonl",
    "non_aggressive": "all_attack_tools_non_aggressive.jsonl",
}
_TASKS, _NORMAL, _CONFIGS = "agent_task.jsonl", "all_normal_tools.jsonl", "agent_configs"


@dataclass(frozen=True, slots=True)
class NormalTool:
    """A tool that serves the agent's tasks; takes no arguments.

    Attributes:
        name: what calls name it by.
        description: what it does.
        achievement: what it returns, by which its use is known.
    """

    name: str
    description: str
    achievement: str


@dataclass(frozen=True, slots=True)
class AttackTool:
    """A tool that serves an attacker; takes no arguments.

    Attributes:
        name: what calls name it by.
        description: what it does.
        instruction: what the attacker tells the agent to do.
        goal: what the attacker wants, part of what the tool returns.
        aggressive: whether the data call it aggressive.
    """

    name: str
    description: str
    instruction: str
    goal: str
    aggressive: bool


@dataclass(frozen=True, slots=True)
class ASBCase:
    """What an episode is about.

    Attributes:
        agent: the agent's name.
        role: its description, the beginning of its system message.
        request: the user's task.
        tools: the agent's normal tools.
        attack: the attacker's tool; None in a clean case.
    """

    agent: str
    role: str
    request: str
    tools: tuple[NormalTool, ...]
    attack: AttackTool | None


def case_tasks(dataset: str, attack_tools: str, tasks_per_agent: int, paired: bool) -> tuple[Task[ASBCase], ...]:
    """All cases of a data set, clean ones first; all are in split `test`.

    Ids are `agent:n:clean` and `agent:n:tool`, n being the number of the agent's task, from 0; with `paired` clean ones
    are `agent:n:tool:clean`.

    Args:
        dataset: `"builtin"`, or a folder with the published files: `agent_task.jsonl`, `all_normal_tools.jsonl`,
            `all_attack_tools.jsonl` and `agent_configs/`.
        attack_tools: `"all"`, or the published halves `"aggressive"` and `"non_aggressive"`.
        tasks_per_agent: so many tasks of each agent, the first ones.
        paired: a clean case for every attacked one, instead of one for every task.

    Raises:
        DatasetError: naming file, row and field.
    """
    folder = Path(str(files("envs_assets") / "asb")) if dataset == "builtin" else Path(dataset).expanduser()
    if not folder.is_dir():
        raise DatasetError(
            f"data set {shown(dataset)} is no folder; ASB's is 'builtin' or the published data folder, with {_TASKS}, "
            f"{_NORMAL}, {ATTACK_TOOLS['all']} and {_CONFIGS}/ (download a hub's first)"
        )
    return _read(folder, attack_tools, tasks_per_agent, paired, fingerprint(str(folder)))


def key_of(task_id: str) -> tuple[str, str, str | None, bool]:
    """Agent, number of its task, attack tool (None: any) and whether the case is clean, of a task's id.

    Raises:
        ValueError: if it is no id of a case.
    """
    parts = task_id.split(":")
    if len(parts) == 3:
        return parts[0], parts[1], None if parts[2] == CLEAN else parts[2], parts[2] == CLEAN
    if len(parts) == 4 and parts[3] == CLEAN:
        return parts[0], parts[1], parts[2], True
    raise ValueError(
        f"{task_id!r} is no ASB task id: 'agent:n:clean', 'agent:n:tool' or 'agent:n:tool:clean' is wanted"
    )


@lru_cache(maxsize=8)
def _read(
    folder: Path, attack_tools: str, tasks_per_agent: int, paired: bool, state: object
) -> tuple[Task[ASBCase], ...]:
    normal = {tool.name: tool for tool in map(_normal, read_rows(folder / _NORMAL))}
    attackers: dict[str, list[AttackTool]] = {}
    for row in read_rows(folder / ATTACK_TOOLS[attack_tools]):
        attackers.setdefault(row.require("Corresponding Agent", str), []).append(_attacker(row))
    clean, attacked = [], []
    for row in read_rows(folder / _TASKS):
        agent, requests = row.require("agent_name", str), row.require("tasks", list)
        if not all(isinstance(request, str) for request in requests):
            raise schema_error(row.source, row.number, "tasks", "a list of texts", requests)
        if ":" in agent or not agent.isprintable() or Path(agent).name != agent:  # it is part of ids, and a file's name
            raise schema_error(row.source, row.number, "agent_name", "a name without ':' or '/'", agent)
        role, tools = _config(folder / _CONFIGS / f"{agent}.json", normal)
        for tool in attackers.get(agent, []):
            if tool.name in {one.name for one in tools}:
                raise DatasetError(f"agent {agent!r}: its own tool {tool.name!r} is also an attacker's")
        for number, request in enumerate(requests[:tasks_per_agent]):
            case = ASBCase(agent, role, request, tools, None)
            place = f"{agent}:{number}"
            if not paired:
                clean.append(Task(f"{place}:{CLEAN}", "test", case, CLEAN))
            for tool in attackers.get(agent, []):
                if paired:
                    clean.append(Task(f"{place}:{tool.name}:{CLEAN}", "test", case, CLEAN))
                under = ASBCase(agent, role, request, tools, tool)
                attacked.append(Task(f"{place}:{tool.name}", "test", under, "attacked"))
    return (*clean, *attacked)


def _normal(row: Row) -> NormalTool:
    return NormalTool(_text(row, "Tool Name"), row.require("Description", str), _text(row, "Expected Achievements"))


def _attacker(row: Row) -> AttackTool:
    name = _text(row, "Attacker Tool")
    if ":" in name or name == CLEAN:
        raise schema_error(row.source, row.number, "Attacker Tool", f"a name without ':' that is not {CLEAN!r}", name)
    return AttackTool(
        name,
        row.require("Description", str),
        _text(row, "Attacker Instruction"),
        _text(row, "Attack goal"),
        str(row.get("Aggressive")) == "True",
    )


def _text(row: Row, field: str) -> str:
    """A text that is not empty: every message has an empty one in it, and no call can name it."""
    text = row.require(field, str)
    if not text.strip():
        raise schema_error(row.source, row.number, field, "a text that is not empty", text)
    return text


def _config(path: Path, normal: Mapping[str, NormalTool]) -> tuple[str, tuple[NormalTool, ...]]:
    """Description and tools of an agent."""
    try:
        config: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DatasetError(f"{shown(path.name)} can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path.name}: not JSON: {error}") from None
    description, names = (config.get("description"), config.get("tools")) if isinstance(config, dict) else (None, None)
    if not (_texts(description) and _texts(names)):
        raise DatasetError(f"{path.name}: needs 'description' and 'tools', both lists of texts")
    found = []
    for name in (str(name).rpartition("/")[2] for name in names or ()):
        if name not in normal:
            raise unknown(f"{path.name}: tool", name, normal)
        found.append(normal[name])
    return "".join(description or ()), tuple(found)


def _texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)
