"""Entries of the event log: their offsets, and how they are read."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from delayq.broker.replies.replies import pairs

MIN_TIME_OFFSET = 10**15
"""Smaller offsets count the entries of a log without gaps; larger ones hold a time in ms and a six-digit number."""
_TIME = re.compile(rb"[0-9]{1,14}")


def offset_of(id: bytes) -> int:
    """Return the offset of an entry in the event log; ids without gaps count from 1."""
    time, _, number = id.partition(b"-")
    offset = int(time) * 1_000_000 + min(int(number), 999_999)  # what is larger, another program has added
    return int(number) if time == b"0" else max(offset, MIN_TIME_OFFSET)


def id_of(offset: int) -> str:
    """Return the id of the entry at an offset."""
    return f"0-{offset}" if offset < MIN_TIME_OFFSET else f"{offset // 1_000_000}-{offset % 1_000_000}"


class EventEntry(NamedTuple):
    """An entry of the event log: what one call did to one or more messages; `at` in ms, columns as stored.

    The kind of an entry that another program has added is ''.
    """

    offset: int
    kind: str
    at: int
    columns: dict[str, bytes]


def read_entries(reply: list[Any]) -> list[EventEntry]:
    """Parse a range of the event log."""
    return [_read_entry(id, fields) for id, fields in reply]


def read_tail(reply: Any) -> list[EventEntry]:
    """Parse new entries at the end of the event log; empty after a timeout."""
    if not reply:
        return []
    ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
    return read_entries(entries)


def _read_entry(id: bytes, fields: list[bytes]) -> EventEntry:
    named = pairs(fields)
    kind, at = named.pop(b"kind", b""), named.pop(b"at", b"")
    if not (kind and _TIME.fullmatch(at)):
        return EventEntry(offset_of(id), "", 0, {})
    columns = {name.decode("utf-8", "replace"): value for name, value in named.items()}
    return EventEntry(offset_of(id), kind.decode("utf-8", "replace"), int(at), columns)
