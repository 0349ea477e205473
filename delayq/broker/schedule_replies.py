"""Typed replies of the scripts for schedules, and the functions that parse them."""

from __future__ import annotations

from typing import Any, NamedTuple

from delayq.times import LATEST


class StoredSchedule(NamedTuple):
    """A stored schedule: its next time (ms, None for none), definition and payload, and how often it has fired."""

    name: str
    next: int | None
    spec: bytes
    revision: str
    fired: int
    last: int
    """The time of its last occurrence (ms, 0 for none)."""
    paused: bool


class DueSchedules(NamedTuple):
    """The schedules that are due, whether these are all of them, and the server's time (ms)."""

    now: int
    complete: bool
    schedules: list[StoredSchedule]


class SchedulePage(NamedTuple):
    """A page of schedules, the cursor of the next one ('0' at the end), and the server's time (ms)."""

    now: int
    latest: int
    """The latest time (ms, to the minute) of a change to schedules; later than `now` if the clock was set back."""
    zones: str
    """The release of the time zone data by which all were planned, '' if not noted."""
    cursor: str
    schedules: list[StoredSchedule]


def read_due(reply: list[Any], limit: int) -> DueSchedules:
    """Parse the reply of `schedules_due` with this limit."""
    now, number, *_ = reply
    schedules = _stored_schedules(reply)
    return DueSchedules(now, len(schedules) == number < limit, schedules)


def read_schedules(reply: list[Any]) -> SchedulePage:
    """Parse the reply of `schedules_page`."""
    now, latest, zones, cursor, *_ = reply
    return SchedulePage(now, latest, zones.decode(), cursor.decode(), _stored_schedules(reply[2:]))


def read_names(reply: list[Any]) -> tuple[str, list[str]]:
    """Parse the reply of `schedules_find`: the cursor of the next page, and names."""
    cursor, *names = (_text(text) for text in reply)
    return cursor, names


def _stored_schedules(reply: list[Any]) -> list[StoredSchedule]:
    return [_stored(*four) for four in zip(*(reply[at::4] for at in range(2, 6)), strict=True)]


def _stored(name: bytes, time: bytes, spec: bytes, state: bytes) -> StoredSchedule:
    """Return a schedule; one whose time or state is foreign has no definition, so that it is set aside like others."""
    try:
        revision, fired, last, paused = state.decode().split() or ("0", 0, 0, "0")
        next_, numbers = int(time) if time else None, (int(fired), int(last))
        if all(0 <= number <= LATEST for number in (next_ or 0, *numbers)):
            return StoredSchedule(_text(name), next_, spec, revision, *numbers, paused == "1")
    except ValueError:
        pass
    return StoredSchedule(_text(name), None, b"", "0", 0, 0, paused=False)


def _text(name: bytes) -> str:
    """Return a name or a cursor; of a foreign name each byte that is no UTF-8 as an escape."""
    return name.decode(errors="backslashreplace")
