"""Reads all messages of a queue as they are stored, page by page, so that they can be written elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Self

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.foreign import read_number, read_numbers, record_fields, shown_id
from delayq.broker.replies import MessageRow
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.inspecting.inspector import MAX_READ, RECORDED_STATES, WHOLE
from delayq.values.states import State, state_at
from delayq.values.times import timestamp

PAGE_BYTES = 1 << 20
"""Payload bytes that one call reads, and then the rest of one payload."""
UNPROMOTED = {State.PENDING, State.READY}
"""What may be stored as pending: what is due is ready."""
MAX_DUE = (1 << 53) - 1
"""A time (ms) after every due time: the largest integer that a score holds exactly."""
_WORDS = {word: state for word, state in RECORDED_STATES.items() if state is not State.PENDING}


class StoredMessage(NamedTuple):
    """A message as it is stored; times in milliseconds since 1970."""

    id: str
    state: State
    due: int
    retries: int
    """Retries left; of a message that is dead, or about to be, all that it had: a redrive sends it with these."""
    attempts: int
    payload: bytes
    headers: bytes
    attributes: bytes
    error: str
    reason: str = ""
    died: int | None = None


class StoredTable(NamedTuple):
    """Stored messages, one column per field of `StoredMessage`: faster for many messages."""

    ids: Sequence[str]
    states: Sequence[State]
    dues: Sequence[int]
    retries: Sequence[int]
    attempts: Sequence[int]
    payloads: Sequence[bytes]
    headers: Sequence[bytes]
    attributes: Sequence[bytes]
    errors: Sequence[str]
    reasons: Sequence[str]
    died: Sequence[int | None]

    @classmethod
    def of(cls, messages: Sequence[StoredMessage]) -> Self:
        """Return rows as columns."""
        return cls._make(zip(*messages, strict=True) if messages else [()] * len(cls._fields))


class StoredPosition(NamedTuple):
    """Where to go on: the part of the queue, and the cursor and score of the next page there."""

    part: str = "pending"
    cursor: str = ""
    score: str = ""
    rest: tuple[StoredMessage, ...] = ()
    """Messages of the page that was read last whose payloads it did not have room for."""
    partition: int = 0
    """The number of the partition that is being read."""

    @property
    def is_lasting(self) -> bool:
        """Whether the position is good after a restart of Redis: the cursor of a scan is not."""
        return self.part != "promoted" or not (self.cursor or self.rest)


PARTS = ("pending", "promoted", "dead")
"""In the order of a message's life, so that what moves on meanwhile is read twice rather than not at all."""


def read_stored(
    context: QueueContext, position: StoredPosition, states: Collection[State]
) -> Operation[tuple[StoredTable, StoredPosition | None]]:
    """Read the next page of the messages in these states, and the position after it; None at the end.

    A page may be empty. What stays in its state while all pages are read is read at least once. What changes its state,
    or is due at the same time as one that has gone meanwhile, may be read twice.
    """
    part, cursor, score, rest, _ = position
    messages = StoredTable.of([])
    if part == "pending" and not UNPROMOTED.isdisjoint(states):
        (page,) = yield [
            snapshot_call(context.calls, "", limit=MAX_READ, cursor=cursor, score=score, byte_limit=PAGE_BYTES)
        ]
        messages = _pending(page, states)
        cursor, score = page.cursor.decode("utf-8", "surrogateescape"), page.score.decode()
        if State.PENDING not in states and page.times and int(page.times[-1]) > page.now:
            cursor = ""  # none of these is due
    elif rest:
        messages, rest = yield from _rest(context, rest)
    elif part == "promoted" and any(state in states for state in _WORDS.values()):
        words = " ".join(word for word, state in _WORDS.items() if state in states)
        (page,) = yield [
            snapshot_call(context.calls, words, limit=MAX_READ, cursor=cursor or "0", byte_limit=PAGE_BYTES)
        ]
        messages, rest = _promoted(page)
        cursor = page.cursor.decode()
    elif part == "dead" and State.DEAD in states:
        call = context.calls.page(State.DEAD, limit=MAX_READ, cursor=cursor, score=score, preview=WHOLE)
        (listed,) = yield [call]
        messages = StoredTable.of([message for message in map(_dead, listed.rows) if message is not None])
        cursor, score = listed.cursor, listed.score
    else:
        cursor = ""
    if cursor or rest:
        return messages, StoredPosition(part, cursor, score, rest)
    following = PARTS.index(part) + 1
    return messages, StoredPosition(PARTS[following]) if following < len(PARTS) else None


