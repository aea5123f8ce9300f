"""`python -m corrgrpo_train.report RUN [RUN...]`: one page, or one picture, of one run or of several."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from corrgrpo_train.errors import UsageError, needs_extra, printable

with needs_extra("train"):
    from corrgrpo_train.report.curves import draw_runs
    from corrgrpo_train.report.run_page import write_report
    from corrgrpo_train.report.runs import read_runs
    from corrgrpo_train.report.transcripts import LIMIT

ENDINGS = (".html", ".png", ".svg")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 for wrong input."""
    parser = argparse.ArgumentParser(
        prog="python -m corrgrpo_train.report", description="Write a page, or draw a picture, of training runs."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders; several are overlaid")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=".html: a page with everything; .png or .svg: curves; default: report.html in the first run",
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="TITLE", help="charts with this in their titles")
    parser.add_argument(
        "--transcripts",
        type=int,
        default=LIMIT,
        metavar="N",
        help=f"how many transcripts are on the page at most (default: {LIMIT}); 0: none",
    )
    options = parser.parse_args(argv)
    try:
        path = _written(options)
    except UsageError as error:
        sys.stderr.write(f"corrgrpo_train.report: error: {error}\n")
        return 2
    sys.stdout.write(f"{path}\n")
    return 0


def _written(options: argparse.Namespace) -> Path:
    path: Path = options.output or options.runs[0] / "report.html"
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"--output {path}: the file's ending says what is written, and may be {', '.join(ENDINGS)}")
    if options.transcripts < 0:
        raise UsageError(f"--transcripts must be 0 or more, not {options.transcripts}")
    runs = read_runs(options.runs)
    for run in runs:
        for note in run.notes:
            sys.stderr.write(printable(f"corrgrpo_train.report: {run.folder}: {note}") + "\n")
    if ending == ".html":
        return write_report(runs, path, options.only, options.transcripts)
    return draw_runs(runs, path, options.only)


if __name__ == "__main__":
    sys.exit(main())
