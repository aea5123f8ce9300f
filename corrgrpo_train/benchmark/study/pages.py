"""From the study's numbers to the tables of its page."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from corrgrpo_train.benchmark import tables
from corrgrpo_train.benchmark.tables import Table, markdown, star

Numbers = Mapping[str, Any]
OWN = ("grpo", "gdpo", "mo_grpo", "dr_grpo", "matched", "shuffled")
OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW"}


def renewed(page: Path) -> str:
    """The page with its tables renewed from the JSON files in the folder that is named like it.

    A table stands between `<!-- table NAME -->` and `<!-- end of table -->`.

    Tables of a part without a file stay as they are.
    """
    text = page.read_text(encoding="utf-8")
    for name, (part, table) in TABLES.items():
        file = page.with_suffix("") / f"{part}.json"
        if not file.is_file():
            continue
        numbers = json.loads(file.read_text(encoding="utf-8"))
        begin, end = f"<!-- table {name} -->\n", "<!-- end of table -->"
        block = f"{begin}\n{table(numbers)}\n{end}"
        before, found, rest = text.partition(begin)
        text = f"{before}{block}{rest.partition(end)[2]}" if found else text
    return text


def _summary(numbers: Numbers) -> str:
    """In how many comparisons CorrGRPO is better, worse, or neither beyond chance."""
    rows: Table = [["CorrGRPO against", "better", "worse", "not told apart", "median difference", "range"]]
    for kind, title in (("own", "each at its own best learning rate"), ("same", "both at GRPO's best learning rate")):
        for method in OWN:
            found = [
                one[kind]["differences"][method]["area"]
                for one in numbers["panels"]
                if method in one[kind]["differences"]
            ]
            if not found:
                continue
            sure = [one["mean"] for one in found if one["p_holm"] < tables.LEVEL]
            means = sorted(one["mean"] for one in found)
            rows.append(
                [
                    f"`{method}`, {_control(method, kind) or title}",
                    str(sum(mean > 0 for mean in sure)),
                    str(sum(mean < 0 for mean in sure)),
                    str(len(found) - len(sure)),
                    f"{(means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2:+.1f}",
                    f"{means[0]:+.1f} to {means[-1]:+.1f}",
                ]
            )
    return markdown(rows)


def _control(method: str, kind: str) -> str:
    return "at CorrGRPO's best learning rate" if kind == "own" and method in ("matched", "shuffled") else ""


def _balanced(numbers: Numbers) -> str:
    """The same runs by another measure, where the two differ by more than rounding."""
    rows: Table = [["condition", "CorrGRPO gains", *(f"less `{method}`" for method in OWN)]]
    for one in numbers["panels"]:
        values, differences = one["own"]["values"]["corrgrpo"], one["own"]["differences"]
        if one["kl"] or abs(values["balanced"]["mean"] - values["area"]["mean"]) < 0.001:
            continue
        cells = [_difference(differences[method]["balanced"]) for method in OWN]
        rows.append([_name(one, with_kl=True), _gain(values["balanced"]), *cells])
    return markdown(rows)


def _own(optimizer: str, with_kl: bool) -> Callable[[Numbers], str]:
    def table(numbers: Numbers) -> str:
        rows: Table = [["condition", "CorrGRPO gains", *(f"less `{method}`" for method in OWN)]]
        for one in _panels(numbers, optimizer, with_kl):
            differences = one["own"]["differences"]
            rows.append(
                [
                    _name(one, with_kl),
                    _gain(one["own"]["values"]["corrgrpo"]["area"]),
                    *(_difference(differences[method]["area"]) for method in OWN),
                ]
            )
        return markdown(rows)

    return table


def _same(optimizer: str) -> Callable[[Numbers], str]:
    def table(numbers: Numbers) -> str:
        columns = ("corrgrpo", "matched", "mo_grpo", "gdpo")
        head = ["condition", "GRPO gains", *(f"`{name}` less `grpo`" for name in columns)]
        rows: Table = [[*head, "`corrgrpo` less `matched`", "`corrgrpo` less `shuffled`", "step size, CorrGRPO / GRPO"]]
        for one in _panels(numbers, optimizer, with_kl=False):
            same = one["same"]
            ratio = one["step_size"]["corrgrpo"] / one["step_size"]["grpo"]
            rows.append(
                [
                    _name(one, with_kl=False),
                    _gain(same["values"]["grpo"]["area"]),
                    *(_plain_difference(same["less_grpo"][name]["area"]) for name in columns),
                    _difference(same["differences"]["matched"]["area"]),
                    _difference(same["differences"]["shuffled"]["area"]),
                    f"{ratio:.2f}",
                ]
            )
        return markdown(rows)

    return table


def _rates(numbers: Numbers) -> str:
    methods = list(numbers["panels"][0]["rates"])
    rows: Table = [["condition", *(f"`{method}`" for method in methods)]]
    for one in numbers["panels"]:
        edge = one["at_edge"]
        rates = [f"{one['rates'][method]:g}{' (edge)' if method in edge else ''}" for method in methods]
        kl = ", KL" if one["kl"] else ""
        rows.append([f"{OPTIMIZERS[one['optimizer']]}{kl}: {one['condition']}", *rates])
    return markdown(rows)


def _guard(kind: str) -> Callable[[Numbers], str]:
    def table(numbers: Numbers) -> str:
        default = f"{numbers['default']:g}"
        guards = list(numbers["panels"][0][kind])
        rows: Table = [["condition", f"gain at {default}", *(f"{g} less {default}" for g in guards if g != default)]]
        for one in numbers["panels"]:
            entry = one[kind]
            rows.append(
                [
                    f"{OPTIMIZERS[one['optimizer']]}: {one['condition']}",
                    _gain(entry[default]["area"]),
                    *(_difference(entry[g]["less_default"]) for g in guards if g != default),
                ]
            )
        return markdown(rows)

    return table


def _rlla(place: int) -> Callable[[Numbers], str]:
    return lambda comparison: markdown(tables.tables(comparison)[place][1])


def _panels(numbers: Numbers, optimizer: str, with_kl: bool) -> Sequence[Numbers]:
    return [one for one in numbers["panels"] if one["optimizer"] == optimizer and bool(one["kl"]) == with_kl]


def _name(one: Numbers, with_kl: bool) -> str:
    return f"{OPTIMIZERS[one['optimizer']]}: {one['condition']}" if with_kl else str(one["condition"])


def _gain(one: Numbers) -> str:
    return f"{one['mean']:.1f} [{one['low']:.1f}, {one['high']:.1f}]"


def _difference(one: Numbers) -> str:
    return f"{one['mean']:+.1f}{star(one)} [{one['low']:+.1f}, {one['high']:+.1f}]"


def _plain_difference(one: Numbers) -> str:
    return f"{one['mean']:+.1f} [{one['low']:+.1f}, {one['high']:+.1f}]"


TABLES: dict[str, tuple[str, Callable[[Numbers], str]]] = {
    "summary": ("bandit", _summary),
    "own sgd": ("bandit", _own("sgd", with_kl=False)),
    "own adamw": ("bandit", _own("adamw", with_kl=False)),
    "own sgd kl": ("bandit", _own("sgd", with_kl=True)),
    "own adamw kl": ("bandit", _own("adamw", with_kl=True)),
    "balanced": ("bandit", _balanced),
    "same sgd": ("bandit", _same("sgd")),
    "same adamw": ("bandit", _same("adamw")),
    "rates": ("bandit", _rates),
    "guard own": ("guard", _guard("own")),
    "guard same": ("guard", _guard("same")),
    "rlla values": ("rlla", _rlla(0)),
    "rlla differences": ("rlla", _rlla(1)),
    "rlla component values": ("rlla", _rlla(2)),
    "rlla component differences": ("rlla", _rlla(3)),
}
"""Name in the page, to the part whose numbers it shows and the function that writes it."""
