"""A simulated clock, and what else in a state must not depend on the machine or the process.

AgentDojo's tools take time stamps of new mails and files from the machine's clock, and the order of a new
appointment's participants from a set of texts, which differs between processes. Both are put right after every call,
in the state alone: nothing in the package is changed, so any number of episodes can run at once.
"""

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_PARTICIPANT = re.compile(r"^participants\.\d+$", re.MULTILINE)
_TICK = datetime.timedelta(minutes=1)
_NOON = datetime.time(12)
_EPOCH = datetime.datetime(2024, 5, 15, 12)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a state held before a call.

    Attributes:
        times: mails and files with their time stamps, by the object's identity (a deleted mail's id is given anew).
        events: ids of the appointments.
    """

    times: dict[int, tuple[Any, datetime.datetime]]
    events: frozenset[str]


@dataclass(slots=True)
class SimulatedClock:
    """The time of one episode: a minute passes with every call.

    Attributes:
        now: the time of the last call.
    """

    now: datetime.datetime

    def settle(self, state: Any, before: Snapshot) -> None:
        """Put the simulated time in place of the machine's wherever a call has set a time stamp."""
        self.now += _TICK
        for item, attribute in _stamped(state):
            _, stamp = before.times.get(id(item), (None, None))
            if stamp != getattr(item, attribute):
                setattr(item, attribute, self.now)
        for key, event in _events(state).items():
            if key not in before.events:
                event.participants = sorted(event.participants)


def start(state: Any) -> SimulatedClock:
    """A clock for a fresh state: noon of its current day, or a little after the newest time stamp in it."""
    day = getattr(_part(state, "calendar"), "current_day", None)
    first = datetime.datetime.combine(day, _NOON) if isinstance(day, datetime.date) else _EPOCH
    stamps = [getattr(item, attribute).replace(tzinfo=None) for item, attribute in _stamped(state)]
    return SimulatedClock(max([first, *stamps]))


def snapshot(state: Any) -> Snapshot:
    """Note the time stamps and appointments of a state."""
    times = {id(item): (item, getattr(item, attribute)) for item, attribute in _stamped(state)}
    return Snapshot(times, frozenset(_events(state)))


def settled_error(message: str) -> str:
    """The text of an error without the numbers of a new appointment's participants, and these sorted.

    Where addresses are refused, the error counts them by their places in the set.
    """
    if " for CalendarEvent\n" not in message:
        return message
    head, *reasons = _PARTICIPANT.split(message)
    return head + "\n".join(f"participants{reason}" for reason in sorted(reason.rstrip() for reason in reasons))


def _stamped(state: Any) -> Iterator[tuple[Any, str]]:
    """Mails and files, each with the name of its time stamp."""
    inbox, drive = _part(state, "inbox"), _part(state, "cloud_drive")
    if inbox is not None:
        yield from ((mail, "timestamp") for box in (inbox.emails, inbox.trash) for mail in box.values())
    if drive is not None:
        yield from ((file, "last_modified") for file in drive.files.values())


def _events(state: Any) -> dict[str, Any]:
    events = getattr(_part(state, "calendar"), "events", {})
    return events if isinstance(events, dict) else {}


def _part(state: Any, name: str) -> Any:
    # Asking a state for an attribute that it lacks costs it an error; most states lack most of these.
    return vars(state).get(name)
