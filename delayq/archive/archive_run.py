"""One run of an archive: batches of the log as files, and the log trimmed behind all archives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Any

import pyarrow as pa

from delayq.archive.archive_files import RECENT, ArchiveFile, Undone, copy_of
from delayq.archive.archive_folder import Folder
from delayq.archive.archive_position import ArchivePosition, Position, archives
from delayq.archive.compaction import DUE_AFTER, compact_if_due
from delayq.archive.log_follower import LogFollower, Offset, begin_of
from delayq.archive.log_gaps import Gap, told
from delayq.archive.log_reader import batches_of, read_bounds
from delayq.broker.event_log import MIN_TIME_OFFSET, trim_events
from delayq.broker.requests import RedisCommand
from delayq.bulk.connection import TargetQueue, calls_of, connect
from delayq.errors import DelayqError, QueueFullError
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic

log = SafeLog("delayq.archive")

SLICE = 1000
"""Entries trimmed per call; each may describe a thousand messages."""
STORE_TIMEOUT = 1.0
"""Seconds for which a full Redis is asked again to store a position."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of one run of an archive; if there was nothing new, offsets are None and counts 0."""

    queue: str
    archive: str
    first: int | None = None
    """The first archived offset."""
    last: int | None = None
    entries: int | None = 0
    """Log entries; None before Redis 7, which does not number them."""
    events: int = 0
    """Rows: one per message and event."""
    batches: int = 0
    trimmed: int = 0
    """Log entries deleted."""
    kept_for: str | None = None
    """The archive, if another one, that is furthest behind and so prevents further trimming."""
    lost: tuple[Gap, ...] = ()
    """What was deleted from the log before this run could read it, as first and last offsets."""
    undone: tuple[Undone, ...] = ()
    """What a crash of the server has undone since it was archived: it was moved out of the archive."""

    def facts(self) -> dict[str, Any]:
        """Return the result for programs, ready for JSON."""
        names = ("archive", "first", "last", "entries", "events", "trimmed")
        facts = {name: getattr(self, name) for name in names}
        return facts | {name: [list(one) for one in getattr(self, name)] for name in ("lost", "undone")}

    def told(self) -> str:
        """Return the result as a sentence."""
        if not self.batches:
            text = f"nothing new for {self.archive}"
        else:
            text = f"archived {self.events:,} events in {self.archive}, offsets {self.first} to {self.last}"
        if self.lost:
            text += f"; the log had lost {told(self.lost)}"
        text += "".join(f"; {one.told()}" for one in self.undone)
        if self.trimmed:
            text += f"; trimmed {self.trimmed:,} entries of the log"
        return f"{text}; the log is kept for the archive {self.kept_for}" if self.kept_for else text


