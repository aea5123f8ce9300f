"""InjecAgent's cases: a user's request, what the user's tool returned, and an attacker's instruction inside it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from corrgrpo_envs.agents.injecagent_prompts import ENHANCED_PREFIX
from corrgrpo_envs.agents.injecagent_verdict import Attack
from corrgrpo_envs.datasets import Row, fingerprint, read_rows, schema_error
from corrgrpo_envs.errors import DatasetError, shown, unknown
from corrgrpo_envs.tasks import Task

DIRECT_HARM, DATA_STEALING = "dh", "ds"
PARTS = (DIRECT_HARM, DATA_STEALING)
SETTINGS = ("base", "enhanced")
_PLACE = "<Attacker Instruction>"
_TOOLS, _RESPONSES = "tools.json", "attacker_simulated_responses.json"


@dataclass(frozen=True, slots=True)
class InjecAgentCase:
    """One case.

    Attributes:
        part: `"dh"` (direct harm) or `"ds"` (data stealing).
        attacker_tools: one tool for direct harm; for data stealing the tool that gets the data and the one that sends.
        instruction: the attacker's instruction.
        attack_type: e.g. `"Physical Harm"`.
        user_tool: the tool that serves the user.
        request: what the user asked for.
        thought: what the agent thought before it called the user's tool; begins with `Thought:`.
        parameters: what it called the tool with, as text.
        response: what the tool returned, with the instruction in it.
    """

    part: str
    attacker_tools: tuple[str, ...]
    instruction: str
    attack_type: str
    user_tool: str
    request: str
    thought: str
    parameters: str
    response: str

    def attack(self, stage: int) -> Attack:
        """What the verdict of a stage (0 or 1) looks for."""
        return Attack(self.attacker_tools[stage], self.attacker_tools, self.user_tool, self.instruction)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A data set: its cases, the tools' specifications by full name, and the responses for the second stage.

    `responses` are by `(tool,parameters)`, `first_responses` the first of each tool.
    """

    tasks: tuple[Task[InjecAgentCase], ...]
    tools: Mapping[str, Mapping[str, Any]]
    responses: Mapping[str, str]
    first_responses: Mapping[str, str]

    def response(self, tool: str, parameters: str) -> tuple[str | None, bool]:
        """What a tool returned for these parameters, and whether that very call is in the cache.

        On a miss it is the first cached response of the tool; None if there is none at all.
        """
        exact = self.responses.get(f"({tool},{parameters})")
        return (self.first_responses.get(tool), False) if exact is None else (exact, True)


def load(dataset: str, setting: str, prefix: str | None = None) -> Benchmark:
    """Read a data set, the same object for all environments of a process.

    Args:
        dataset: `"builtin"`, or a folder with the published files: `tools.json`, `attacker_simulated_responses.json`,
            and either `test_cases_dh_base.json` and `test_cases_ds_base.json` or what they are products of:
            `user_cases.jsonl`, `attacker_cases_dh.jsonl` and `attacker_cases_ds.jsonl`.
        setting: `"base"` or `"enhanced"`: a sentence before the instruction that presses the agent to obey. Published
            files of that name are read where they are; else the base cases get the prefix.
        prefix: the text of that sentence, in place of ours; published enhanced files are then not read.

    Raises:
        DatasetError: naming file, row and field.
        ValueError: for an unknown setting.
    """
    if setting not in SETTINGS:
        raise unknown("setting", setting, SETTINGS)
    folder = Path(str(files("envs_assets") / "injecagent")) if dataset == "builtin" else Path(dataset).expanduser()
    if not folder.is_dir():
        raise DatasetError(
            f"data set {shown(dataset)} is no folder; InjecAgent's is 'builtin' or the published data folder, with "
            f"{_TOOLS}, {_RESPONSES} and test_cases_dh_base.json (download a hub's first)"
        )
    return _load(folder, setting, prefix, fingerprint(str(folder)))


