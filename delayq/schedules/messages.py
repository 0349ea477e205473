"""The messages that a schedule fires: their ids, headers and times."""

from __future__ import annotations

from delayq.broker.message.attributes import Attributes
from delayq.broker.message.jitter import draw
from delayq.options import Settings
from delayq.schedules.calls import ScheduleFire, StoredSchedule
from delayq.schedules.definition import DECLARED_HEADER, HEADER, Definition, unpack
from delayq.schedules.hours import with_hours
from delayq.schedules.recurring.timetable import MAX_FIRED, DueOccurrences
from delayq.values.codec import encode_headers
from delayq.values.times import from_millis

BYTES = 16 << 20
"""The maximum bytes of payloads that one schedule fires at a time."""


def occurrence_id(name: str, time: int) -> str:
    """Return the id of the message for an occurrence."""
    spec = "milliseconds" if time % 1000 else "seconds"
    return f"{name}@{from_millis(time).replace(tzinfo=None).isoformat(timespec=spec)}Z"


def message_headers(name: str, definition: Definition) -> bytes:
    """Return the encoded headers of a schedule's messages."""
    mark = {DECLARED_HEADER: "1"} if definition.declared else {}
    return encode_headers({**definition.headers, HEADER: name, **mark})


def stored_attributes(definition: Definition, settings: Settings) -> bytes:
    """Return the attributes of a schedule's messages: its own, or what the queue says of all messages."""
    stored = definition.attributes.encode() or Attributes(retention=settings.retention).encode()
    hours = definition.message_hours if definition.hours else None
    return stored if hours is None else with_hours(Attributes.of(stored), hours).encode()


def firing(
    stored: StoredSchedule, now: int, settings: Settings, *, ahead: int, most: int | None = None
) -> tuple[ScheduleFire, DueOccurrences]:
    """Return what a due schedule fires, at `most` so many; raises `ConfigurationError` if it cannot be read."""
    definition, payload = unpack(stored.spec)
    alone = definition.overlap != "allow"
    limit = 1 if alone else max(1, min(most or MAX_FIRED, BYTES // max(1, len(payload))))
    first = now if stored.next is None else stored.next
    due = definition.timetable.due(first, now, stored.fired, ahead=ahead, limit=limit)
    rows = [_row(stored.name, definition, time) for time in due.times]
    row = ScheduleFire(
        stored.name,
        stored.revision,
        "" if due.next is None else due.next,
        due.times[-1] if due.times else 0,
        definition.retries,
        payload,
        message_headers(stored.name, definition),
        " ".join(rows),
        _others(stored, definition) if alone else "",
        stored_attributes(definition, settings),
    )
    return row, due


def _row(name: str, definition: Definition, time: int) -> str:
    """Return id and due time of the message of the occurrence that is due at a time."""
    origin = definition.rule.origin(time)
    id, hours = occurrence_id(name, origin), definition.message_hours
    due = time if hours is None else hours.opening(time)
    if definition.jitter and origin == time:  # one that was moved is due at the time it was given
        due += draw(id, definition.jitter)
        due = due if hours is None else hours.opening(due)
    return f"{id} {due}"


def _others(stored: StoredSchedule, definition: Definition) -> str:
    """Return what the next occurrence may not overlap, and what to do then, for `fire`."""
    early = (origin for origin, time in definition.changes.items() if time == 0)  # one of them may be the last
    times = (definition.rule.origin(stored.last), *early) if stored.last else ()
    ids = [occurrence_id(stored.name, time) for time in times]
    return " ".join([definition.overlap, *ids]) if ids else ""
