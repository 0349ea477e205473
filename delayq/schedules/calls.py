"""The calls of schedules: what they store, and how their replies are read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.foreign import read_number, shown_id
from delayq.broker.replies import statuses
from delayq.broker.requests import RedisCommand, ScriptCall, flat
from delayq.values.times import LATEST

_STATE = re.compile(r"([0-9]{1,16}) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,15})")
FOREVER = 1
"""The end of a pause that has none."""


class SchedulePut(NamedTuple):
    """A schedule to store if it still has this revision ('0' for a new one): next time (ms) and definition."""

    name: str
    revision: str
    next: int | str
    """'' for none."""
    paused: int
    """Until when (ms), or `FOREVER`; 0 if it is not paused."""
    spec: bytes
    """Empty to keep the stored one."""


class ScheduleFire(NamedTuple):
    """Occurrences of a schedule to fire if it still has this revision: next and last time (ms), and their messages."""

    name: str
    revision: str
    next: int | str
    """'' for none."""
    last: int
    retries: int
    payload: bytes
    headers: bytes
    occurrences: str
    """Ids and due times (ms), alternating, separated by spaces."""
    overlap: str = ""
    """`skip` or `after`, and the ids of messages that may not live beside them, separated by spaces; '' for any."""
    attributes: bytes = b""
    """Those of the messages, b'' for none."""


class StoredSchedule(NamedTuple):
    """A stored schedule: its next time (ms, None for none), definition and payload, and how often it has fired."""

    name: str
    next: int | None
    spec: bytes
    revision: str
    fired: int
    last: int
    """The time of its last occurrence (ms, 0 for none)."""
    paused: int
    """Until when (ms), perhaps a time that has passed, or `FOREVER`; 0 if it is not paused."""


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


def schedule_put_call(calls: Calls, puts: Iterable[SchedulePut]) -> ScriptCall[str]:
    """Store schedules; a status each: 1 stored, 0 read it again: it has changed, or they are large."""
    return calls.script("schedule_put", [calls.now, *flat(puts)], statuses)


def schedule_remove_call(calls: Calls, schedules: Iterable[str]) -> ScriptCall[str]:
    """Remove schedules; a status each: 1 removed, 0 no such schedule. Fewer if they are large."""
    return calls.script("schedule_remove", [calls.now, *schedules], statuses)


def fire_call(calls: Calls, fires: Iterable[ScheduleFire]) -> ScriptCall[str]:
    """Store the messages of occurrences and advance their schedules; returns a status each, see the script."""
    return calls.script("fire", [calls.now, *flat(fires)], statuses)


def schedules_due_call(
    calls: Calls, *, ahead: int, offset: int, limit: int, byte_limit: int
) -> ScriptCall[DueSchedules]:
    """Read schedules due within `ahead` ms from `offset` on, up to `limit` schedules and `byte_limit` bytes."""
    args = [calls.now, ahead, offset, limit, byte_limit]
    return calls.script("schedules_due", args, lambda reply: _read_due(reply, limit))


def schedules_page_call(
    calls: Calls, schedules: Iterable[str] = (), *, cursor: str = "0", limit: int
) -> ScriptCall[SchedulePage]:
    """Read a page of the schedules, or those named that exist."""
    return calls.script("schedules_page", [calls.now, cursor, limit, *schedules], _read_page)


def schedules_find_call(
    calls: Calls, *, label: str = "", prefix: str = "", cursor: str = "", limit: int
) -> ScriptCall[tuple[str, list[str]]]:
    """Find names of schedules with a label, or that begin with a text; the cursor of the next page ('' at the end).

    There may be some more than `limit` if there are more than 1,000 schedules, and no label.
    """
    return calls.script("schedules_find", [label, prefix, cursor, limit], _read_names)


def note_schedules(calls: Calls, at: int, *, zones: str) -> RedisCommand[None]:
    """Note that all schedules were planned anew at a time (ms), and by which release of the time zone data."""
    fields = ("schedules_at", at, "schedules_zones", zones) if zones else ("schedules_at", at)
    return RedisCommand(("HSET", calls.keys.meta, *fields), lambda _: None)


def _read_due(reply: list[Any], limit: int) -> DueSchedules:
    """Parse the reply of `schedules_due` with this limit."""
    now, number, *_ = reply
    schedules = _stored_schedules(reply)
    return DueSchedules(now, len(schedules) == number < limit, schedules)


def _read_page(reply: list[Any]) -> SchedulePage:
    """Parse the reply of `schedules_page`."""
    now, latest, zones, cursor, *_ = reply
    return SchedulePage(now, latest, zones.decode("utf-8", "replace"), cursor.decode(), _stored_schedules(reply[2:]))


def _read_names(reply: list[Any]) -> tuple[str, list[str]]:
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
                int(paused),
            )
        )
    return schedules
