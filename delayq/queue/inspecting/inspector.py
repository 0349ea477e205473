"""Reads a queue without changing it: counts, single messages, and pages of the messages in a state."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from delayq.broker.context import EngineContext, QueueContext
from delayq.broker.foreign import read_headers, record_fields, shown_id
from delayq.broker.keys import check_stored_id
from delayq.broker.message.attributes import Attributes
from delayq.broker.message.collected import decode_collected
from delayq.broker.message.expiry import expiry_of
from delayq.broker.message.ids import time_of
from delayq.broker.message.joining import Joining
from delayq.broker.replies import GetReply, MessageRow
from delayq.broker.requests import ALWAYS, Period
from delayq.broker.results import KeptRecord
from delayq.broker.stored_presence import RECENT, history_call
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.counts import Counts, Stats, counts_of, stats_of
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.inspecting.lateness_report import lateness_of, read_slo_report
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.values.checks import check_int
from delayq.values.states import State, state_at
from delayq.values.times import LATEST, from_millis, timestamp

MAX_ROWS = 1000
"""Entries that one page reads, at most."""
MAX_READ = 250
"""Entries that one call reads, each from five hashes."""
PREVIEW = 4096
"""Bytes of each payload that a page contains, by default."""
WHOLE = 1 << 40
"""The same for all of each payload."""
MAX_BYTES = MAX_ROWS * PREVIEW
"""Bytes of payloads after which a page ends: only pages of whole payloads, or of results, have fewer rows for it."""

RECORDED_STATES = {
    "pending": State.PENDING,
    "ready": State.READY,
    "ranked": State.READY,
    "leased": State.ACTIVE,
    "backoff": State.BACKOFF,
    "retry": State.RETRY,
    "throttled": State.THROTTLED,
    "garbage": State.GARBAGE,
}
_BY_TIME = {state: state not in (State.READY, State.RETRY, State.GARBAGE) for state in State}
_AFTER = re.compile(r"([!-~]{1,150})@([0-9]{1,15})")
_POSITION = re.compile(r"([0-9]{1,15})()")
_SKIPPED = re.compile(r"([0-9]{1,15})(?:@([0-9]{1,4}))?")
_RANKED = re.compile(r"([!-~]{1,150})@(d|d?-?[0-9]{1,15})|([0-9]{1,15})")
_CURSORS = {State.READY: _RANKED, State.RETRY: _POSITION, State.GARBAGE: _SKIPPED}
_ENTRY = re.compile(r".+:[0-9]{1,20}")
"""What an entry of the dead letter looks like; others are not delayq's."""