@dataclass
class ArchiveRun:
    """One run of an archive: its progress so far, and what was trimmed."""

    follower: LogFollower
    folder: Folder
    path: str
    """The folder, as it was named."""
    position: Position
    keep: int | None
    """Entries that trimming leaves; None for no trimming."""
    retain: timedelta | None
    on_progress: Callable[[ArchiveResult], object]
    stop: Event
    first: int | None = None
    """The first archived offset."""
    last: int | None = None
    entries: int = 0
    events: int = 0
    batches: int = 0
    trimmed: int = 0
    kept_for: str | None = None
    _compacted: float | None = None

    @property
    def target(self) -> TargetQueue:
        """The queue."""
        return self.follower.target

    @property
    def result(self) -> ArchiveResult:
        """The result so far."""
        dense = self.last is None or self.last < MIN_TIME_OFFSET
        return ArchiveResult(
            queue=self.target.queue,
            archive=self.path,
            first=self.first,
            last=self.last,
            entries=self.entries if dense else None,
            events=self.events,
            batches=self.batches,
            trimmed=self.trimmed,
            kept_for=self.kept_for,
        )

    def catch_up(self, until: int) -> None:
        """Archive what the log has up to an offset, batch by batch; raises `EventsLostError` if it is another log."""
        # A batch that was begun is written again, without a look at whether the log goes on as it did.
        while not self.stop.is_set() and (end := self.position.to or self._begin_batch(until)):
            self._write_batch(end)
            self.save_position(trims=True)
            self.on_progress(self.result)

    def _begin_batch(self, until: int) -> Offset | None:
        """Fix the end of the next batch and return it; None if there is nothing in it."""
        start = self.position.at
        end = self.follower.next_end(start, until)
        if end == start:
            return None
        self._note(self.position._replace(to=end))
        return end

    def _write_batch(self, to: Offset) -> None:
        position = self.position
        after, end = begin_of(position.at, to), int(to["offset"])
        name = f"{RECENT}/part={position.query}-{position.batch + 1}"
        entries = self.follower.entries(after + 1, end, (after + 1, end))
        rows = (pa.Table.from_batches([one]) for one in batches_of(entries))
        written = self.folder.write_by_day(rows, f"{self.folder.root}/{name}", "events.parquet")
        for info in self.folder.listed(f"{self.folder.root}/{name}"):
            self.folder.copy(info.path, copy_of(self.folder.root, ArchiveFile.at(info.path)))
        self._note(position._replace(batch=position.batch + 1, at=to, to=None))
        self.first = after + 1 if self.first is None else self.first
        self.last = end
        self.entries += max(end - after, 0)
        self.events += sum(written)
        self.batches += 1

    def _note(self, position: Position) -> None:
        self.folder.note_position(self.position._asdict(), position._asdict())
        self.position = position

    def compact(self, *, is_due: bool = True) -> None:
        """Merge small files; without success the archive is complete as well, and the next time does it."""
        if not is_due and self._compacted is not None and monotonic() - self._compacted < DUE_AFTER.total_seconds():
            return
        self._compacted = monotonic()
        try:
            compact_if_due(self.path, self.retain)
        except (OSError, pa.ArrowException) as error:
            log.warning("the small files of %s are not merged, for now: %s", self.path, error)

    def save_position(self, *, trims: bool) -> None:
        """Trim what all archives have, and store the archive's progress.

        A full Redis cannot store it, but can trim. Then the position there is an older one, which keeps more.
        """
        executor, calls = connect(self.target), calls_of(self.target)
        known = executor.call(archives(calls.keys))
        name, offset = self.position.query, int(self.position.at["offset"])
        # The same archive, before the log was rolled back.
        former = [one for one, position in known.items() if position.path == self.path and one != name]
        for one in former:
            del known[one]
        known[name] = ArchivePosition(offset, self.path)
        slowest = min(known, key=lambda one: (known[one].offset, one != name))
        if self.keep is not None and trims:
            self.kept_for = None if slowest == name else known[slowest].path
            last = known[slowest].offset
            # The last one of a log that is numbered by time tells that nothing is lost after it.
            self.trimmed += _trim(self.target, last - (self.keep if last < MIN_TIME_OFFSET else max(self.keep, 1)))
        store = RedisCommand(("HSET", calls.keys.archives, name, f"{offset} {self.path}"), bool)
        (stored,) = executor.run([store], deadline=STORE_TIMEOUT)
        if isinstance(stored, QueueFullError):
            log.warning("Redis is full: it does not know yet how far the archive %s is", self.path)
        elif isinstance(stored, DelayqError):
            raise stored
        elif former:
            executor.call(RedisCommand(("HDEL", calls.keys.archives, *former), int))


def _trim(target: TargetQueue, last: int) -> int:
    """Delete the log entries up to an offset, in slices; returns how many."""
    first = read_bounds(target).first
    if first > last:
        return 0
    ends = [*range(first + SLICE, last + 1, SLICE), last + 1] if last < MIN_TIME_OFFSET else [last + 1]
    return sum(connect(target).call(trim_events(calls_of(target), end)) for end in ends)
