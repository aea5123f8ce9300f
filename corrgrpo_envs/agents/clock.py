"""A simulated clock, and what else in a state must not depend on the machine or the process.

AgentDojo's tools take time stamps of new mails and files from the machine's clock, and the order of a new
appointment's participants from a set of texts, which differs between processes. Both are put right after every call,
in the state alone: nothing in the package is changed, so any number of episodes can run at once.
"""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_TICK = datetime.timedelta(minutes=1)
_NOON = datetime.time(12)
_EPOCH = datetime.datetime(2024, 5, 15, 12)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a state held before a call.

    Attributes:
        times: time stamp of each mail and file, by the object's place.
        events: ids of the appointments.
    """

    times: dict[tuple[str, str], datetime.datetime]
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
        fresh_mails = []
        for place, item, attribute in _stamped(state):
            if before.times.get(place) != getattr(item, attribute):
                setattr(item, attribute, self.now)
                if place[0] == "mail" and place not in before.times:
                    fresh_mails.append(item)
        for key, event in _events(state).items():
            if key not in before.events:
                # The invitation that goes with it names the same people in the same accidental order.
                event.participants = sorted(event.participants)
                for mail in fresh_mails:
                    mail.recipients = sorted(mail.recipients)


def start(state: Any) -> SimulatedClock:
    """A clock for a fresh state: noon of its current day, or a little after the newest time stamp in it."""
    day = getattr(getattr(state, "calendar", None), "current_day", None)
    first = datetime.datetime.combine(day, _NOON) if isinstance(day, datetime.date) else _EPOCH
    stamps = [getattr(item, attribute).replace(tzinfo=None) for _, item, attribute in _stamped(state)]
    return SimulatedClock(max([first, *stamps]))


def snapshot(state: Any) -> Snapshot:
    """Note the time stamps and appointments of a state."""
    times = {place: getattr(item, attribute) for place, item, attribute in _stamped(state)}
    return Snapshot(times, frozenset(_events(state)))


def _stamped(state: Any) -> Iterator[tuple[tuple[str, str], Any, str]]:
    """Mails and files: where they are, the object, and the name of its time stamp."""
    inbox, drive = getattr(state, "inbox", None), getattr(state, "cloud_drive", None)
    if inbox is not None:
        for key, mail in (*inbox.emails.items(), *inbox.trash.items()):
            yield ("mail", key), mail, "timestamp"
    if drive is not None:
        for key, file in drive.files.items():
            yield ("file", key), file, "last_modified"


def _events(state: Any) -> dict[str, Any]:
    events = getattr(getattr(state, "calendar", None), "events", {})
    return events if isinstance(events, dict) else {}
