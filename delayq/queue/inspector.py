"""Looking into a queue without touching it: counts, one message, pages of messages in a state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from delayq.answers import Counted, Found, Row
from delayq.clock import moment
from delayq.config import whole
from delayq.errors import ConfigurationError, shown
from delayq.keys import check_id, check_name, registry
from delayq.message import Tools
from delayq.operation import Operation
from delayq.states import State
from delayq.values import Command

MOST_ROWS = 1000
"""Entries one page looks at, at most."""
MOST_READ = 500
"""Entries one call looks at: each is read from five hashes."""
PREVIEW = 4096
"""Bytes of each payload that a page carries, by default."""

_RECORDED = {
    "pending": State.PENDING,
    "ready": State.READY,
    "leased": State.ACTIVE,
    "backoff": State.BACKOFF,
    "retry": State.RETRY,
    "garbage": State.GARBAGE,
}
_BY_TIME = {state: state not in (State.READY, State.RETRY, State.GARBAGE) for state in State}
_AFTER = re.compile(r"([!-~]{1,150})@([0-9]{1,15})")
_POSITION = re.compile(r"([0-9]{1,15})()")
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages are in each state, as of one moment."""

    pending: int
    ready: int
    active: int
    backoff: int
    retry: int
    garbage: int
    dead: int

    @property
    def living(self) -> int:
        """Messages that are still to be processed: all but the dead."""
        return self.pending + self.ready + self.active + self.backoff + self.retry + self.garbage


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts with what they hide: the next and the oldest due time, and totals since the queue was made."""

    counts: Counts
    at: datetime
    """The server's time of the reading."""
    next_due: datetime | None
    """When the next pending message becomes due."""
    oldest_due: datetime | None
    """The due time of the message at the head of ready: how far consumers lag behind."""
    next_deadline: datetime | None
    """When the next lease or nack delay runs out."""
    totals: Mapping[str, int]
    """Messages ever sent, delivered, acked, nacked, expired, dead, cancelled, … by name."""


class Death(NamedTuple):
    """Why and when a message died."""

    reason: str
    error: str
    attempts: int
    retries: int
    due: datetime
    died: datetime
    headers: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """A message as it stands in the queue or the dead letter. What does not apply to its state is None.

    Its `repr` leaves payload and headers out, which may be private.
    """

    id: str
    state: State
    payload: Any = field(repr=False)
    """The decoded payload; the raw bytes if they are undecodable or were cut to the preview of a page."""
    size: int
    """Bytes of the payload as stored."""
    due: datetime | None
    attempts: int
    retries_left: int
    deadline: datetime | None
    """The end of the lease, or of the nack delay."""
    token: int | None
    holder: str | None
    """Who holds or last held it."""
    headers: Mapping[str, str] = field(repr=False)
    error: str
    """The last error, '' for none."""
    reason: str
    """Why it died, '' while it lives."""
    died: datetime | None
    entry: str | None
    """Its entry in the dead letter, `id:token`: what tells two deaths of one id apart."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages of a state, and the cursor of the next page (None at the end)."""

    messages: list[MessageInfo]
    cursor: str | None


