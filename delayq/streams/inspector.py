"""Looking into a stream queue without touching it: one message, pages of messages in a state, the groups."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

import msgspec

from delayq.clock import LATEST, moment
from delayq.config import whole
from delayq.errors import ConfigurationError, shown
from delayq.inspector import MOST_READ, MOST_ROWS, PREVIEW, Counts, MessageInfo, Page, read_payload
from delayq.keys import check_id
from delayq.message import Tools
from delayq.operation import Operation
from delayq.states import State
from delayq.streams.answers import Row, read_number
from delayq.streams.calls import StreamCalls
from delayq.streams.keys import ENTRY

STATES = (State.READY, State.ACTIVE, State.BACKOFF, State.DEAD)
"""The states that a message of a stream can be in."""
MOST_SEARCHED = 10_000
"""Entries of the stream, and of the dead letter, that are looked through for an id."""

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class StreamInspector:
    """Operations that read; shared by the blocking and the asyncio face of a stream queue."""

    def __init__(self, tools: Tools, calls: StreamCalls) -> None:
        """Read the queue of `tools`."""
        self._tools = tools
        self._calls = calls

    def counts(self) -> Operation[Counts]:
        """Count the messages in each state."""
        ((length, held, free, dead),) = yield [self._calls.counts()]
        return Counts(0, max(length - held, 0), held - free, free, 0, 0, dead)

    def groups(self) -> Operation[list[str]]:
        """Read the names of the consumer groups."""
        (there,) = yield [self._calls.exists()]
        if not there:
            return []
        (names,) = yield [self._calls.groups()]
        return sorted(names)

    def get(self, id: str) -> Operation[MessageInfo | None]:
        """Read one message by its entry, or else by its id."""
        check_id(id)
        for where in ("stream", "dead"):
            if ENTRY.fullmatch(id):
                ((now, state, row),) = yield [self._calls.get(id, where)]
                if row is not None:
                    return self._info(State(state), now, row)
            entry = yield from self._find(id, where)
            if entry:
                ((now, state, row),) = yield [self._calls.get(entry, where)]
                if row is not None:
                    return self._info(State(state), now, row)
        return None

    def _find(self, id: str, where: str) -> Operation[str]:
        """Return the entry of an id, '' if there is none among those that are looked at."""
        after = ""
        for _ in range(0, MOST_SEARCHED, MOST_READ):
            ((entry, after),) = yield [self._calls.find(id, where, limit=MOST_READ, after=after)]
            if entry or not after:
                return str(entry)
        return ""

    def page(self, state: State | str, *, limit: int, cursor: str | None, preview: int = PREVIEW) -> Operation[Page]:
        """Read one page of the messages in a state."""
        if state not in STATES:
            raise ConfigurationError(f"state of a stream must be one of {', '.join(STATES)}, not {shown(state)}")
        whole(limit, "limit", 1, MOST_ROWS)
        if cursor and not (isinstance(cursor, str) and ENTRY.fullmatch(cursor)):
            raise ConfigurationError(f"cursor {shown(cursor)} is not one that a page of a stream ended with")
        state, after = State(state), cursor or ""
        found: list[MessageInfo] = []
        while limit > 0:
            some = min(limit, MOST_READ)
            (listed,) = yield [self._calls.page(state, limit=some, after=after, preview=preview)]
            found += [self._info(state, listed.now, row) for row in listed.rows]
            after, limit = listed.after, limit - some
            if not after:
                break
        return Page(found, after or None)

    def _info(self, state: State, now: int, row: Row) -> MessageInfo:
        """Return a message as it stands; an entry that others have added may lack any field."""
        died = state is State.DEAD
        headers: dict[str, str] = {}
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            headers = _decode_headers(row.fields.get(b"headers", b"{}"))
        arrived = int(row.entry.partition("-")[0])
        due = read_number(row.fields, b"due", arrived)
        budget = read_number(row.fields, b"retries", self._tools.settings.default_retries)
        # An attempt is charged when it has failed.
        left = budget - row.deliveries + (state is State.ACTIVE)
        ends = row.again or now - row.idle + self._tools.settings.lease
        return MessageInfo(
            id=_text(row, b"id") or row.entry,
            state=state,
            payload=read_payload(self._tools, row.fields.get(b"payload", b""), row.size),
            size=row.size,
            due=_time(due) if not died or b"due" in row.fields else None,
            attempts=read_number(row.fields, b"attempts", 0) if died else row.deliveries,
            retries_left=0 if died else max(left, 0),
            deadline=moment(ends) if row.holder else None,
            token=None,
            holder=row.holder if state is State.ACTIVE else None,
            headers=headers,
            error=_text(row, b"error") if died else row.error,
            reason=_text(row, b"reason") if died else "",
            died=_time(arrived) if died else None,
            entry=row.entry,
        )


def _text(row: Row, name: bytes) -> str:
    return row.fields.get(name, b"").decode("utf-8", "replace")


def _time(at: int) -> datetime | None:
    return moment(at) if at <= LATEST else None  # others may have given an entry any number
