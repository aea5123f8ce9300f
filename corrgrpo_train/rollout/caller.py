"""`Caller`: calls with a limit of time, for environments that may never answer."""

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class NoAnswerError(Exception):
    """A call did not come back in time; its thread is given up."""


class Caller:
    """Makes calls in a thread of its own, one at a time, and waits for each no longer than a limit.

    All calls come from the same thread, as things that belong to one thread (database connections, browsers) want it.
    A thread that does not come back cannot be ended from outside: it is left behind, does not keep the process from
    ending, and the caller is of no further use.
    """

    def __init__(self, seconds: float | None) -> None:
        """Set the limit; with None calls are made at once, in the thread that asks, and may last for ever."""
        self.seconds = seconds
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.lost = False

    def __call__(self, function: Callable[[], Answer]) -> Answer:
        """Call the function and return what it returns; what it raises is raised here.

        Raises:
            NoAnswerError: after the limit, and at any call after that.
        """
        if self.seconds is None:
            return function()
        if self.lost:
            raise NoAnswerError("an earlier call has not come back")
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._calls, self._answers), daemon=True)
            self._thread.start()
        self._calls.put(function)
        try:
            raised, answer = self._answers.get(timeout=self.seconds)
        except queue.Empty:
            self.lost = True
            raise NoAnswerError(f"no answer within {self.seconds:g} s (env_timeout)") from None
        except BaseException:  # interrupted while it waits: the answer may still come, and would be the next one's
            self.lost = True
            raise
        if raised:
            raise answer
        result: Answer = answer
        return result

    def close(self) -> None:
        """End the thread, when it is done with what it does."""
        self._calls.put(None)


def _serve(
    calls: "queue.SimpleQueue[Callable[[], Any] | None]", answers: "queue.SimpleQueue[tuple[bool, Any]]"
) -> None:
    while (function := calls.get()) is not None:
        try:
            answers.put((False, function()))
        except BaseException as error:
            answers.put((True, error))
