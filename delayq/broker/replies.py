"""Typed replies of the scripts, and the functions that parse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from delayq.broker.foreign import number_text, read_number, read_numbers, record_fields, shown_id, time_text
from delayq.broker.keys import META_FIELDS
from delayq.errors import NotReplicatedError


class ClaimedMessage(msgspec.Struct, gc=False):
    """A claimed message; `due` and `sent` in milliseconds since 1970.

    Untracked by the garbage collector (`gc=False`): it holds no references to containers.
    """

    id: str
    token: int
    payload: bytes
    retries_left: int
    due: int
    attempt: int
    headers: bytes
    attributes: bytes = b""
    sent: int | None = None
    """None if the engine does not store it."""
    unreadable: str = ""
    """What of it cannot be read, because another program has written it; '' for nothing."""


class ExpiredLease(NamedTuple):
    """A lease that has expired while its callback ran, or may have run: its attempt has failed."""

    id: str
    attempt: int
    retries_left: int
    """Of this attempt, as those of the message: 0 for the last one."""
    name: str
    consumer: str
    """The consumer that was lost; '' if that is not known."""

    @classmethod
    def read(cls, line: str) -> ExpiredLease | None:
        """Parse a line of `unack_to_retry`; None for one that the id of another program has spoilt."""
        parts = line.split(" ", 4)
        if len(parts) < len(cls._fields) or not (parts[1].isdecimal() and parts[2].isdecimal()):
            return None
        return cls(parts[0], int(parts[1]), int(parts[2]), *parts[3:])


class ClaimReply(NamedTuple):
    """The result of a claim: server time and deadline (ms), ids left, deliveries, whether the only one runs alone."""

    now: int
    deadline: int
    left: int
    messages: list[ClaimedMessage]
    alone: bool = False
    next_due: int = -1
    """When the next message is due (ms, -1 for never). This and what follows is what `pending_to_unack` adds."""
    next_deadline: int = -1
    """When the first lease or backoff ends (ms or -1)."""
    next_schedule: int = -1
    ranks: bool = False
    """Whether what is due must be promoted before it is claimed, because of priorities or limits."""
    next_gate: int = -1
    """When something that a limit holds back may start (ms, -1 if nothing is, or it depends on others)."""
    expired: tuple[ExpiredLease, ...] = ()
    """The leases that this claim has found expired; of streams alone."""
    trials: tuple[tuple[str, str | None], ...] = ()
    """The ids that start as trials of a breaker that has tripped, each with its name; None for the queue's breaker."""


class TurnReply(NamedTuple):
    """The result of a turn of a plain queue: statuses of what was to be settled, and what was claimed."""

    statuses: str
    """A status per receipt: 1 settled by it, 0 settled before, ? for `ack` to settle."""
    claimed: ClaimReply | None
    """None if nothing was done, since the queue is not plain."""
    micros: int = 0
    """The server's time, in microseconds since 1970."""

    @classmethod
    def read(cls, reply: Any, lease: int) -> TurnReply:
        """Parse the reply of `turn` with leases of so many milliseconds."""
        if isinstance(reply, bytes):
            return cls(reply.decode(), ClaimReply(0, 0, 0, []))
        if not isinstance(reply, list):
            return cls("", None)
        *times, left, alone = reply[1:7]
        micros, next_due, next_deadline, next_schedule = read_numbers(times)
        messages = _read_messages([reply[at::8] for at in range(7, 14)], reply[14::8])
        now, runs_alone = micros // 1000, alone is not None
        claimed = ClaimReply(now, now + lease, left, messages, runs_alone, next_due, next_deadline, next_schedule)
        return cls(reply[0].decode(), claimed, micros)


