"""`Settings`: everything that an evaluation's result depends on."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.registration import full_id
from corrgrpo_train.errors import UsageError

ENGINES = ("transformers", "vllm", "server")
SEEDED_TASKS = 100
"""Episodes on an environment that has no list of tasks, where `tasks` does not say how many."""


@dataclass(frozen=True, slots=True)
class EnvironmentChoice:
    """An environment to evaluate on.

    Attributes:
        name: as the user wrote it, `"RLLA-v0"`.
        arguments: of its constructor; the split among them where it has splits.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """The id without this project's namespace, under which metrics and published results are found."""
        return full_id(self.name).removeprefix("corrgrpo/")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What is evaluated and how.

    Attributes:
        environments: environments, in order.
        model: a name that `load_policy_model` takes, or the server's name of the model.
        weights: fingerprint of the model's files; empty where there are none here.
        engine: what samples: one of `ENGINES`.
        samples: episodes per task.
        temperature: of sampling; 0 is greedy.
        seed: of sampling.
        tasks: at most so many tasks of each environment, kinds spread evenly; None: all.
        max_new_tokens: longest completion of one turn.
        max_episode_tokens: longest episode, prompt included; None: the model's context. Not for servers.
        batch: episodes that are sampled together; what is shared out among shards. Not for servers.
        schedule: `"lockstep"` or `"async"`; the second for vLLM alone.
        vllm_args: further engine arguments of vLLM.
        tool_mode: how a server is told of tools, see `conversation.TOOL_MODES`.
        reasoning: what becomes of the thoughts that a server returns apart, see `conversation.REASONING`.
        request_args: further fields of every request to a server; None takes a field out.
    """

    environments: tuple[EnvironmentChoice, ...]
    model: str
    weights: str = ""
    engine: str = "transformers"
    samples: int = 1
    temperature: float = 0.0
    seed: int = 0
    tasks: int | None = None
    max_new_tokens: int = 1024
    max_episode_tokens: int | None = None
    batch: int = 32
    schedule: str = "lockstep"
    vllm_args: Mapping[str, Any] = field(default_factory=dict)
    tool_mode: str = "calls"
    reasoning: str = "restore"
    request_args: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Check ranges and combinations.

        Raises:
            UsageError: for the first value that is not allowed.
        """
        if self.engine not in ENGINES:
            raise UsageError(str(unknown("engine", self.engine, ENGINES)))
        for name in ("samples", "tasks", "max_new_tokens", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if self.max_episode_tokens is not None and self.max_episode_tokens < 2:
            raise UsageError(f"max_episode_tokens must be at least 2, not {self.max_episode_tokens}")
        if not 0 <= self.temperature < math.inf or 0 < self.temperature < 0.01:
            raise UsageError(f"temperature must be 0 (greedy) or at least 0.01, not {self.temperature}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed must be from 0 to 2^63 - 1, not {self.seed}")
        if self.samples > 1 and self.temperature == 0:
            raise UsageError(
                f"samples={self.samples} at temperature 0 would be the same answer {self.samples} times: give a "
                "--temperature above 0, or one sample"
            )
        names = [one.short for one in self.environments]
        if not names:
            raise UsageError("no environment is named: give one, for example --env RLLA-v0")
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"environment {name} is named twice: evaluate its variants one at a time")
        self._check_engine()

    def _check_engine(self) -> None:
        if self.schedule not in ("lockstep", "async"):
            raise UsageError(str(unknown("schedule", self.schedule, ("lockstep", "async"))))
        for name, value, default, needed in (
            ("schedule", self.schedule, "lockstep", "vllm"),
            ("vllm_args", dict(self.vllm_args), {}, "vllm"),
            ("tool_mode", self.tool_mode, "calls", "server"),
            ("reasoning", self.reasoning, "restore", "server"),
            ("request_args", dict(self.request_args), {}, "server"),
        ):
            if value != default and self.engine != needed:
                given = "--server URL" if needed == "server" else f"--engine {needed}"
                raise UsageError(f"{name} has no effect without {given}: give that, or leave {name} out")
        for name in ("messages", "model", "stream", "n"):
            if name in self.request_args:
                raise UsageError(f"request_args can't hold {name!r}: an evaluation asks for one whole answer at a time")
        if self.engine == "server" and self.max_episode_tokens is not None:
            raise UsageError("max_episode_tokens has no effect with --server: the server has a limit of its own")

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """In which settings two evaluations differ, in words."""
    names = [name for name in (*one, *(name for name in other if name not in one)) if one.get(name) != other.get(name)]
    return [f"{name} {shown(one.get(name))}, not {shown(other.get(name))}" for name in names]


def default_output(settings: Settings, shard: tuple[int, int]) -> Path:
    """Where a result goes if nothing is said."""
    model = re.sub(r"[^\w.]+", "-", settings.model).strip("-.") or "model"
    if settings.weights:
        model += f"-{settings.weights[:8]}"
    names = [re.sub(r"[^\w.]+", "-", one.short) for one in settings.environments]
    part = "" if shard == (1, 1) else f".shard-{shard[0]}-of-{shard[1]}"
    return Path("evaluations") / f"{model[:80]}-{'-'.join(names)[:120]}{part}.json"


def parse_shard(text: str) -> tuple[int, int]:
    """Read `"2/4"`, the second of four shards.

    Raises:
        UsageError: if it is not of this form.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"shard must be written I/N with I from 1 to N, for example 1/4, not {shown(text)}")
    return int(match[1]), int(match[2])


def environment_choices(
    names: Sequence[str], arguments: Sequence[str], read: "Mapping[str, Any] | None" = None
) -> tuple[EnvironmentChoice, ...]:
    """Match environments with constructor arguments.

    Args:
        names: of environments.
        arguments: each a JSON object for all of them, or `NAME=` and a JSON object for one.
        read: arguments of all of them that later ones replace.

    Raises:
        UsageError: if an argument can't be read or belongs to no environment.
    """
    shorts = {EnvironmentChoice(name).short: name for name in names}
    found: dict[str, dict[str, Any]] = {short: dict(read or {}) for short in shorts}
    for text in arguments:
        match = re.match(r"([^{=]+)=", text)
        if match is None:
            targets = list(shorts)
        else:
            short = EnvironmentChoice(match[1].strip()).short
            if short not in shorts:
                raise UsageError(str(unknown("env_args for environment", match[1].strip(), shorts)))
            targets = [short]
        values = json_object("env_args", text[match.end() :] if match else text)
        for short in targets:
            found[short] |= values
    return tuple(EnvironmentChoice(name, found[EnvironmentChoice(name).short]) for name in names)


def json_object(what: str, text: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        UsageError: if it is none.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be a JSON object such as '{{\"name\": 1}}', not {shown(text)}")
    return value
