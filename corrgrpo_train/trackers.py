"""Where metrics go beside the run folder's own rows: TensorBoard, wandb, trackio."""

import importlib.util
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from corrgrpo_train.config import Config
from corrgrpo_train.errors import UsageError, first_line

logger = logging.getLogger(__name__)

PROJECT = "corrgrpo"
"""Project under which trackers keep runs, unless `track_args` names another."""


class Sink(Protocol):
    """Takes numbers by step."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take finite numbers under flat names."""

    def close(self) -> None:
        """Write what is still to be written."""


class TensorBoard:
    """Event files in the run folder."""

    def __init__(self, folder: Path, purge_step: int | None) -> None:
        """Open event files.

        Args:
            folder: where they are written.
            purge_step: earlier events from this step on are hidden.

        Raises:
            ImportError: if TensorBoard is not installed.
        """
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=purge_step)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add scalars and flush them."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


class Guarded:
    """A tracker outside the run folder: should it fail, it is given up and the run goes on."""

    def __init__(self, name: str, log: Callable[[int, dict[str, float]], Any], close: Callable[[], Any]) -> None:
        self._name, self._log, self._close, self._works = name, log, close, True

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand the numbers on."""
        self._guard(lambda: self._log(step, dict(values)))

    def close(self) -> None:
        """End the tracker's run."""
        self._guard(self._close)

    def _guard(self, call: Callable[[], Any]) -> None:
        if not self._works:
            return
        try:
            call()
        except Exception as error:  # a server may fail in any way
            self._works = False
            logger.warning("%s gets no more metrics, metrics.jsonl has all of them: %s", self._name, first_line(error))


def _wandb(config: Config) -> Sink:
    import wandb

    # Its own identity, so that a resumed run goes on in the same place.
    identity = config.run_dir / "wandb_id"
    if not identity.exists():
        identity.write_text(uuid.uuid4().hex[:16] + "\n", encoding="ascii")
    settings = {
        "project": PROJECT,
        "name": config.run_dir.name,
        "dir": str(config.run_dir),
        "id": identity.read_text(encoding="ascii").strip(),
        "resume": "allow",
        "config": asdict(config),
        "settings": wandb.Settings(console="off", silent=True),
    }
    run = wandb.init(**{**settings, **config.track_args})
    # A row of a step that was logged before a run was killed comes again; only so may it.
    run.define_metric("*", step_metric="step")
    return Guarded("wandb", lambda step, values: run.log({"step": step, **values}), run.finish)


def _trackio(config: Config) -> Sink:
    import trackio

    settings = {
        "project": PROJECT,
        "name": config.run_dir.name,
        "config": asdict(config),
        "resume": "allow" if config.resume else "never",
        "embed": False,
        "auto_log_gpu": False,
        "auto_log_cpu": False,
    }
    run = trackio.init(**{**settings, **config.track_args})
    return Guarded("trackio", lambda step, values: run.log(values, step=step), run.finish)


TRACKERS: dict[str, Callable[[Config], Sink]] = {"wandb": _wandb, "trackio": _trackio}
"""Trackers on request; each has an extra of its name."""


def check_installed(name: str) -> None:
    """Check that a tracker's package is there.

    Raises:
        UsageError: with the command that installs it.
    """
    if importlib.util.find_spec(name) is None:
        raise UsageError(f"track {name!r}: {name} is not installed: pip install 'corrgrpo[{name}]'")


def open_tracker(config: Config) -> Sink | None:
    """Open the tracker that the configuration asks for; None if it asks for none.

    Raises:
        UsageError: if its package is missing or it refuses its arguments.
    """
    if config.track is None:
        return None
    check_installed(config.track)
    try:
        return TRACKERS[config.track](config)
    except Exception as error:  # no login, no network, an argument that it does not know
        raise UsageError(f"track {config.track!r} could not be started: {first_line(error)}; see track_args") from error
