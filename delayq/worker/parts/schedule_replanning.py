"""Plans the schedules of a queue anew, for a consumer: with newer time zone data, or after the clock was set back.

A schedule that fired while the clock of the server was ahead would occur next at a time that is far away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from delayq.errors import DelayqError
from delayq.safe_log import SafeLog
from delayq.schedules.calls import SchedulePage, SchedulePut, note_schedules, schedule_put_call, schedules_page_call
from delayq.schedules.definition import CLOCK_STEP
from delayq.schedules.recurring.zone_data import zone_release
from delayq.schedules.store import BATCH, moves, older_zones
from delayq.values.text import pluralize
from delayq.worker.parts.part import Call

log = SafeLog("delayq.schedules")

CHECK_EVERY = 60.0
"""Seconds between two looks."""


class ScheduleReplanner:
    """Looks whether the schedules must be planned anew, and goes through all of them. Times are local, in seconds."""

    def __init__(self, calls: Any) -> None:
        """Start without a look; `begin` sets the time of the first."""
        self._calls = calls
        self._zones = zone_release()
        self._noted_zones = self._zones
        self._moved = 0
        self._now = 0.0
        self._check_at = math.inf
        self._cursor: str | None = None
        """The page to read next, while schedules are planned anew."""
        self._rows: list[SchedulePut] = []
        self._seen_at: int | None = None
        """The server's time (ms) when the last page was read, until that is noted."""

    @property
    def next_at(self) -> float:
        """When there is something to do next."""
        return -math.inf if self._rows or self._cursor is not None or self._seen_at is not None else self._check_at

    def begin(self, now: float) -> None:
        """Look for the first time a while from now."""
        self._check_at = min(self._check_at, now + CHECK_EVERY)

    def plan(self, now: float) -> Iterator[Call]:
        """Yield the calls of a turn; after an error the next look tries again."""
        self._now = now
        if self._rows:
            yield schedule_put_call(self._calls, self._rows), self.on_put
        elif self._cursor is not None:
            yield schedules_page_call(self._calls, cursor=self._cursor, limit=BATCH), self.on_page
        elif self._seen_at is not None:
            yield note_schedules(self._calls, self._seen_at, zones=self._zones), self.on_noted
        elif now >= self._check_at:
            yield schedules_page_call(self._calls, limit=1), self.on_checked

    def on_checked(self, reply: SchedulePage | DelayqError) -> None:
        """Begin if schedules were written at a time that has not come yet, or planned with older time zone data."""
        self._check_at = self._now + CHECK_EVERY
        if isinstance(reply, DelayqError):
            return
        known, self._noted_zones = self._noted_zones, reply.zones
        if reply.latest > reply.now + CLOCK_STEP:
            log.warning("the clock of Redis was set back: planning the schedules anew")
            self._cursor, self._moved = "0", 0
        elif self._zones > reply.zones:
            text = "time zone data %s, before %s: planning the schedules anew"
            log.info(text, self._zones, reply.zones or "unknown")
            self._cursor, self._moved = "0", 0
        elif self._zones and known != reply.zones > self._zones:
            log.warning("%s", older_zones(self._zones, reply.zones))

    def on_page(self, reply: SchedulePage | DelayqError) -> None:
        """Work out what has moved on a page."""
        if isinstance(reply, DelayqError):
            self._cursor = None
            return
        self._rows = moves(reply)
        self._cursor = None if reply.cursor == "0" else reply.cursor
        self._seen_at = reply.now if self._cursor is None else None

    def on_put(self, reply: str | DelayqError) -> None:
        """Go on: a schedule that has changed meanwhile is up to date."""
        self._rows = []
        if not isinstance(reply, DelayqError):
            self._moved += reply.count("1")
        if isinstance(reply, DelayqError):
            self._cursor = self._seen_at = None

    def on_noted(self, _: DelayqError | None) -> None:
        """End, so that the next look finds nothing to do."""
        self._seen_at = None
        if self._moved:
            log.warning("planned anew: %s moved", pluralize(self._moved, "schedule"))
