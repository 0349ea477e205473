"""The calls of a delay queue about who consumes it, and what they have done."""

from __future__ import annotations

from typing import Any, NamedTuple

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.replies.history_records import KEPT_HOURS, HourCounts, read_counts, write_counts
from delayq.broker.replies.replies import integers
from delayq.broker.replies.worker_entries import BEATS, WorkerEntry, read_entry, write_entry
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.values.times import LATEST

SILENT_KEPT = 3_600_000
"""Milliseconds for which the entry of a silent worker is kept: who it was, and what it held."""


class StoredWorker(NamedTuple):
    """What a consumer has told of itself, and until when that counts (ms)."""

    consumer_id: str
    ends: int
    entry: WorkerEntry


class WorkersPage(NamedTuple):
    """A page of consumers, the server's time (ms), and the cursor of the next page ('0' at the end)."""

    now: int
    cursor: str
    workers: list[StoredWorker]


class HoursReply(NamedTuple):
    """What was counted in some hours, the latest first, None for nothing, and the server's time (ms)."""

    now: int
    hours: list[HourCounts | None]
    total: HourCounts
    """What was ever counted, also in hours that are not kept any more."""


class WorkerCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def beat(self, consumer_id: str, entry: WorkerEntry | None, counted: HourCounts | None = None) -> ScriptCall[int]:
        """Store what a consumer tells of itself, None when it stops; returns how many entries were removed.

        What it has counted is added to the record of the hour and to the total.
        """
        told = (0, SILENT_KEPT, "") if entry is None else (BEATS * entry.every, SILENT_KEPT, write_entry(entry))
        counts = "" if counted is None else write_counts(counted)
        args = [self._now, consumer_id, *told, KEPT_HOURS, counts]
        return self._call("beat", args, lambda reply: integers(reply)[0])

    def history(self, *, limit: int, last: int | None = None) -> ScriptCall[HoursReply]:
        """Read what was counted in up to a thousand hours up to `last` (hours since 1970), None for the current one."""
        return self._call("history", [self._now, "" if last is None else last, limit], _read_hours)

    def counted(self) -> RedisCommand[HourCounts]:
        """Read what was ever counted, at the cost of one plain command."""
        return RedisCommand(("HGET", self.keys.history, "total"), _read_total)

    def workers_page(self, cursor: str, *, limit: int) -> ScriptCall[WorkersPage]:
        """Read a page of the consumers."""
        return self._call("workers_page", [self._now, cursor, limit], _read_page)


def _read_page(reply: list[Any]) -> WorkersPage:
    now, cursor, *cells = reply
    rows = zip(cells[::3], map(float, cells[1::3]), map(read_entry, cells[2::3]), strict=True)
    found = [
        StoredWorker(id.decode(errors="replace"), int(ends), entry)
        for id, ends, entry in rows
        if entry is not None and 0 <= ends <= LATEST
    ]
    return WorkersPage(now, cursor.decode(), found)


def _read_hours(reply: list[Any]) -> HoursReply:
    now, texts = reply
    total, *hours = texts
    return HoursReply(now, [read_counts(text) if text else None for text in hours], _read_total(total))


def _read_total(text: bytes | None) -> HourCounts:
    return (read_counts(text) if text else None) or HourCounts()
