"""Writes the table of settings in `configuration.md` from `Config`: python docs/configuration_table.py."""

import json
from dataclasses import MISSING, fields
from pathlib import Path

from corrgrpo_train.config import SECTIONS, Config, field_docs, field_types

PAGE = Path(__file__).with_name("configuration.md")
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


def table() -> str:
    """The table, one row per setting."""
    types, docs = field_types(), field_docs()
    lines = ["| Setting | Default | Meaning |", "| --- | --- | --- |"]
    for item in fields(Config):
        if item.name in SECTIONS:
            lines.append(f"| **{SECTIONS[item.name]}** | | |")
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        shown = "required" if default is MISSING else f"`{_shown(default)}`"
        flag = item.name.replace("_", "-")
        flag = f"`--{flag}`, `--no-{flag}`" if types[item.name] is bool else f"`--{flag}`"
        lines.append(f"| {flag} | {shown} | {docs[item.name]} |")
    return "\n".join(lines) + "\n"


def _shown(default: object) -> str:
    return default if isinstance(default, str) else json.dumps(default)


def page_with_table(page: str) -> str:
    """The page with its table renewed."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
