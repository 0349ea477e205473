"""The event log: what happened to every message of a queue, written by the scripts that change the messages.

An entry of the log describes one call and contains all messages that the call moved. Reading it returns one
`MessageEvent` for each message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from delayq.broker.context import QueueContext
from delayq.broker.event_log import MIN_TIME_OFFSET, EventEntry, await_events, read_events, read_last_event
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.safe_log import SafeLog
from delayq.values.checks import check_int
from delayq.values.times import from_millis

if TYPE_CHECKING:
    from delayq.broker.transport.protocol import ShouldRetry

log = SafeLog("delayq.events")

PAGE = 100
"""Entries read at a time; each may contain a thousand messages."""
MAX_OFFSET = (1 << 63) - 1
LISTEN = 5.0
"""Seconds that a reader with `follow` waits for new entries before it asks again."""
REPEATED = 5000
"""Milliseconds before the last event read from which a follower reads again after a failover: clocks differ."""


def _always(_: Exception) -> bool:
    return True


class EventKind(StrEnum):
    """What happened to a message."""

    SENT = "sent"
    REPLACED = "replaced"
    """Sent again with `replace` while it waited; its attempts start anew."""
    PROMOTED = "promoted"
    """It became due."""
    DELIVERED = "delivered"
    ACKED = "acked"
    DISCARDED = "discarded"
    NACKED = "nacked"
    EXPIRED = "expired"
    """Its lease expired, which used one retry."""
    RETRIED = "retried"
    """Its nack delay is over or its lease has expired; it is ready to be delivered again."""
    RELEASED = "released"
    """Returned by a consumer that had not started it; no retry was used."""
    MISSED = "missed"
    """It had expired before it could start; `dead` or `discarded` follows."""
    DEAD = "dead"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    EDITED = "edited"
    """Its payload, headers, name, priority or expiry was changed where it waits."""
    REDRIVEN = "redriven"
    """Sent again from the dead letter; its attempts start anew."""
    PURGED = "purged"
    """All messages of the queue were deleted; the event names no message."""
    PAUSED = "paused"
    """The queue or a name was paused, or its pause changed: `due` is when it ends; the event names no message."""
    RESUMED = "resumed"
    """A pause of the queue or of a name was ended by `resume`; the event names no message."""
    AUDIT = "audit"
    """Somebody has acted in the dashboard: `holder` is who, `reason` what, and what came of it; `id` is set if it was
    about one."""
    SPILLED = "spilled"
    """It was moved to a file of the cold tier."""
    RESTORED = "restored"
    """It came back from the cold tier, with the due time that it had; `rescheduled` follows if it has another one."""
    COLD_DROPPED = "cold_dropped"
    """It did not come back from the cold tier: `reason` is withdrawn, exists if its id lives, or settled."""
    DEAD_IMPORTED = "dead_imported"
    """An import has put it into the dead letter, as it was in another queue."""
    DEAD_PURGED = "dead_purged"
    """Its entry in the dead letter, the one with this token, was deleted."""
    DEAD_TRIMMED = "dead_trimmed"
    """Its entry in the dead letter, the one with this token, was beyond the limits of the dead letter."""


BEGINNINGS = (EventKind.SENT, EventKind.DEAD_IMPORTED)
"""Events before which a message has none."""


@dataclass(frozen=True, slots=True)
class MessageEvent:
    """One thing that happened to one message; fields that this kind of event does not have are None."""

    offset: int
    """The number of its entry in the log: 1, 2, 3 … without gaps on Redis 7 and later."""
    index: int
    """The position of the message within the entry."""
    kind: EventKind | str
    at: datetime
    """The server's time."""
    id: str | None
    due: datetime | None = None
    attempt: int | None = None
    token: int | None = None
    retries_left: int | None = None
    """Retries left after the event; None after the failure that used the last one."""
    holder: str | None = None
    """The id of the consumer; of an `audit`, who has acted."""
    run: str | None = None
    """The name of the bulk send."""
    reason: str | None = None
    error: str | None = None
    name: str | None = None
    """The name that was paused or resumed, None for the queue."""
    partition: int | None = None
    """The number of the partition whose log this is; None for a queue without partitions."""


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The messages of one entry, one list for each field; lists of fields that its kind does not have are empty."""

    ids: list[str]
    dues: Sequence[int | None]
    attempts: Sequence[int | None]
    tokens: Sequence[int | None]
    retries: Sequence[int | None]
    reasons: list[str]
    errors: list[str]
    holder: str | None
    run: str | None
    name: str | None

    @classmethod
    def of(cls, entry: EventEntry) -> EventColumns:
        """Read the columns of an entry; times in milliseconds."""
        columns = entry.columns

        def text(name: str) -> str | None:
            return columns[name].decode("utf-8", "replace") if columns.get(name) else None

        return cls(
            ids=columns.get("ids", b"").decode().split(),
            dues=_numbers(columns.get("dues", b"")),
            attempts=_numbers(columns.get("attempts", b"")),
            tokens=_numbers(columns.get("tokens", b"")),
            retries=_numbers(columns.get("retries", b"")),
            reasons=_lines(columns.get("reasons")),
            errors=_lines(columns.get("errors")),
            holder=text("holder"),
            run=text("run"),
            name=text("name"),
        )


def _numbers(column: bytes) -> Sequence[int | None]:
    cells = column.split()
    return [None if cell == b"-" else int(cell) for cell in cells] if b"-" in column else list(map(int, cells))


def _lines(column: bytes | None) -> list[str]:
    return [] if column is None else column.decode("utf-8", "replace").split("\n")


def expand(entry: EventEntry) -> list[MessageEvent]:
    """Return the events of an entry, one for each message; none for one that another program has added."""
    if not entry.kind:
        return []
    columns, at = EventColumns.of(entry), from_millis(entry.at)
    kind = EventKind(entry.kind) if entry.kind in set(EventKind) else entry.kind
    if not columns.ids:
        due, reason = next(iter(columns.dues), None), next(iter(columns.reasons), None)
        ends = None if due is None else from_millis(due)
        who = columns.holder
        return [MessageEvent(entry.offset, 0, kind, at, None, due=ends, holder=who, reason=reason, name=columns.name)]

    def cell(column: Sequence[Any], index: int) -> Any:
        return column[index] if index < len(column) else None

    events = []
    for index, id in enumerate(columns.ids):
        due = cell(columns.dues, index)
        events.append(
            MessageEvent(
                entry.offset,
                index,
                kind,
                at,
                id,
                due=None if due is None else from_millis(due),
                attempt=cell(columns.attempts, index),
                token=cell(columns.tokens, index),
                retries_left=cell(columns.retries, index),
                holder=columns.holder,
                run=columns.run,
                reason=cell(columns.reasons, index) or None,
                error=cell(columns.errors, index) or None,
            )
        )
    return events


class EventReader:
    """Reads the event log page by page, and knows how far it has read."""

    def __init__(
        self, context: QueueContext, executor: Any, after: int | str, *, follow: bool, waits: bool = True
    ) -> None:
        """Start after an offset, or at the end if `after` is `"now"`; who reads several logs `waits` itself."""
        if after != "now":
            if isinstance(after, str):
                raise ConfigurationError(f"after must be an offset of the event log or 'now', not {short_repr(after)}")
            check_int(after, "after", 0, MAX_OFFSET)
        self._context = context
        self._executor = executor
        self._after = after if isinstance(after, int) else -1
        self._at: int | None = None
        """When the entry at that offset was written (ms), if known: a follower recognizes the log by it."""
        self._since = 0
        """Entries from before that time (ms) have been read."""
        self._follow = follow
        self._waits = follow and waits
        self._should_retry: ShouldRetry = None
        self.ended = False

    def next(self) -> Operation[list[MessageEvent]]:
        """Read the next events; with `follow`, wait for them as long as one command may block."""
        calls = self._context.calls
        if self._after < 0:
            (last,) = yield [read_last_event(calls)]
            self._advance(last)
            self._after = max(self._after, 0)
        entries = yield from self._fetch()
        if not entries and self._waits:
            timeout = min(self._executor.max_block, LISTEN)
            yield [await_events(calls, self._after, limit=1, timeout=timeout)]
            entries = yield from self._fetch()
        self.ended = not entries and not self._follow
        if self._follow:  # it has begun, and goes on across any outage
            self._should_retry = _always
        if entries:
            self._warn_of_gap(entries[0].offset)
            self._advance(entries)
        return [event for entry in entries if entry.at >= self._since for event in expand(entry)]

    def _advance(self, entries: Sequence[EventEntry]) -> None:
        if entries:
            self._after = entries[-1].offset
            self._at = entries[-1].at if self._follow and self._after < MIN_TIME_OFFSET else None

    def _fetch(self) -> Operation[list[EventEntry]]:
        """Return a page of new entries. A follower reads its last entry again, to see whether it is the same log."""
        while True:
            known = self._at is not None
            entries: list[EventEntry]
            (entries,) = yield [read_events(self._context.calls, self._after + (not known), limit=PAGE + known)]
            if not known or (entries and entries[0].offset > self._after):
                return entries
            if entries and entries[0].at == self._at:
                return entries[1:]
            yield from self._step_back()

    def _step_back(self) -> Operation[None]:
        """Go back in a log that is not the one that was read: a failover or a deletion has undone entries."""
        (last,) = yield [read_last_event(self._context.calls)]
        start, self._since = min(self._after, last[0].offset if last else 0), (self._at or 0) - REPEATED
        if last:
            log.warning("the event log has lost its end: its last events may be repeated, and lost ones are not undone")
        while start > 0:
            start = max(start - PAGE, 0)
            (entries,) = yield [read_events(self._context.calls, start + 1, limit=1)]
            if entries and entries[0].at < self._since:
                break
        self._after, self._at = start, None

    def _warn_of_gap(self, first: int) -> None:
        missing = first - self._after - 1
        if not self._after or first >= MIN_TIME_OFFSET or missing <= 0:
            return
        text = (
            "%d entries of the event log were trimmed before they were read: raise events_max_len or events_max_bytes,"
            " or read faster"
        )
        log.warning(text, missing, extra={"missing": missing})

    def iterate(self) -> Iterator[MessageEvent]:
        """Yield the events; the executor is a blocking one."""
        while not self.ended:
            yield from self._executor.perform(self.next(), should_retry=self._should_retry)

    async def iterate_async(self) -> AsyncIterator[MessageEvent]:
        """Yield the events; the executor is an asyncio one."""
        while not self.ended:
            for event in await self._executor.perform(self.next(), should_retry=self._should_retry):
                yield event