class Inspector:
    """Makes the operations that read; blocking and asyncio queues share it."""

    def __init__(self, context: QueueContext) -> None:
        self.context = context

    def counts(self) -> Operation[Counts]:
        """Count the messages in each state."""
        (counted,) = yield [self.context.calls.counts()]
        return counts_of(counted)

    def stats(self) -> Operation[Stats]:
        """Read counts, times and totals, how late messages started, and how the objective for that is kept."""
        counted, recent = yield [self.context.calls.counts(), history_call(self.context.calls, limit=RECENT)]
        slo = yield from read_slo_report(self.context, counted)
        return stats_of(counted, lateness_of(recent.hours), slo)

    def get(self, id: str) -> Operation[MessageInfo | None]:
        """Read one message, also one in the dead letter."""
        (found,) = yield [self.context.calls.get(check_stored_id(id))]
        return None if found is None else self.found(shown_id(id), found)

    def page(
        self,
        state: State | str,
        *,
        limit: int,
        cursor: str | None,
        preview: int = PREVIEW,
        due_from: datetime | None = None,
        due_to: datetime | None = None,
    ) -> Operation[Page]:
        """Read one page of the messages in a state; of the pending, those due from `due_from` on, before `due_to`."""
        if not isinstance(state, str) or state not in _BY_TIME:
            raise ConfigurationError(f"state must be one of {', '.join(State)}, not {short_repr(state)}")
        state = State(state)
        check_int(limit, "limit", 1, MAX_ROWS)
        period = _period(state, due_from, due_to)
        rows, next_cursor = yield from self.rows(state, limit=limit, cursor=cursor, preview=preview, between=period)
        messages = (self.info(state, row) for row in {row.id: row for row in rows}.values())
        return Page([message for message in messages if message is not None], next_cursor)

    def rows(
        self, state: State, *, limit: int, cursor: str | None, preview: int, between: Period = ALWAYS
    ) -> Operation[tuple[list[MessageRow], str | None]]:
        """Read one page as it is stored, and the cursor of the next one; None at the end.

        It ends early, after the call with which it has `MAX_BYTES` of payloads.
        """
        at, score = _start(state, cursor)
        rows: list[MessageRow] = []
        size = 0
        while limit > 0 and size < MAX_BYTES:
            count = min(limit, MAX_READ)
            part: dict[str, Any] = {"limit": count, "cursor": at, "score": score, "preview": preview}
            (listed,) = yield [self.context.calls.page(state, **part, between=between)]
            rows += listed.rows
            size += sum(len(row.payload) for row in listed.rows)
            at, score, limit = listed.cursor, listed.score, limit - listed.inspected
            if not at:
                break
        return rows, (f"{at}@{score}" if score else at) or None

    def info(self, state: State, row: MessageRow) -> MessageInfo | None:
        """Return what is known of a message of such a page; None for what another program has written."""
        if state is State.DEAD:
            return self._dead(row.id, row.payload, row.size)
        if state is State.COMPLETED:
            return self._kept(row.id, row.score, row.payload)
        record = _DeliveryRecord.read(row.record)
        waits = state in (State.PENDING, State.READY) and row.score
        due = waits or (record.due if record else "")
        return self._live(state, row, due, row.score if state in (State.ACTIVE, State.BACKOFF) else "", None)

    def found(self, id: str, found: GetReply) -> MessageInfo | None:
        """Return what is known of a message; None for what another program has written."""
        if found.dead or found.result:
            dead = self._dead(found.entry, found.dead, len(found.dead))
            kept = self._kept(id, found.kept_until, found.result)
            return max([one for one in (dead, kept) if one is not None], key=_ended_at, default=None)
        record = _DeliveryRecord.read(found.record)
        due = found.pending or (record.due if record else "")
        row = MessageRow(id, due, found.payload, len(found.payload), *found[3:8])
        stored = record.state if record else State.PENDING
        state = state_at(stored, float(found.pending or "inf"), found.now)
        return self._live(state, row, due, found.unack, found.entry or None)

    def _live(self, state: State, row: MessageRow, due: str, deadline: str, entry: str | None) -> MessageInfo:
        record = _DeliveryRecord.read(row.record)
        return MessageInfo(
            id=row.id,
            cancel_requested=row.record.endswith(" *"),
            state=state,
            payload=read_payload(self.context, row.payload, row.size, row.attributes),
            size=row.size,
            due=_time(int(due)) if due else None,
            attempts=record.attempts if record else 0,
            retries_left=int(row.retries_left or 0),
            deadline=_time(int(deadline)) if deadline else None,
            token=record.token or None if record else None,
            consumer=record.consumer if record and record.consumer != "-" else None,
            headers=read_headers(row.headers),
            error=row.error,
            entry=entry,
            **self._attribute_fields(row.attributes, due),
            sent=sent_by(row.id),
        )

    def _dead(self, entry: str, stored: bytes, size: int) -> MessageInfo | None:
        """Return a dead message; None for an entry that another program has written, or without its message."""
        death = read_death(stored)
        if death is None or not _ENTRY.fullmatch(entry):
            return None
        id, _, token = entry.rpartition(":")
        size -= len(stored) - len(death.payload)
        return MessageInfo(
            id=id,
            state=State.DEAD,
            payload=read_payload(self.context, death.payload, size, death.attributes),
            size=size,
            due=death.due,
            attempts=death.attempts,
            retries_left=0,
            deadline=None,
            token=int(token),
            consumer=None,
            headers=read_headers(death.headers),
            error=death.error,
            reason=death.reason,
            died=death.died,
            entry=entry,
            **self._attribute_fields(death.attributes, str(timestamp(death.due))),
            sent=sent_by(id),
        )

    def _kept(self, id: str, until: str, stored: bytes) -> MessageInfo | None:
        """Return a completed message; None for a record that another program has written."""
        record = KeptRecord.read(stored)
        if record is None:
            return None
        return MessageInfo(
            id=id,
            state=State.COMPLETED,
            payload=None,
            size=0,
            due=from_millis(record.due),
            attempts=record.attempts,
            retries_left=0,
            deadline=None,
            token=record.token,
            consumer=None,
            headers={},
            error="",
            reason=record.note,
            completed=from_millis(record.completed),
            kept_until=from_millis(int(float(until))) if until else None,
            result=self.context.results.read(record),
            **self._attribute_fields(record.attributes, str(record.due)),
            sent=sent_by(id),
        )

    def _attribute_fields(self, stored: bytes, due: str) -> dict[str, Any]:
        """Return the fields that attributes have in `MessageInfo`; the due time in milliseconds, '' if unknown."""
        attributes = Attributes.of(stored)
        expires = expiry_of(attributes, int(due)) if due else None
        joining = Joining.of(attributes.joins)
        return {
            "name": attributes.name,
            "key": attributes.key,
            "snoozes": attributes.snoozes,
            "expires": None if expires is None or expires > LATEST else from_millis(expires),
            "unhandled": attributes.unhandled,
            "group": "" if joining is None else joining.group,
            "hours": attributes.hours.replace("_", " "),
            "tz": attributes.tz or ("UTC" if attributes.hours else ""),
            "priority": attributes.priority,
            "timeout": attributes.timeout / 1000 if attributes.timeout > 0 else None,
            "retention": timedelta(milliseconds=attributes.retention) if attributes.retention > 0 else None,
            "progress": self.context.results.read_progress(attributes.progress),
        }


