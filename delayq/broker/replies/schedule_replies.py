"""Typed replies of the scripts for schedules, and the functions that parse them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from delayq.broker.replies.foreign import read_number, shown_id
from delayq.values.times import LATEST

_STATE = re.compile(r"([0-9]{1,16}) ([0-9]{1,15}) ([0-9]{1,15}) ([01])")


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
    return SchedulePage(now, latest, zones.decode("utf-8", "replace"), cursor.decode(), _stored_schedules(reply[2:]))


def read_names(reply: list[Any]) -> tuple[str, list[str]]:
    """Parse the reply of `schedules_find`: the cursor of the next page, and names."""
    cursor, *names = map(shown_id, reply)
    return cursor, names


def _stored_schedules(reply: list[Any]) -> list[StoredSchedule]:
    schedules = []
    for name, time, spec, state in zip(*(reply[at::4] for at in range(2, 6)), strict=True):
        # A state that cannot be read is none, as for the scripts.
        known = _STATE.fullmatch(state.decode("utf-8", "replace"))
        revision, fired, last, paused = known.groups() if known else ("0", 0, 0, "0")
        next_ = read_number(time) if time else None
        # One whose time cannot be read has no definition, so that it is set aside like others.
        is_foreign = bool(time) and (next_ is None or next_ > LATEST)
        schedules.append(
            StoredSchedule(
                shown_id(name),
                None if is_foreign else next_,
                b"" if is_foreign else spec,
                revision,
                int(fired),
                int(last),
                paused == "1",
            )
        )
    return schedules