def _pending(page: SnapshotReply, wanted: Collection[State]) -> StoredTable:
    # A message with a record was delivered before.
    attempts = [int(record_fields(record.decode("utf-8", "replace"))[2]) if record else 0 for record in page.records]
    dues = read_numbers(page.times)
    states = [state_at(State.PENDING, due, page.now) for due in dues]
    table = _living(page, states, dues, attempts or [0] * len(dues))
    if set(states) <= set(wanted):
        return table
    rows = zip(*table, strict=True)
    return StoredTable.of([one for one in map(StoredMessage._make, rows) if one.state in wanted])


def _promoted(page: SnapshotReply) -> tuple[StoredTable, tuple[StoredMessage, ...]]:
    """Return the messages of a page of a scan, and those whose payloads are beyond its byte limit."""
    records = [record_fields((record or b"").decode("utf-8", "replace"))[:3] for record in page.records]
    words, dues, attempts = zip(*records, strict=True) if records else ((), (), ())
    states = [RECORDED_STATES[word] for word in words]
    table = _living(page, states, list(map(int, dues)), list(map(int, attempts)))
    messages: list[StoredMessage] = []
    rest: list[StoredMessage] = []
    for at, cells in enumerate(zip(*table, strict=True)):
        message = StoredMessage._make(cells)
        if message.state is State.GARBAGE:
            message = message._replace(retries=max(0, message.attempts - 1))
        is_read = page.payloads and page.payloads[at] is not None
        (messages if is_read else rest).append(message)
    return StoredTable.of(messages), tuple(rest)


def _rest(
    context: QueueContext, rest: tuple[StoredMessage, ...]
) -> Operation[tuple[StoredTable, tuple[StoredMessage, ...]]]:
    """Read payloads one by one, as far as a page has room; return the messages, and those that are left."""
    messages, size, at = [], 0, 0
    while at < len(rest) and size < PAGE_BYTES:
        (found,) = yield [context.calls.get(rest[at].id)]
        if not (found is None or found.dead or found.result):  # else it has ended since the scan
            messages.append(rest[at]._replace(payload=found.payload))
            size += len(found.payload)
        at += 1
    return StoredTable.of(messages), rest[at:]


def _living(page: SnapshotReply, states: list[State], dues: list[int], attempts: list[int]) -> StoredTable:
    """Return the messages of a page, with the columns that depend on their states."""
    n = len(page.ids)

    def cells(column: list[bytes | None]) -> list[bytes]:
        return [cell or b"" for cell in column] or [b""] * n

    return StoredTable(
        ids=list(map(shown_id, page.ids)),
        states=states,
        dues=dues,
        retries=[read_number(left) or 0 for left in cells(page.retries)],
        attempts=attempts,
        payloads=cells(page.payloads),
        headers=cells(page.headers),
        attributes=cells(page.attributes),
        errors=[error.decode("utf-8", "replace") for error in cells(page.errors)],
        reasons=[""] * n,
        died=[None] * n,
    )


def _dead(row: MessageRow) -> StoredMessage | None:
    """Return a message of the dead letter; None for what another program has written, or if it was trimmed."""
    death = read_death(row.payload)
    id = row.id.rpartition(":")[0]
    if death is None or not id:
        return None
    return StoredMessage(
        id=id,
        state=State.DEAD,
        due=timestamp(death.due),
        retries=death.retries,
        attempts=death.attempts,
        payload=death.payload,
        headers=death.headers,
        attributes=death.attributes,
        error=death.error,
        reason=death.reason,
        died=timestamp(death.died),
    )


class SnapshotReply(NamedTuple):
    """A page of messages that are not dead, in columns as stored; a column is empty if no message has a value."""

    now: int
    """The server's time (ms)."""
    cursor: bytes
    score: bytes
    ids: list[bytes]
    times: list[bytes]
    """Due times of the pending, else deadlines (ms or nothing)."""
    sizes: list[int]
    retries: list[bytes | None]
    records: list[bytes | None]
    headers: list[bytes | None]
    attributes: list[bytes | None]
    errors: list[bytes | None]
    payloads: list[bytes | None]


def snapshot_call(
    calls: Calls,
    states: str,
    *,
    limit: int,
    cursor: str | bytes,
    score: str | bytes = "",
    low: int = 0,
    high: int = MAX_DUE,
    byte_limit: int = 0,
) -> ScriptCall[SnapshotReply]:
    """Read the pending (no `states`), or scan records in these states; `byte_limit` is for payloads."""
    args = [calls.now, states, limit, cursor, score, low, high, byte_limit]
    return calls.script("snapshot", args, SnapshotReply._make)