def sent_by(id: str) -> datetime | None:
    """Return when a message with an id of delayq was sent; None for any other id."""
    return time_of(id, now=timestamp(datetime.now(UTC)))


def read_payload(context: EngineContext, data: bytes, size: int, attributes: bytes = b"") -> Any:
    """Return a decoded payload, or its bytes if they were cut or the codec cannot decode them."""
    if len(data) < size and not context.hides:
        return data
    try:
        if context.hides or not Attributes.of(attributes).collect:
            return context.decode(data)
        found = decode_collected(data, context.decode)
        return data if all(isinstance(one, bytes) for one in found) else found  # bytes are shown as they are stored
    except Exception:  # noqa: BLE001 - a user's codec may raise anything
        return data


def _start(state: State, cursor: str | None) -> tuple[str, str]:
    """Return where a page starts: after a member and its score if the state is ordered by time, else at a position."""
    if not cursor and (cursor is None or isinstance(cursor, str)):
        return "", ""
    found = _CURSORS.get(state, _AFTER).fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise ConfigurationError(f"cursor {short_repr(cursor)} is not from a page of {state} messages")
    return found[1] or found[3], found[2] or ""


def _period(state: State, due_from: datetime | None, due_to: datetime | None) -> Period:
    """Return the bounds of due times in milliseconds, infinite for none."""
    if state is not State.PENDING and not due_from is due_to is None:
        raise ConfigurationError(f"due_from and due_to work with pending messages, not with {state} ones")
    return check_period(due_from, due_to)


def check_period(due_from: datetime | None, due_to: datetime | None) -> Period:
    """Return the bounds of due times in milliseconds, infinite for none; raise `ConfigurationError` for wrong ones."""
    low = ALWAYS[0] if due_from is None else timestamp(due_from, "due_from")
    high = ALWAYS[1] if due_to is None else timestamp(due_to, "due_to")
    if due_from is not None and due_to is not None and due_from > due_to:
        raise ConfigurationError(f"due_from {due_from.isoformat()} is after due_to {due_to.isoformat()}")
    return low, high


class _DeliveryRecord(NamedTuple):
    """A delivery record as the scripts write it."""

    state: State
    due: str
    attempts: int
    token: int
    consumer: str

    @classmethod
    def read(cls, text: str) -> _DeliveryRecord | None:
        if not text:
            return None
        state, due, attempts, _, token, consumer = record_fields(text)
        return cls(RECORDED_STATES[state], due, int(attempts), int(token), consumer)


def _ended_at(message: MessageInfo) -> datetime:
    return message.died or message.completed or datetime.min.replace(tzinfo=UTC)


def _time(at: int) -> datetime | None:
    return None if at < 0 else from_millis(at)
