"""The event log as it is stored: its calls, the offsets of its entries, and how these are read."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.replies import integers, pairs
from delayq.broker.requests import RedisCommand, ScriptCall

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


def read_events(calls: Calls, first: int, last: int | None = None, *, limit: int) -> RedisCommand[list[EventEntry]]:
    """Read the event log from offset `first` to `last` (None for the end), both included."""
    span = (id_of(first), "+" if last is None else id_of(last))
    return RedisCommand(("XRANGE", calls.keys.events, *span, "COUNT", limit), read_entries)


def read_events_back(calls: Calls, last: int | None, *, limit: int) -> RedisCommand[list[EventEntry]]:
    """Read the event log backward from offset `last` (None for the end)."""
    start = "+" if last is None else id_of(last)
    return RedisCommand(("XREVRANGE", calls.keys.events, start, "-", "COUNT", limit), read_entries)


def read_last_event(calls: Calls) -> RedisCommand[list[EventEntry]]:
    """Read the last entry of the event log."""
    return read_events_back(calls, None, limit=1)


def await_events(calls: Calls, after: int, *, limit: int, timeout: float) -> RedisCommand[list[EventEntry]]:
    """Wait up to `timeout` seconds for entries of the event log after an offset."""
    block = max(1, int(timeout * 1000))
    stream = ("STREAMS", calls.keys.events, id_of(after))
    return RedisCommand(("XREAD", "COUNT", limit, "BLOCK", block, *stream), read_tail)


def trim_events(calls: Calls, first: int) -> RedisCommand[int]:
    """Delete the entries of the event log before an offset; returns how many."""
    return RedisCommand(("XTRIM", calls.keys.events, "MINID", id_of(first)), int)


def log_action_call(calls: Calls, actor: str, text: str, id: str = "") -> ScriptCall[bool]:
    """Record in the event log, if it is on, what somebody has done to the queue, or to one message."""
    return calls.script("log_action", [calls.now, actor, text, id], lambda reply: integers(reply) == (1,))
