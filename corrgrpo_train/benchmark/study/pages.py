"""From the study's numbers to the tables of its page."""

from pathlib import Path


def renewed(page: Path) -> str:
    """The page with its tables renewed."""
    return page.read_text(encoding="utf-8")
