"""`RunLock`: one process at a time writes a run folder."""

from pathlib import Path
from types import ModuleType
from typing import Any

from corrgrpo_train.errors import UsageError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: nothing to lock with, two processes there are the user's to avoid
    fcntl = None


class RunLock:
    """A lock on a run folder that ends with its process, however that ends.

    A record lock, which processes that an environment forks do not inherit: one that outlives a killed run does not
    keep the run from being resumed.
    """

    def __init__(self, run_dir: Path) -> None:
        """Take the lock of an existing folder.

        Raises:
            UsageError: if another process has it, or the folder cannot be written.
        """
        self._file: Any = None
        if fcntl is None:
            return
        try:
            self._file = (run_dir / ".lock").open("a")
        except OSError as error:
            raise UsageError(f"{run_dir} cannot be written: {error.strerror}; choose another --output") from error
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UsageError(f"another process is writing {run_dir}: wait for it, or end it first") from None
        except OSError:
            pass  # a file system without locks

    def close(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            self._file.close()
