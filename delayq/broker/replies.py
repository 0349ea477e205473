"""What the scripts answer, as values: the other half of `calls`."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from delayq.errors import NotReplicatedError, OutcomeUnknown


class Delivery(msgspec.Struct, gc=False):
    """A message as it was claimed; `due` in milliseconds since 1970.

    There may be many at a time, so they are no concern of the garbage collector's: they refer to nothing.
    """

    id: str
    token: int
    payload: bytes
    retries_left: int
    due: int
    attempt: int
    headers: bytes


class Claimed(NamedTuple):
    """What a claim brought: server time and lease deadline (ms), entries left behind, and the deliveries."""

    now: int
    deadline: int
    left: int
    deliveries: list[Delivery]


class Promoted(NamedTuple):
    """What a promotion moved and what it saw: next due and deadline (ms, -1 for none), waiting and spent ids."""

    moved: int
    next_due: int
    next_deadline: int
    waiting: int
    garbage: int
    now: int
    next_schedule: int = -1
    """When the next schedule occurs (ms, -1 for never)."""


class Expired(NamedTuple):
    """What passed its time: ids to be retried, ids whose retries are spent, and the next deadline (ms or -1)."""

    retried: int
    spent: int
    next_deadline: int


class Collected(NamedTuple):
    """What garbage collection did: ids moved to the dead letter, entries trimmed there, ids still to collect."""

    collected: int
    trimmed: int
    left: int


class Row(NamedTuple):
    """One message of a listing, as stored."""

    id: str
    score: str
    payload: bytes
    size: int
    retries_left: str
    record: str
    headers: bytes
    error: str


class Listed(NamedTuple):
    """A page of a listing and where the next one begins ('' at the end)."""

    cursor: str
    score: str
    rows: list[Row]


class Living(NamedTuple):
    """A page of living messages, column by column as stored; a column is empty if none of them has it."""

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
    errors: list[bytes | None]
    payloads: list[bytes | None]


class Counted(NamedTuple):
    """The state counts of a queue as of one moment, with the fields of its meta hash; times in ms, -1 for none."""

    now: int
    next_due: int
    oldest_ready: int
    next_deadline: int
    pending: int
    ready: int
    active: int
    backoff: int
    retry: int
    garbage: int
    dead: int
    messages: int
    meta: dict[str, str]


class Entry(NamedTuple):
    """An entry of the event log: what one call did to one message or to many; `at` in ms, columns as stored."""

    offset: int
    kind: str
    at: int
    columns: dict[str, bytes]


class Run(NamedTuple):
    """A record of the run ledger; times in ms, `ended` 0 and `epoch` -1 for none."""

    state: str
    started: int
    ended: int
    epoch: int
    new: int
    exists: int
    replaced: int
    running: int
    settled: int
    refused: int


class Found(NamedTuple):
    """All that is stored of one id; empty texts for what is not there."""

    payload: bytes
    pending: str
    unack: str
    retries_left: str
    record: str
    headers: bytes
    error: str
    entry: str
    dead: bytes


def digits(answer: bytes) -> str:
    """Return an answer of one digit an item."""
    if not answer:
        raise OutcomeUnknown("a later call of the same slot has overtaken this one")
    return answer.decode()


def acknowledged(have: int, asked: int) -> int:
    """Return how many replicas have what was written; `NotReplicatedError` if that is fewer than were asked for."""
    if have < asked:
        raise NotReplicatedError(f"stored, but only {have} of {asked} replicas confirmed it in time")
    return have


def integers(answer: bytes) -> tuple[int, ...]:
    """Return an answer of numbers."""
    return tuple(map(int, digits(answer).split()))


def read_claimed(answer: list[Any]) -> Claimed:
    """Return what `ready_to_unack` brought."""
    now, deadline, left, ids, tokens, payloads, retries, dues, attempts, headers = answer
    deliveries = map(
        Delivery,
        map(bytes.decode, ids),
        map(int, tokens),
        payloads,
        [int(left or 0) for left in retries],
        map(int, dues),
        map(int, attempts),
        [top or b"" for top in headers] or [b""] * len(ids),
    )
    return Claimed(now, deadline, left, list(deliveries))


def read_counted(answer: list[Any]) -> Counted:
    """Return what `counts` read."""
    *numbers, meta = answer
    texts = [text.decode() for text in meta]
    return Counted._make([*map(int, numbers), dict(zip(texts[::2], texts[1::2], strict=True))])


def read_found(answer: list[bytes]) -> Found | None:
    """Return what `get` read; None for an unknown id."""
    if not answer:
        return None
    payload, pending, unack, left, record, headers, error, entry, dead = answer
    texts = (pending.decode(), unack.decode(), left.decode(), record.decode())
    return Found(payload, *texts, headers, error.decode(errors="replace"), entry.decode(), dead)


def read_listed(answer: list[Any]) -> Listed:
    """Return what `page` read."""
    cursor, score, rows = answer
    return Listed(
        cursor.decode(),
        score.decode(),
        [
            Row(
                id.decode(),
                at.decode(),
                payload,
                size,
                left.decode(),
                record.decode(),
                headers,
                error.decode("utf-8", "replace"),
            )
            for id, at, payload, size, left, record, headers, error in rows
        ],
    )


def pairs(answer: Any) -> dict[bytes, Any]:
    """Return an answer in pairs, which by Redis' newer protocol is a mapping already."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))


LEAST_TIME = 10**15
"""Offsets below count entries of a log without gaps; above, they hold a time in ms and a number of six digits."""


def offset_of(id: bytes) -> int:
    """Return the place of an entry in the event log as one number: dense ids count from 1."""
    time, _, number = id.partition(b"-")
    return int(number) if time == b"0" else int(time) * 1_000_000 + int(number)


def id_of(offset: int) -> str:
    """Return the id of the entry at an offset."""
    return f"0-{offset}" if offset < LEAST_TIME else f"{offset // 1_000_000}-{offset % 1_000_000}"


def read_entries(answer: list[Any]) -> list[Entry]:
    """Return a range of the event log."""
    return [_read_entry(id, fields) for id, fields in answer]


def read_tail(answer: Any) -> list[Entry]:
    """Return what was waited for at the end of the event log; nothing after a time-out."""
    if not answer:
        return []
    ((_, entries),) = answer.items() if isinstance(answer, dict) else answer
    return read_entries(entries)


def _read_entry(id: bytes, fields: list[bytes]) -> Entry:
    columns = {name.decode(): value for name, value in pairs(fields).items()}
    return Entry(offset_of(id), columns.pop("kind", b"").decode(), int(columns.pop("at", 0)), columns)


def read_run(answer: bytes) -> Run:
    """Return a record of the run ledger."""
    state, *numbers = digits(answer).split()
    return Run(state, *map(int, numbers))


def read_runs(answer: list[bytes] | dict[bytes, bytes]) -> dict[str, Run]:
    """Return the run ledger."""
    return {run.decode(): read_run(record) for run, record in pairs(answer).items()}
