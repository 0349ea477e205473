"""Reading a stream queue without changing it: one message, pages of messages in a state, the groups."""

from __future__ import annotations

from datetime import datetime

from delayq.broker.context import EngineContext
from delayq.broker.keys import check_id
from delayq.broker.transport.operation import Operation, single
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.counts import Counts
from delayq.queue.inspecting.inspector import MAX_READ, MAX_ROWS, PREVIEW, read_payload, sent_by
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.streams.calls import StreamCalls
from delayq.streams.keys import ENTRY
from delayq.streams.replies import NO_PAYLOAD, StreamRow, read_headers, read_number, read_text
from delayq.values.checks import check_int
from delayq.values.states import State
from delayq.values.times import LATEST, from_millis

MAX_SEARCHED = 10_000
"""Entries of the stream, and of the dead letter, that are searched for an id."""


class StreamInspector:
    """Operations that read; shared by both stream queues."""

    def __init__(self, context: EngineContext, calls: StreamCalls) -> None:
        self._context = context
        self._calls = calls

    def counts(self) -> Operation[Counts]:
        """Count the messages in each state."""
        ((length, pending, backoff, dead),) = yield [self._calls.counts()]
        ready = max(length - pending, 0)
        return Counts(0, ready, pending - backoff, backoff, 0, 0, dead, overdue=ready)

    def groups(self) -> Operation[list[str]]:
        """Read the names of the consumer groups."""
        return single(self._calls.groups())

    def get(self, id: str) -> Operation[MessageInfo | None]:
        """Read one message by its entry, or else by its id."""
        check_id(id)
        for where in ("stream", "dead"):
            found = (yield from self._read(id, where)) if ENTRY.fullmatch(id) else None
            if found is None and (entry := (yield from self._find(id, where))):
                found = yield from self._read(entry, where)
            if found is not None:
                return found
        return None

    def _read(self, entry: str, where: str) -> Operation[MessageInfo | None]:
        ((now, state, row),) = yield [self._calls.get(entry, where)]
        return None if row is None else self._info(State(state), now, row)

    def _find(self, id: str, where: str) -> Operation[str]:
        """Return the entry of an id, or '' if the search does not find it."""
        after, searched = "", 0
        while searched < MAX_SEARCHED:
            ((entry, after, number),) = yield [self._calls.find(id, where, limit=MAX_READ, after=after)]
            searched += number
            if entry or not after:
                return str(entry)
        return ""

    def page(self, state: State | str, *, limit: int, cursor: str | None, preview: int = PREVIEW) -> Operation[Page]:
        """Read one page of the messages in a state."""
        self._calls.capabilities.check_state(state)
        check_int(limit, "limit", 1, MAX_ROWS)
        if cursor and not (isinstance(cursor, str) and ENTRY.fullmatch(cursor)):
            raise ConfigurationError(f"cursor must be one that list() returned, not {short_repr(cursor)}")
        state, after = State(state), cursor or ""
        messages: list[MessageInfo] = []
        while limit > 0:
            count = min(limit, MAX_READ)
            (listed,) = yield [self._calls.page(state, limit=count, after=after, preview=preview)]
            messages += [self._info(state, listed.now, row) for row in listed.rows]
            after, limit = listed.after, limit - listed.inspected
            if not after:
                break
        return Page(messages, after or None)

    def _info(self, state: State, now: int, row: StreamRow) -> MessageInfo:
        """Return the message of a row; an entry that another client has added may lack any field."""
        died = state is State.DEAD
        arrived = int(row.entry.partition("-")[0])
        due = read_number(row.fields, b"due", arrived)
        retries = read_number(row.fields, b"retries", self._context.settings.default_retries)
        # An attempt takes a retry only when it has failed.
        retries_left = retries - row.deliveries + (state is State.ACTIVE)
        deadline = row.retry_at or now - row.idle + self._context.settings.lease
        id = read_text(row.fields, b"id") or row.entry
        return MessageInfo(
            id=id,
            state=state,
            payload=read_payload(self._context, row.fields.get(b"payload", NO_PAYLOAD), row.size),
            size=row.size,
            due=_time(due) if not died or b"due" in row.fields else None,
            attempts=read_number(row.fields, b"attempts", 0) if died else row.deliveries,
            retries_left=0 if died else max(retries_left, 0),
            deadline=from_millis(deadline) if row.consumer else None,
            token=None,
            consumer=row.consumer if state is State.ACTIVE else None,
            headers=read_headers(row.fields),
            error=read_text(row.fields, b"error") if died else row.error,
            reason=read_text(row.fields, b"reason") if died else "",
            died=_time(arrived) if died else None,
            entry=row.entry,
            sent=sent_by(id) if died or b"due" in row.fields else _time(arrived),  # a relay adds it after the send
        )


def _time(at: int) -> datetime | None:
    return from_millis(at) if at <= LATEST else None  # another client may have written any number
