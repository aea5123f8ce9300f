"""The result tables of CorrGRPO's paper and of the benchmarks' own papers, as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: its heading.
        environment: short name of the environment on which it is measured; empty for an aggregate of several.
        measure: name of the same measure here.
    """

    title: str
    environment: str
    measure: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a label, and a value in percent for each column; None where the paper has none."""

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A published table, or the part of one that is about the same benchmark.

    Attributes:
        number: its number in CorrGRPO's paper.
        title: what it shows.
        source: where the numbers were measured.
        columns: its columns.
        rows: its rows, in percent.
        protocol: how that measurement differs from one made here.
    """

    number: int
    title: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    protocol: str


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    """All tables, in the paper's order."""
    text = files("corrgrpo_train.evaluate").joinpath("published.yaml").read_text(encoding="utf-8")
    return tuple(
        PublishedTable(
            number=table["table"],
            title=table["title"],
            source=table["source"],
            columns=tuple(Column(*column) for column in table["columns"]),
            rows=tuple(Row(label, tuple(values)) for label, *values in table["rows"]),
            protocol=" ".join(table["protocol"].split()),
        )
        for table in yaml.safe_load(text)
    )


def tables_about(environments: Iterable[str]) -> list[PublishedTable]:
    """The tables with a column about one of the environments."""
    names = set(environments)
    return [table for table in published_tables() if any(column.environment in names for column in table.columns)]
