"""The command line of the study."""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from corrgrpo_train.benchmark.study.bandit import bandit_part
from corrgrpo_train.benchmark.study.guard import guard_part
from corrgrpo_train.benchmark.study.pages import renewed
from corrgrpo_train.benchmark.study.rlla import METHODS, SEEDS, STEPS, rlla_part
from corrgrpo_train.errors import UsageError
from corrgrpo_train.run_lock import RunLock

Part = Callable[..., dict[str, Any]]
PARTS: dict[str, Part] = {"bandit": bandit_part, "guard": guard_part, "rlla": rlla_part}
"""Each from its folder, the number of processes and whether to show progress to the numbers of the page."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for wrong input, 130 when interrupted."""
    flags = argparse.ArgumentParser(
        prog="python -m corrgrpo_train.benchmark.study",
        description="Do the study of docs/study.md: about an hour on two idle cores. The same command goes on where it "
        "was interrupted.",
    )
    flags.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    flags.add_argument("--jobs", type=int, default=2, help="processes at a time; each has one thread")
    flags.add_argument("--output", type=Path, default=Path("runs/study"), metavar="FOLDER", help="runs and results")
    flags.add_argument("--page", type=Path, metavar="FILE", help="renew the tables of this page: docs/study.md")
    flags.add_argument("--rlla-methods", default=METHODS, help=f"methods that train the model; default: {METHODS}")
    flags.add_argument("--rlla-seeds", type=int, default=SEEDS, help=f"runs per method of the model; default: {SEEDS}")
    flags.add_argument("--rlla-steps", type=int, default=STEPS, help=f"training steps of the model; default: {STEPS}")
    flags.add_argument("--quiet", action="store_true", help="show no progress")
    own = flags.parse_args(argv)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if own.jobs < 1:
            raise UsageError(f"jobs must be at least 1, not {own.jobs}")
        parts: dict[str, Part] = {
            **PARTS,
            "rlla": partial(rlla_part, methods=own.rlla_methods, seeds=own.rlla_seeds, steps=own.rlla_steps),
        }
        own.output.mkdir(parents=True, exist_ok=True)
        lock = RunLock(own.output)
        try:
            for part in own.parts:
                numbers = parts[part](own.output / part, own.jobs, show=not own.quiet)
                (own.output / f"{part}.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
                sys.stdout.write(f"{own.output / part}.json\n")
                if own.page is not None:
                    beside = own.page.with_suffix("")
                    beside.mkdir(exist_ok=True)
                    (beside / f"{part}.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
            if own.page is not None:
                own.page.write_text(renewed(own.page), encoding="utf-8")
        finally:
            lock.close()
    except KeyboardInterrupt:
        sys.stderr.write("corrgrpo_train.benchmark.study: interrupted; the same command goes on from here\n")
        return 130
    except (UsageError, OSError) as error:
        sys.stderr.write(f"corrgrpo_train.benchmark.study: error: {error}\n")
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0