class Inspector:
    """Operations that read; shared by the blocking and the asyncio face of a queue."""

    def __init__(self, tools: Tools) -> None:
        """Read the queue of `tools`."""
        self._tools = tools

    def counts(self) -> Operation[Counts]:
        """Count the messages in each state."""
        (counted,) = yield [self._tools.calls.counts()]
        return _counts(counted)

    def stats(self) -> Operation[Stats]:
        """Read counts, times and totals."""
        (counted,) = yield [self._tools.calls.counts()]
        hidden = {"schema", "token", "stale_ready", "stale_retry", "backoffs", "slot_cursor", "events", "dedupe"}
        totals = {name: int(value) for name, value in sorted(counted.meta.items()) if name not in hidden}
        return Stats(
            counts=_counts(counted),
            at=moment(counted.now),
            next_due=_time(counted.next_due),
            oldest_due=_time(counted.oldest_ready),
            next_deadline=_time(counted.next_deadline),
            totals=totals,
        )

    def get(self, id: str) -> Operation[MessageInfo | None]:
        """Read one message, alive or dead."""
        (found,) = yield [self._tools.calls.get(check_id(id))]
        return None if found is None else self._found(id, found)

    def page(self, state: State | str, *, limit: int, cursor: str | None, preview: int = PREVIEW) -> Operation[Page]:
        """Read one page of the messages in a state."""
        if not isinstance(state, str) or state not in _BY_TIME:
            raise ConfigurationError(f"state must be one of {', '.join(State)}, not {shown(state)}")
        state = State(state)
        whole(limit, "limit", 1, MOST_ROWS)
        at, score = _start(state, cursor)
        rows: dict[str, Row] = {}
        while limit > 0:
            some = min(limit, MOST_READ)
            (listed,) = yield [self._tools.calls.page(state, limit=some, cursor=at, score=score, preview=preview)]
            rows.update((row.id, row) for row in listed.rows)
            at, score, limit = listed.cursor, listed.score, limit - some
            if not at:
                break
        next_cursor = f"{at}@{score}" if score else at
        return Page([self._row(state, row) for row in rows.values()], next_cursor or None)

    def _found(self, id: str, found: Found) -> MessageInfo:
        if found.dead:
            return self._dead(found.entry, found.dead, len(found.dead))
        record = _Record.read(found.record)
        due = found.pending or (record.due if record else "")
        row = Row(
            id, due, found.payload, len(found.payload), found.retries_left, found.record, found.headers, found.error
        )
        return self._living(record.state if record else State.PENDING, row, due, found.unack, found.entry or None)

    def _row(self, state: State, row: Row) -> MessageInfo:
        if state is State.DEAD:
            return self._dead(row.id, row.payload, row.size)
        record = _Record.read(row.record)
        due = row.score if state is State.PENDING else record.due if record else ""
        return self._living(state, row, due, row.score if state in (State.ACTIVE, State.BACKOFF) else "", None)

    def _living(self, state: State, row: Row, due: str, deadline: str, entry: str | None) -> MessageInfo:
        record = _Record.read(row.record)
        return MessageInfo(
            id=row.id,
            state=state,
            payload=read_payload(self._tools, row.payload, row.size),
            size=row.size,
            due=_time(int(due)) if due else None,
            attempts=record.attempts if record else 0,
            retries_left=int(row.retries_left or 0),
            deadline=_time(int(deadline)) if deadline else None,
            token=record.token or None if record else None,
            holder=record.holder if record and record.holder != "-" else None,
            headers=_decode_headers(row.headers) if row.headers else {},
            error=row.error,
            reason="",
            died=None,
            entry=entry,
        )

    def _dead(self, entry: str, stored: bytes, size: int) -> MessageInfo:
        id, _, token = entry.rpartition(":")
        death = read_death(stored)
        size -= len(stored) - len(death.payload)
        return MessageInfo(
            id=id,
            state=State.DEAD,
            payload=read_payload(self._tools, death.payload, size),
            size=size,
            due=death.due,
            attempts=death.attempts,
            retries_left=0,
            deadline=None,
            token=int(token),
            holder=None,
            headers=_decode_headers(death.headers) if death.headers else {},
            error=death.error,
            reason=death.reason,
            died=death.died,
            entry=entry,
        )


def read_payload(tools: Tools, data: bytes, size: int) -> Any:
    """Return a payload decoded; as its bytes where those were cut, or the codec cannot read them."""
    if len(data) < size:
        return data
    try:
        return tools.decode(data)
    except Exception:  # noqa: BLE001 - a user's codec may raise anything
        return data


def _start(state: State, cursor: str | None) -> tuple[str, str]:
    """Return where a page begins: after a member with its score where a time orders the state, else at a position."""
    if not cursor and (cursor is None or isinstance(cursor, str)):
        return "", ""
    found = (_AFTER if _BY_TIME[state] else _POSITION).fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise ConfigurationError(f"cursor {shown(cursor)} is not one that a page of {state} messages ended with")
    return found[1], found[2]


def queue_names(prefix: str) -> Operation[list[str]]:
    """Read the names of every queue that has been used under a prefix, in order."""
    key = registry(check_name(prefix, "prefix"))
    names: set[str] = set()
    cursor = b"0"
    while True:
        (answer,) = yield [Command(("SSCAN", key, cursor, "COUNT", 500), lambda answer: answer)]
        cursor, found = answer
        names.update(name.decode() for name in found)
        if cursor == b"0":
            return sorted(names)


def read_death(stored: bytes) -> Death:
    """Read a message of the dead letter: a line of counts and lengths, then reason, error, headers and payload."""
    head, _, body = stored.partition(b"\n")
    attempts, retries, due, died, reason, error, headers = map(int, head.split())
    at_error, at_headers, at_payload = reason, reason + error, reason + error + headers
    return Death(
        reason=body[:at_error].decode("utf-8", "replace"),
        error=body[at_error:at_headers].decode("utf-8", "replace"),
        attempts=attempts,
        retries=retries,
        due=moment(due),
        died=moment(died),
        headers=body[at_headers:at_payload],
        payload=body[at_payload:],
    )


class _Record(NamedTuple):
    """A delivery record, as the scripts write it."""

    state: State
    due: str
    attempts: int
    token: int
    holder: str

    @classmethod
    def read(cls, text: str) -> _Record | None:
        if not text:
            return None
        state, due, attempts, _, token, holder = text.split(" ", 5)
        return cls(_RECORDED[state], due, int(attempts), int(token), holder)


def _counts(counted: Counted) -> Counts:
    return Counts(
        counted.pending,
        counted.ready,
        counted.active,
        counted.backoff,
        counted.retry,
        counted.garbage,
        counted.dead,
    )


def _time(at: int) -> datetime | None:
    return None if at < 0 else moment(at)
