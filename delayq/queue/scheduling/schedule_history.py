"""`schedules.history`: what became of the occurrences of a schedule, read from the end of the event log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from delayq.broker.context import QueueContext
from delayq.broker.event_log import read_events_back
from delayq.broker.transport.operation import Operation
from delayq.queue.inspecting.event_log import PAGE, EventKind, MessageEvent, expand
from delayq.schedules.definition import check_schedule
from delayq.values.checks import check_int

MAX_PAGES = 100
"""Pages of the event log that are read at most: ten thousand entries."""


class OccurrenceResult(StrEnum):
    """What has become of the message of an occurrence."""

    WAITING = "waiting"
    """It has fired, and was not delivered yet."""
    RUNNING = "running"
    RETRYING = "retrying"
    """A delivery has failed or was put back; it will be delivered again."""
    ACKED = "acked"
    DISCARDED = "discarded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    PURGED = "purged"


_RESULTS = {
    EventKind.DELIVERED: OccurrenceResult.RUNNING,
    EventKind.NACKED: OccurrenceResult.RETRYING,
    EventKind.EXPIRED: OccurrenceResult.RETRYING,
    EventKind.ACKED: OccurrenceResult.ACKED,
    EventKind.DISCARDED: OccurrenceResult.DISCARDED,
    EventKind.DEAD: OccurrenceResult.DEAD,
    EventKind.DEAD_IMPORTED: OccurrenceResult.DEAD,
    EventKind.CANCELLED: OccurrenceResult.CANCELLED,
    EventKind.SENT: OccurrenceResult.WAITING,
    EventKind.REPLACED: OccurrenceResult.WAITING,
    EventKind.REDRIVEN: OccurrenceResult.WAITING,
}
_LIVING = (OccurrenceResult.WAITING, OccurrenceResult.RUNNING, OccurrenceResult.RETRYING)


@dataclass(frozen=True, slots=True)
class OccurrenceHistory:
    """An occurrence that has fired; what was trimmed from the log is None."""

    id: str
    """Of its message."""
    occurrence: datetime
    """The time that the rule of the schedule gave it."""
    result: OccurrenceResult
    due: datetime | None
    """When its message was due at last."""
    fired: datetime | None
    """When its message was stored."""
    delivered: datetime | None
    """When it was first delivered."""
    ended: datetime | None
    """When it was acked, discarded, cancelled or purged, or moved to the dead letter."""
    attempts: int
    """Deliveries that are in the log."""
    lateness: float | None
    """Seconds from its due time to the first delivery."""
    error: str | None
    """The last error."""


@dataclass(frozen=True, slots=True)
class ScheduleHistory:
    """The latest occurrences of a schedule, newest first, as far as the event log was read."""

    occurrences: list[OccurrenceHistory]
    since: datetime | None
    """The time of the oldest event that was read; None if the log has none."""
    more: bool
    """Whether the log reaches further back."""


def history(context: QueueContext, name: str, limit: int) -> Operation[ScheduleHistory]:
    """Read the event log backward until it has the whole story of the latest occurrences, or a limit is reached."""
    check_int(limit, "limit", 1, 1000)
    prefix = f"{check_schedule(name)}@"
    needle = prefix.encode()
    stories: dict[str, list[MessageEvent]] = {}
    purges: list[MessageEvent] = []
    last, oldest, more = None, None, True
    for _ in range(MAX_PAGES):
        (entries,) = yield [read_events_back(context.calls, last, limit=PAGE)]
        for entry in entries:
            of_message = entry.kind != EventKind.AUDIT and needle in entry.columns.get("ids", b"")
            if entry.kind == EventKind.PURGED or of_message:
                for event in reversed(expand(entry)):
                    if event.id is None:
                        purges.append(event)
                    elif event.id.startswith(prefix) and _time_of(event.id) is not None:
                        stories.setdefault(event.id, []).append(event)
        if entries:
            last, oldest = entries[-1].offset - 1, min(entry.at for entry in entries) or oldest
        more = len(entries) == PAGE
        if not more or _is_complete(stories, limit):
            break
    found = [_fold(id, reversed([*story, *purges])) for id, story in stories.items()]
    found.sort(key=lambda one: (one.occurrence, one.id), reverse=True)
    since = None if oldest is None else datetime.fromtimestamp(oldest / 1000, UTC)
    return ScheduleHistory(found[:limit], since, more)


def _is_complete(stories: dict[str, list[MessageEvent]], limit: int) -> bool:
    """Return whether the latest occurrences are known from the event that stored their messages."""
    latest = sorted(stories, reverse=True)[:limit]
    return len(latest) == limit and all(stories[id][-1].kind == EventKind.SENT for id in latest)


def _time_of(id: str) -> datetime | None:
    try:
        return datetime.fromisoformat(id.partition("@")[2])
    except ValueError:  # sent by `run_now`
        return None


def _fold(id: str, story: Iterable[MessageEvent]) -> OccurrenceHistory:
    """Tell what became of an occurrence, from all its events."""
    result, attempts = OccurrenceResult.WAITING, 0
    due = fired = delivered = ended = lateness = error = None
    for event in sorted(story, key=lambda event: (event.offset, event.index)):
        if event.id is None:
            if fired is not None and result in _LIVING:
                result, ended = OccurrenceResult.PURGED, event.at
            continue
        kind = EventKind(event.kind) if event.kind in set(EventKind) else None
        result = result if kind is None else _RESULTS.get(kind, result)
        ended = None if result in _LIVING else ended or event.at
        due, error = event.due or due, event.error or error
        if kind == EventKind.SENT:
            fired = fired or event.at
        elif kind == EventKind.DELIVERED:
            if delivered is None and due is not None:
                lateness = (event.at - due).total_seconds()
            delivered, attempts = delivered or event.at, attempts + 1
    time = _time_of(id)
    assert time is not None  # noqa: S101 - as `history` has checked
    return OccurrenceHistory(id, time, result, due, fired, delivered, ended, attempts, lateness, error)
