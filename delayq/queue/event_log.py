"""The event log: what happened to every message of a queue, written by the script that did it.

An entry of the log tells of one call, and carries every message that the call moved; reading it gives one
`MessageEvent` for each.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from delayq.answers import LEAST_TIME, Entry
from delayq.clock import moment
from delayq.config import whole
from delayq.errors import ConfigurationError, shown
from delayq.face import AsyncFace, BlockingFace
from delayq.message import Tools
from delayq.operation import Operation
from delayq.twins import twin
from delayq.values import Command

T = TypeVar("T")

log = logging.getLogger("delayq.events")

PAGE = 100
"""Entries read at a time; each may tell of a thousand messages."""
MOST_OFFSET = (1 << 63) - 1
LISTEN = 5.0
"""Seconds a reader that follows waits for news before it asks again."""


class EventKind(StrEnum):
    """What happened to a message."""

    SENT = "sent"
    REPLACED = "replaced"
    """Sent again with `replace` while it waited: a new life of the id."""
    PROMOTED = "promoted"
    """Became due."""
    DELIVERED = "delivered"
    ACKED = "acked"
    DISCARDED = "discarded"
    NACKED = "nacked"
    EXPIRED = "expired"
    """Its lease ran out; a retry was taken."""
    RETRIED = "retried"
    """Its nack delay is over or its lease has run out, and it waits to be delivered again."""
    RELEASED = "released"
    """Handed back unstarted; nothing was taken."""
    DEAD = "dead"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    REDRIVEN = "redriven"
    """Sent again from the dead letter: a new life of the id."""
    PURGED = "purged"
    """Everything that lived was deleted; the event names no message."""


@dataclass(frozen=True, slots=True)
class MessageEvent:
    """One thing that happened to one message; None for what its kind does not tell."""

    offset: int
    """The place of its entry in the log: 1, 2, 3 … without gaps on Redis 7 and later."""
    index: int
    """The place of the message within the entry."""
    kind: EventKind | str
    at: datetime
    """The server's time."""
    id: str | None
    due: datetime | None = None
    attempt: int | None = None
    token: int | None = None
    retries_left: int | None = None
    """Retries left after it; None after the failure that spent the last one."""
    holder: str | None = None
    run: str | None = None
    """The run of a bulk send."""
    reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The messages of one entry, a list for each thing known; empty lists for what its kind does not tell."""

    ids: list[str]
    dues: Sequence[int | None]
    attempts: Sequence[int | None]
    tokens: Sequence[int | None]
    retries: Sequence[int | None]
    reasons: list[str]
    errors: list[str]
    holder: str | None
    run: str | None

    @classmethod
    def of(cls, entry: Entry) -> Columns:
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
        )


def _numbers(column: bytes) -> Sequence[int | None]:
    cells = column.split()
    return [None if cell == b"-" else int(cell) for cell in cells] if b"-" in column else list(map(int, cells))


def _lines(column: bytes | None) -> list[str]:
    return [] if column is None else column.decode("utf-8", "replace").split("\n")


def expand(entry: Entry) -> list[MessageEvent]:
    """Return what an entry tells, an event for each message."""
    columns, at = Columns.of(entry), moment(entry.at)
    kind = EventKind(entry.kind) if entry.kind in set(EventKind) else entry.kind
    if not columns.ids:
        return [MessageEvent(entry.offset, 0, kind, at, None)]

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
                due=None if due is None else moment(due),
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


class Reading:
    """A reader's place in the event log."""

    def __init__(self, tools: Tools, after: int | str, *, follow: bool) -> None:
        """Begin behind an offset, or at the end if `after` is `"now"`."""
        if after != "now":
            if isinstance(after, str):
                raise ConfigurationError(f"after must be an offset of the event log or 'now', not {shown(after)}")
            whole(after, "after", 0, MOST_OFFSET)
        self._tools = tools
        self._after = after if isinstance(after, int) else -1
        self._follow = follow
        self.ended = False

    def next(self, longest_block: float) -> Operation[list[MessageEvent]]:
        """Read some more events; when following, wait for them up to the longest a command may block."""
        calls = self._tools.calls
        if self._after < 0:
            (last,) = yield [calls.last_event()]
            self._after = last[0].offset if last else 0
        entries: list[Entry]
        (entries,) = yield [calls.events(self._after + 1, limit=PAGE)]
        if not entries and self._follow:
            (entries,) = yield [self._await(min(longest_block, LISTEN))]
        self.ended = not entries and not self._follow
        if entries:
            self._warn_of_gap(entries[0].offset)
            self._after = entries[-1].offset
        return [event for entry in entries for event in expand(entry)]

    def _await(self, timeout: float) -> Command[list[Entry]]:
        return self._tools.calls.await_events(self._after, limit=PAGE, timeout=timeout)

    def _warn_of_gap(self, first: int) -> None:
        missing = first - self._after - 1
        if self._after and first < LEAST_TIME and missing > 0:
            text = "%d entries of the event log were trimmed before they were read"
            log.warning(text, missing, extra={"missing": missing})


class EventReader(BlockingFace[T]):
    """A face that reads the event log."""

    def events(self, after: int | str = 0, *, follow: bool = False) -> Iterator[MessageEvent]:
        """Iterate over the event log, oldest first, from behind the offset `after`, or from `"now"` on.

        Ends at the end of the log; with `follow` it waits for what comes, until the iteration is left. Written only
        while the queue's log is on (`events=True`), at most `events_max_len` entries of it are kept: what was trimmed
        before it could be read is warned of in the log.
        """
        return self._read_events(Reading(self._tools, after, follow=follow))

    def _read_events(self, reading: Reading) -> Iterator[MessageEvent]:
        while not reading.ended:
            yield from self._perform(reading.next(self._executor.longest_block))


class AsyncEventReader(AsyncFace[T]):
    """A face that reads the event log."""

    @twin(EventReader.events)
    def events(self, after: int | str = 0, *, follow: bool = False) -> AsyncIterator[MessageEvent]:
        return self._read_events(Reading(self._tools, after, follow=follow))

    async def _read_events(self, reading: Reading) -> AsyncIterator[MessageEvent]:
        while not reading.ended:
            for event in await self._perform(reading.next(self._executor.longest_block)):
                yield event
