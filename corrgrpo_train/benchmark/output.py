"""A comparison's files: `comparison.json`, `comparison.png`, `comparison.html`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corrgrpo_train.benchmark.charts import draw_comparison
from corrgrpo_train.benchmark.measured import Measured
from corrgrpo_train.benchmark.page import write_comparison_page
from corrgrpo_train.errors import UsageError


def write_comparison(comparison: Mapping[str, Any], measured: Sequence[Measured], folder: Path) -> list[Path]:
    """Write the files of a comparison and return their paths.

    Raises:
        UsageError: if one cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "comparison.json"
    try:
        path.write_text(json.dumps(comparison, indent=1, allow_nan=False), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return [
        path,
        draw_comparison(comparison, measured, folder / "comparison.png"),
        write_comparison_page(comparison, measured, folder / "comparison.html"),
    ]
