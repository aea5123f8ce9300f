"""`python -m corrgrpo_train.report RUN [RUN...]`: draw the curves of runs into one picture."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from corrgrpo_train.errors import UsageError
from corrgrpo_train.report.curves import draw_curves


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m corrgrpo_train.report", description="Draw training curves.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders; several are overlaid")
    parser.add_argument("--output", type=Path, metavar="FILE", help="picture; default: curves.png in the first run")
    parser.add_argument("--only", nargs="+", default=[], metavar="TITLE", help="plots with this in their titles")
    options = parser.parse_args(argv)
    try:
        path = draw_curves(*options.runs, output=options.output, only=options.only)
    except UsageError as error:
        sys.stderr.write(f"corrgrpo_train.report: error: {error}\n")
        return 2
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