class PromoteReply(NamedTuple):
    """The result of a promotion: ids moved, next due time and deadline (ms or -1), ids waiting and in garbage."""

    moved: int
    next_due: int
    next_deadline: int
    waiting: int
    garbage: int
    now: int
    next_schedule: int = -1
    """When the next schedule occurs (ms, -1 for never)."""
    paused: int = -1
    """When a pause ends (ms, 0 for no end); -1 if there is none, or nothing waits nor is leased."""
    ranks: int = 0
    """1 if messages have priorities or limits; not told while nothing waits nor is leased."""
    stopping: int = 0
    """How many calls have asked running messages to stop; 0 if nothing is leased."""
    next_gate: int = -1
    """When something that a limit holds back may start (ms or -1)."""


class _Expired(NamedTuple):
    retried: int
    spent: int
    next_deadline: int


class ExpireReply(_Expired):
    """Expired leases: ids to retry, ids without retries left, the next deadline (ms or -1), and what to log."""

    expired: tuple[ExpiredLease, ...] = ()
    """The leases that have cost a retry; it takes no part in comparisons."""

    @classmethod
    def read(cls, reply: bytes) -> ExpireReply:
        """Parse the reply of `unack_to_retry`."""
        numbers, *lines = reply.decode("utf-8", "backslashreplace").split("\n")
        read = cls(*read_numbers(numbers.encode().split()))
        read.expired = tuple(lease for lease in map(ExpiredLease.read, lines) if lease is not None)
        return read


class CollectReply(NamedTuple):
    """The result of garbage collection: ids moved to the dead letter, entries trimmed there, ids still to collect."""

    collected: int
    trimmed: int
    left: int


class MessageRow(NamedTuple):
    """One message of a listing, as stored."""

    id: str
    score: str
    payload: bytes
    size: int
    retries_left: str
    record: str
    headers: bytes
    attributes: bytes
    error: str


class PageReply(NamedTuple):
    """A page of a listing, and the position of the next one ('' at the end)."""

    cursor: str
    score: str
    rows: list[MessageRow]
    inspected: int
    """Entries that it has inspected: fewer than asked for if the payloads are large."""


class CountsReply(NamedTuple):
    """The counts of a queue at one moment, with the fields of its meta hash; times in ms, -1 for none."""

    now: int
    next_due: int
    oldest_due: int
    next_deadline: int
    pending: int
    ready: int
    active: int
    backoff: int
    retry: int
    garbage: int
    dead: int
    messages: int
    overdue: int
    held: int
    successors: int
    completed: int
    throttled: int
    workers: int
    heard: int
    meta: dict[str, str]

    @property
    def in_use(self) -> bool:
        """Whether there is a queue: an opened one has a `meta`, until it is removed."""
        return bool(self.meta or self.messages or self.dead)


class GetReply(NamedTuple):
    """Everything stored about one id; missing parts are empty."""

    payload: bytes
    pending: str
    unack: str
    retries_left: str
    record: str
    headers: bytes
    attributes: bytes
    error: str
    entry: str
    dead: bytes
    kept_until: str
    result: bytes
    now: int
    """The server's time (ms)."""


statuses: Callable[[bytes], str] = bytes.decode
"""Returns a reply with one status digit per item."""


def check_replicated(confirmed: int, required: int) -> int:
    """Return how many replicas confirmed a write; raise `NotReplicatedError` if they are fewer than required."""
    if confirmed < required:
        raise NotReplicatedError(f"stored, but only {confirmed} of {required} replicas confirmed it in time")
    return confirmed


def integers(reply: bytes) -> tuple[int, ...]:
    """Return a reply of integers."""
    return tuple(read_numbers(reply.split()))


def stopping_tokens(records: list[bytes | None]) -> list[int]:
    """Return the tokens of the delivery records whose messages are asked to stop, 0 for the others."""
    return [
        int(record_fields(record.decode("utf-8", "replace"))[4]) if record and record.endswith(b" *") else 0
        for record in records
    ]


def any_withdrawn(records: list[bytes | None]) -> bool:
    """Return whether the consumer of any of these delivery records is asked to return its message."""
    return any(record is not None and record.endswith(b" -") for record in records)


