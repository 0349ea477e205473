"""Follows an event log in batches: where the next one ends, and what to do if entries are lost or are others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from delayq.archive.log_marks import LogBounds, offset_before, read_mark
from delayq.archive.log_reader import events_of, loss_between, pages, read_bounds
from delayq.broker.event_log import MIN_TIME_OFFSET, EventEntry
from delayq.broker.scripts import MAX_IDS
from delayq.bulk.connection import TargetQueue
from delayq.errors import ConfigurationError, EventsLostError
from delayq.safe_log import SafeLog

log = SafeLog("delayq.spark")

Offset = dict[str, Any]
"""How far a log was read: the queue, the offset of the last entry read, and what marks this entry.

The end of a batch has `after`, too, if the batch begins elsewhere than after the one before it.
"""


def begin_of(start: Offset, end: Offset) -> int:
    """Return the offset after which a batch begins whose end is known, and that of the batch before it."""
    return int(end["after"] if "after" in end else start["offset"])


@dataclass(frozen=True, slots=True)
class LogFollower:
    """Which batches to read of an event log."""

    target: TargetQueue
    max_entries: int
    max_events: int | None
    """Events in a batch, but for an entry that has more; None for no limit."""
    fail_on_data_loss: bool
    fail_on_rollback: bool
    """Whether a log that was deleted or rolled back is an error; else some entries before it are read again."""

    def offset(self, offset: int) -> Offset:
        """Return how far a log was read whose last entry that was read has this offset."""
        # Spark compares offsets as JSON text, so the order of the keys matters.
        mark = read_mark(self.target, offset)
        return {"queue": self.target.queue, "offset": offset} | ({"entry": mark} if mark else {})

    def next_end(self, start: Offset, until: int | None = None) -> Offset:
        """Return the end of the batch after `start`, at most at `until`; `start` itself if there is nothing."""
        while True:
            bounds = read_bounds(self.target)
            after = self.resume(start, bounds)
            last = bounds.last if until is None else min(until, bounds.last)
            if last <= after:
                return start
            end = self.offset(self._limited(after, last))
            if after < start["offset"]:
                end["after"] = after
            # The end may be of a log that was rolled back after the check of the start.
            if after != start["offset"] or not self._is_other(start):
                return end

    def resume(self, start: Offset, bounds: LogBounds) -> int:
        """Return the offset after which to continue; it differs from `start` if entries there are lost.

        Raises `EventsLostError` if they are and that is an error, `ConfigurationError` if `start` is of another queue.
        """
        queue, after = start["queue"], int(start["offset"])
        if queue != self.target.queue:
            raise ConfigurationError(
                f"the checkpoint belongs to queue {queue!r}, not to {self.target.queue!r}: give each its own"
            )
        if bounds.last < after:
            return self._restart(
                f"was deleted or rolled back: it ends at offset {bounds.last}, but the query has read up to {after}",
                start,
                bounds,
            )
        if self._is_other(start):
            return self._restart(f"was rolled back: offset {after} has another entry than was read", start, bounds)
        first = bounds.first
        if first > after + 1 and (after or bounds.last < MIN_TIME_OFFSET):
            self.report_loss(after + 1, first - 1)
            return first - 1
        return after

    def entries(self, low: int, high: int, batch: tuple[int, int]) -> Iterator[EventEntry]:
        """Read a range of a batch, both ends inclusive; raises `EventsLostError` if entries are missing."""
        count = 0
        for page in pages(self.target, low, high):
            count += len(page)
            yield from page
        if count <= high - low and high < MIN_TIME_OFFSET:
            # The error of the first task ends a query, so it tells what is lost for all of them.
            self.report_loss(*(batch if self.fail_on_data_loss else (low, high)))

    def report_loss(self, low: int, high: int) -> None:
        """Raise or log which entries of a range are gone; all of what was trimmed since, even beyond the range."""
        if self.fail_on_data_loss and high < MIN_TIME_OFFSET:
            high = max(high, read_bounds(self.target).first - 1)
        text = loss_between(self.target, low, high)
        if self.fail_on_data_loss:
            raise EventsLostError(
                f"{text}; continue without them with --allow-loss (in code: failOnDataLoss=false), and keep more with a"
                " larger events_max_len"
            )
        log.warning("%s; continuing without them", text)

    def _is_other(self, start: Offset) -> bool:
        """Return whether the log has another entry at an offset than was read there; not if it was deleted since."""
        known = start.get("entry")
        mark = known and read_mark(self.target, int(start["offset"]))
        return bool(mark and mark != known)

    def _restart(self, what: str, start: Offset, bounds: LogBounds) -> int:
        """Return the offset before all that may be new in a log that is not the one that was read."""
        text = f"the event log of queue {self.target.queue!r} {what}"
        if self.fail_on_rollback:
            raise EventsLostError(
                f"{text}; go on in it with failOnRollback=false, which may repeat entries of the last seconds"
            )
        log.warning("%s; going back, so entries may be repeated", text)
        return offset_before(self.target, bounds, start.get("entry"))

    def _limited(self, after: int, last: int) -> int:
        """Return where a batch after an offset ends, `last` at most: by its entries, and by the events they have."""
        if last < MIN_TIME_OFFSET:
            last = min(last, after + self.max_entries)
            if self.max_events is None or (last - after) * MAX_IDS <= self.max_events:
                return last
        events = 0
        for number, entry in enumerate(chain.from_iterable(pages(self.target, after + 1, last))):
            events += events_of(entry)
            if number == self.max_entries or (number and self.max_events is not None and events > self.max_events):
                return after
            after = entry.offset
        return last
