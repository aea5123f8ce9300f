"""`Cell` and `Plan`: what is compared, and how sweeps turn into settings."""

import copy
import inspect
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_origin

import gymnasium as gym

from corrgrpo_envs.errors import shown, suggestion, unknown
from corrgrpo_envs.registration import full_id
from corrgrpo_train.config import field_types
from corrgrpo_train.errors import UsageError
from corrgrpo_train.plain_yaml import read_mapping

BANDIT = "corrgrpo/CorrelatedBandit-v0"
RESERVED = frozenset({"env", "method", "objective", "mode", "seed", "output", "resume"})
"""Settings that the benchmark decides itself."""


@dataclass(frozen=True)
class Cell:
    """One line of a comparison: a method under an objective at one point of the sweep, trained with every seed.

    Attributes:
        method: estimator, "module:name" imports the module first.
        objective: surrogate.
        sweep: swept name to value.
    """

    method: str
    objective: str = "grpo"
    sweep: Mapping[str, Any] = field(default_factory=dict)

    @property
    def method_name(self) -> str:
        """The estimator's registered name."""
        return self.method.rpartition(":")[2]

    @property
    def label(self) -> str:
        """Short text for tables, files and the progress display."""
        points = [f"{name}={value}" for name, value in self.sweep.items()]
        return " ".join([self.method_name, self.objective, *points])

    @property
    def file_name(self) -> str:
        """The label as part of a file name."""
        return re.sub(r"[^\w.=-]+", "-", self.label)[:80].strip("-")


@dataclass(frozen=True)
class Plan:
    """A whole comparison.

    Attributes:
        cells: in the order of methods, objectives and sweep values.
        seeds: the same for every cell.
        baseline: registered name of the method that the others are compared with.
    """

    cells: Sequence[Cell]
    seeds: Sequence[int]
    baseline: str


def make_plan(
    methods: Sequence[str],
    seeds: Sequence[int],
    objectives: Sequence[str] = ("grpo",),
    sweeps: Mapping[str, Sequence[Any]] | None = None,
    baseline: str | None = None,
) -> Plan:
    """Cross methods, objectives and sweep values.

    Args:
        methods: estimators, at least one.
        seeds: at least one.
        objectives: surrogates, at least one.
        sweeps: swept name to its values; several are crossed.
        baseline: one of the methods; None takes the first.

    Raises:
        UsageError: if something is missing, given twice, or the baseline is not among the methods.
    """
    for what, given in (("methods", methods), ("seeds", seeds), ("objectives", objectives)):
        if not given:
            raise UsageError(f"{what} must name at least one")
        _check_distinct(what, given)
    names = [method.rpartition(":")[2] for method in methods]
    _check_distinct("methods", names)
    chosen = names[0] if baseline is None else baseline.rpartition(":")[2]
    if chosen not in names:
        raise UsageError(str(unknown("baseline", baseline, names)))
    sweeps = sweeps or {}
    points = [dict(zip(sweeps, values, strict=True)) for values in itertools.product(*sweeps.values())]
    cells = [Cell(*pair, point) for point in points for pair in itertools.product(methods, objectives)]
    return Plan(cells, list(seeds), chosen)


def _check_distinct(what: str, given: Sequence[Any]) -> None:
    for place, value in enumerate(given):
        if value in given[:place]:
            raise UsageError(f"{what} name {shown(value)} twice")


def parse_seeds(text: str) -> list[int]:
    """Read `"10"` as the seeds 0 to 9, and `"3,5,8"` as these.

    Raises:
        UsageError: if it is neither.
    """
    wrong = UsageError(f"seeds must be a count of at least 1, or numbers with commas between, not {shown(text)}")
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise wrong from None
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**63 or ("," not in text and not 0 < numbers[0] <= 100_000):
        raise wrong
    return numbers if "," in text else list(range(numbers[0]))


def parse_sweep(text: str) -> tuple[str, list[Any]]:
    """Read `"scale=1,2,5"`; values are written as in YAML, lists and mappings too.

    Raises:
        UsageError: if it is not of this form.
    """
    name, equals, listed = text.partition("=")
    try:
        values = read_mapping(f"values: [{listed}]", "sweep")["values"]
        json.dumps(values)
    except (UsageError, TypeError, ValueError, RecursionError):
        values = None
    if not name.strip() or not equals or not isinstance(values, list) or not values:
        raise UsageError(
            f"sweep must be NAME=VALUE,VALUE,... of JSON values, not {shown(text)}: for example scale=1,2,5"
        )
    values = [_number(value) for value in values]
    _check_distinct(f"the values of sweep {name.strip()!r}", values)
    return name.strip().replace("-", "_"), values


def _number(value: Any) -> Any:
    """YAML takes 1e-6, without a dot, for text."""
    try:
        return float(value) if isinstance(value, str) and re.fullmatch(r"[-+\d.e]+", value, re.IGNORECASE) else value
    except ValueError:
        return value


def swept(settings: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with a point of the sweep put in its places.

    A name is a setting (`learning_rate`), a part of one (`method_args.epsilon`), or an argument of the environment
    (`correlation`). `scale` on CorrelatedBandit is the scale of the last component beside others of scale 1.

    Args:
        settings: settings of the trainer, `env` among them.
        point: swept name to value.

    Raises:
        UsageError: for a name that is none of these.
    """
    merged = copy.deepcopy(dict(settings))
    types = field_types()
    mappings = [name for name, hint in types.items() if get_origin(hint) is dict]
    # What decides the number of components comes before what is counted by it.
    for name, value in sorted(point.items(), key=lambda item: item[0] == "scale"):
        owner, dot, key = name.partition(".")
        if name in RESERVED:
            raise UsageError(
                f"sweep {name!r}: this is not swept; methods, objectives and seeds have flags of their own"
            )
        if dot and owner in mappings and key:
            merged[owner] = {**merged.get(owner, {}), key: value}
        elif name in types:
            merged[name] = value
        elif name == "scale" and full_id(merged["env"]) == BANDIT:
            count = merged.get("env_args", {}).get("components", 3)
            if not isinstance(count, int) or count < 1:
                raise UsageError(f"components must be a whole number of at least 1, not {shown(count)}")
            merged["env_args"] = {**merged.get("env_args", {}), "scales": [1.0] * (count - 1) + [value]}
        else:
            allowed = _arguments_of(merged["env"])
            if allowed is not None and name not in allowed:
                near = suggestion(name, [*types, *allowed])
                raise UsageError(
                    f"sweep {name!r} is neither a setting nor an argument of the environment "
                    f"({', '.join(allowed)}).{near}"
                )
            merged["env_args"] = {**merged.get("env_args", {}), name: value}
    return merged


def _arguments_of(env: str) -> list[str] | None:
    """Names of an environment's constructor arguments; None where they can't be told."""
    import corrgrpo_envs  # noqa: F401  registers the ids

    try:
        creator = gym.envs.registration.load_env_creator(str(gym.spec(full_id(env)).entry_point))
        parameters = inspect.signature(creator).parameters.values()
    except Exception:  # unknown ids and broken packages are told of where the environment is made
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]
