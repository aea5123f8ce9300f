"""A comparison's files: `comparison.json`, `comparison.png`, `comparison.html`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corrgrpo_train.benchmark.charts import draw_comparison
from corrgrpo_train.benchmark.measured import Measured
from corrgrpo_train.benchmark.page import write_comparison_page


def write_comparison(comparison: Mapping[str, Any], measured: Sequence[Measured], folder: Path) -> list[Path]:
    """Write the files of a comparison and return their paths.

    Raises:
        UsageError: if one cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "comparison.json"
    path.write_text(json.dumps(comparison, indent=1), encoding="utf-8")
    return [
        path,
        draw_comparison(comparison, measured, folder / "comparison.png"),
        write_comparison_page(comparison, measured, folder / "comparison.html"),
    ]
