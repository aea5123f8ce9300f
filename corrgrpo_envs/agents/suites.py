"""AgentDojo's suites: tasks, tools, attacks and states, loaded once per process and shared.

The package is imported only here and only when a suite is asked for: the import alone takes seconds.
"""

import importlib
import pickle
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

from corrgrpo_envs.agents.calls import ToolCall
from corrgrpo_envs.agents.toolbox import Toolbox
from corrgrpo_envs.errors import shown, unknown

Injections = tuple[tuple[str, str], ...]
"""Payload by injection vector, as pairs."""

_STATES = 4096
_INTERACTIVE = ("manual",)


class _Source:
    """The part of a suite that an attack uses, on states that are made quickly."""

    def __init__(self, suite: "Suite") -> None:
        self._suite = suite
        self.name, self.tools = suite.name, suite.package.tools

    def get_injection_vector_defaults(self) -> dict[str, str]:
        return dict(self._suite.default_injections)

    def load_and_inject_default_environment(self, injections: dict[str, str]) -> Any:
        return pickle.loads(self._suite.state(tuple(injections.items())))


class Suite:
    """One suite of one version of the benchmark.

    Attributes:
        version: e.g. `"v1.2.2"`.
        name: e.g. `"banking"`.
        package: the package's own `TaskSuite`.
        toolbox: its tools.
        user_tasks, injection_tasks: the package's task objects by id, in the order of their numbers.
        default_injections: the harmless text of each injection vector.
    """

    def __init__(self, version: str, name: str, package: Any) -> None:
        self.version, self.name, self.package = version, name, package
        self.toolbox = Toolbox(
            (tool.name, tool.description, tool.parameters.model_json_schema()) for tool in package.tools
        )
        self.user_tasks: dict[str, Any] = dict(sorted(package.user_tasks.items(), key=_number))
        self.injection_tasks: dict[str, Any] = dict(sorted(package.injection_tasks.items(), key=_number))
        self.default_injections: dict[str, str] = package.get_injection_vector_defaults()
        self.state = lru_cache(maxsize=_STATES)(self._state)
        self.injections = lru_cache(maxsize=_STATES)(self._injections)
        self.reference_turns = lru_cache(maxsize=None)(self._reference_turns)
        self._attack = lru_cache(maxsize=64)(self._load_attack)

    def _state(self, injections: Injections = ()) -> bytes:
        """The pickled state at the start of an episode: what the package loads, five times faster.

        Pickling keeps the aliases inside a state (a mail is in two lists), which JSON would not.

        Raises:
            ValueError: for an unknown vector, or a payload with a quotation mark or a backslash that breaks the YAML.
        """
        for vector, _ in injections:
            if vector not in self.default_injections:
                raise unknown("injection vector", vector, self.default_injections)
        yaml = importlib.import_module("yaml")
        texts = importlib.import_module("agentdojo.task_suite.task_suite")
        text = texts.read_suite_file(self.name, "environment.yaml", self.package.data_path)
        filled = text.format(**{**self.default_injections, **dict(injections)})
        try:
            data = yaml.load(filled, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError as error:
            raise ValueError(
                f"a payload can't be written into the state of {self.name!r} (quotation marks, backslashes): "
                f"{shown(dict(injections))}"
            ) from error
        return pickle.dumps(self.package.environment_type.model_validate(data), protocol=5)

    def _reference_turns(self, user_task: str) -> int:
        """Assistant turns of a user task's ground truth: its calls and the answer."""
        return len(self.user_tasks[user_task].ground_truth(pickle.loads(self.state()))) + 1

    def _injections(self, user_task: str, injection_task: str, attack: str, model: str) -> Injections:
        """The payloads of an attack, in the vectors that the user task's ground truth reads."""
        written = self._attack(attack, model).attack(self.user_tasks[user_task], self.injection_tasks[injection_task])
        return tuple(written.items())

    def _load_attack(self, attack: str, model: str) -> Any:
        registry = importlib.import_module("agentdojo.attacks.attack_registry")
        return registry.load_attack(attack, _Source(self), SimpleNamespace(name=model))

    def run(self, state: Any, call: ToolCall) -> "Returned | str":
        """Run a call on a state, which it may change; never raises.

        Returns:
            What the tool returned (it may be a part of the state: write it down before the next call), or the
            text of an error.
        """
        runtime = importlib.import_module("agentdojo.functions_runtime").FunctionsRuntime(self.package.tools)
        try:
            value, error = runtime.run_function(state, call.name, call.arguments)
        except Exception as unforeseen:  # e.g. of a text with lone surrogates, which pydantic can't take
            return f"{type(unforeseen).__name__}: {unforeseen}"
        return Returned(value) if error is None else str(error)


@dataclass(frozen=True, slots=True)
class Returned:
    """A tool's return value."""

    value: Any


def _number(item: tuple[str, Any]) -> int:
    return int(item[0].rsplit("_", 1)[1])


@lru_cache(maxsize=1)
def load_package() -> ModuleType:
    """Import the package's module of suites, with all attacks registered.

    Raises:
        ImportError: if the package is not installed; the message says how to install it.
    """
    try:
        suites = importlib.import_module("agentdojo.task_suite.load_suites")
        importlib.import_module("agentdojo.attacks")
    except ImportError as error:
        raise ImportError(f"AgentDojo needs its package ({error}): pip install 'corrgrpo[agentdojo]'") from error
    return suites


def versions() -> tuple[str, ...]:
    """Versions of the benchmark that have suites."""
    return tuple(version for version, suites in load_package()._SUITES.items() if suites)


def suite_names(version: str) -> tuple[str, ...]:
    """Names of a version's suites.

    Raises:
        ValueError: if there is no such version (the package itself returns no suites then).
    """
    if version not in versions():
        raise unknown("benchmark_version", version, versions())
    return tuple(load_package().get_suites(version))


def attack_names() -> tuple[str, ...]:
    """Attacks that can be chosen: not those that ask a person, nor those whose aim is that nothing gets done.

    The latter have no injection task of their own to judge them by.
    """
    load_package()
    registered = importlib.import_module("agentdojo.attacks.attack_registry").ATTACKS
    return tuple(name for name, attack in registered.items() if name not in _INTERACTIVE and not attack.is_dos_attack)


def check_attack_model(model: str) -> None:
    """Check that attacks know how to address a model.

    Raises:
        ValueError: unless the name contains one of the package's list.
    """
    load_package()
    known = importlib.import_module("agentdojo.models").MODEL_NAMES
    if not any(name in model for name in known):
        raise unknown("attack_model", model, known)


@lru_cache(maxsize=64)
def load_suite(version: str, name: str) -> Suite:
    """Return a suite, the same object for all environments of a process.

    Raises:
        ValueError: for an unknown version or suite.
    """
    if name not in suite_names(version):
        raise unknown("suites", name, suite_names(version))
    return Suite(version, name, load_package().get_suite(version, name))