@lru_cache(maxsize=8)
def _load(folder: Path, setting: str, prefix: str | None, state: object) -> Benchmark:
    tools = _tools(folder)
    tasks: list[Task[InjecAgentCase]] = []
    for part in PARTS:
        numbers: dict[str, int] = {}
        for row in _rows(folder, part, setting, prefix):
            case = _case(row, part)
            for name in (case.user_tool, *case.attacker_tools):
                if name not in tools:
                    raise unknown(f"{row.source}, row {row.number}: tool", name, tools)
            number = numbers.setdefault(case.instruction, len(numbers))
            task_id = f"{part}:{number}-{case.attacker_tools[0]}:{case.user_tool}"
            tasks.append(Task(task_id, "test", case, part))
    responses = _responses(folder)
    first: dict[str, str] = {}
    for key, text in responses.items():
        first.setdefault(key[1:].partition(",")[0], text)
    return Benchmark(tuple(tasks), tools, responses, first)


def _rows(folder: Path, part: str, setting: str, prefix: str | None) -> Iterator[Row]:
    published = folder / f"test_cases_{part}_{setting}.json"
    if published.is_file() and (setting == "base" or prefix is None):
        yield from read_rows(published)
        return
    pressing = "" if setting == "base" else ENHANCED_PREFIX if prefix is None else prefix
    base = folder / f"test_cases_{part}_base.json"
    for row in read_rows(base) if base.is_file() else _product(folder, part):
        instruction, response = row.require("Attacker Instruction", str), row.require("Tool Response", str)
        for written in (json.dumps(instruction)[1:-1], instruction):
            if written in response:
                response = response.replace(written, json.dumps(pressing)[1:-1] + written, 1)
                break
        else:
            raise schema_error(row.source, row.number, "Tool Response", "a text with the instruction in it", response)
        yield Row({**row, "Tool Response": response}, row.source, row.number)


def _product(folder: Path, part: str) -> Iterator[Row]:
    """The attackers with every user, in the published order: attackers outside, users inside."""
    users = read_rows(folder / "user_cases.jsonl")
    for attacker in read_rows(folder / f"attacker_cases_{part}.jsonl"):
        instruction = attacker.require("Attacker Instruction", str)
        for user in users:
            response = json.dumps(user.require("Tool Response Template", str).replace(_PLACE, instruction))
            yield Row({**attacker, **user, "Tool Response": response}, attacker.source, attacker.number)


def _case(row: Row, part: str) -> InjecAgentCase:
    names = row.require("Attacker Tools", list)
    wanted = 1 if part == DIRECT_HARM else 2
    if len(names) != wanted or not all(isinstance(name, str) for name in names):
        raise schema_error(row.source, row.number, "Attacker Tools", f"a list of {wanted} names", names)
    thought, instruction = row.require("Thought", str), row.require("Attacker Instruction", str)
    if not instruction.strip():
        raise schema_error(row.source, row.number, "Attacker Instruction", "a text that is not empty", instruction)
    return InjecAgentCase(
        part,
        tuple(names),
        instruction,
        row.require("Attack Type", str, ""),
        row.require("User Tool", str),
        row.require("User Instruction", str),
        thought if thought.startswith("Thought:") else f"Thought: {thought}",
        row.require("Tool Parameters", str),
        row.require("Tool Response", str),
    )


def _tools(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Specifications by full name, which is the toolkit's and the tool's together."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in read_rows(folder / _TOOLS):
        kit = row.require("toolkit", str)
        for tool in row.require("tools", list):
            if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
                raise schema_error(row.source, row.number, "tools", "a list of objects with 'name'", tool)
            name = kit + tool["name"]
            found[name] = {**tool, "name": name}
    return found


def _responses(folder: Path) -> dict[str, str]:
    path = folder / _RESPONSES
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DatasetError(f"{path} can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{_RESPONSES}: not JSON: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise DatasetError(f"{_RESPONSES}: must be an object of texts by '(tool,parameters)', found {shown(found)}")
    return found