def read_claim(reply: list[Any]) -> ClaimReply:
    """Parse the reply of `ready_to_unack`."""
    now, deadline, left, alone, next_gate, retries, *cells = reply
    messages = _read_messages([cells[at::7] for at in range(7)], retries)
    gate, *trials = next_gate.split(b" ;")
    found, opens = tuple(map(_trial, trials)), read_numbers([gate])[0]
    return ClaimReply(now, deadline, left, messages, alone is not None, next_gate=opens, trials=found)


def _read_messages(columns: list[list[Any]], retries: list[bytes | None]) -> list[ClaimedMessage]:
    """Return the messages of a claim, from the columns id, token, payload, due, attempt, headers and attributes."""
    try:
        return _read_claimed(columns, [int(left or 0) for left in retries], bytes.decode)
    except ValueError:  # another program has written an id or retries: one by one, to find which
        messages = _read_claimed(columns, [read_number(left or b"0") or 0 for left in retries], _any_id)
    for one, stored in zip(messages, retries, strict=True):
        if one.id != shown_id(one.id):
            one.unreadable = f"the id {shown_id(one.id)[:200]} is no UTF-8"
        elif stored and read_number(stored) is None:
            one.unreadable = f"the retries left are {stored[:40]!r}"
    return messages


def _read_claimed(
    columns: list[list[Any]], retries: list[int], read_id: Callable[[bytes], str]
) -> list[ClaimedMessage]:
    ids, tokens, payloads, dues, attempts, headers, attributes = columns
    return list(
        map(
            ClaimedMessage,
            map(read_id, ids),
            map(int, tokens),
            payloads,
            retries,
            map(int, dues),
            map(int, attempts),
            [text or b"" for text in headers],
            [text or b"" for text in attributes],
        )
    )


def _any_id(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def _trial(text: bytes) -> tuple[str, str | None]:
    """Return the id and the name of a trial, which a claim writes as `ID name:NAME`, or `ID queue` for no name."""
    id, _, scope = text.decode(errors="replace").partition(" ")
    return id, scope.partition(":")[2] or None


def read_due_claim(reply: list[Any]) -> ClaimReply:
    """Parse the reply of `pending_to_unack`."""
    next_due, next_deadline, next_schedule = read_numbers(reply[:3])
    found, ranks = read_claim(reply[4:]), reply[3] == 1
    return found._replace(next_due=next_due, next_deadline=next_deadline, next_schedule=next_schedule, ranks=ranks)


def read_counts(reply: list[Any]) -> CountsReply:
    """Parse the reply of `counts`."""
    *numbers, meta = reply
    fields = {
        name: value.decode(errors="replace") for name, value in zip(META_FIELDS, meta, strict=True) if value is not None
    }
    return CountsReply._make([*read_numbers(numbers), fields])


def read_get(reply: list[Any]) -> GetReply | None:
    """Parse the reply of `get`; None for an unknown id."""
    if not reply:
        return None
    payload, pending, unack, left, record, headers, attributes, error, entry, dead, kept_until, result, now = reply
    return GetReply(
        payload,
        pending=time_text(pending),
        unack=time_text(unack),
        retries_left=number_text(left),
        record=record.decode("utf-8", "replace"),
        headers=headers,
        attributes=attributes,
        error=error.decode(errors="replace"),
        entry=shown_id(entry),
        dead=dead,
        kept_until=time_text(kept_until),
        result=result,
        now=now,
    )


def read_page(reply: list[Any]) -> PageReply:
    """Parse the reply of `page`."""
    cursor, score, rows, inspected = reply
    return PageReply(_any_id(cursor), score.decode(), [_read_row(row) for row in rows], inspected)


def _read_row(row: list[Any]) -> MessageRow:
    id, at, payload, size, left, record, headers, attributes, error = row
    texts = (number_text(left), record.decode("utf-8", "replace"))
    error_text = error.decode("utf-8", "replace")
    return MessageRow(shown_id(id), time_text(at), payload, size, *texts, headers, attributes, error_text)


def pairs(reply: Any) -> dict[bytes, Any]:
    """Return a reply of pairs as a mapping, which it already is in Redis' newer protocol (RESP3)."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
