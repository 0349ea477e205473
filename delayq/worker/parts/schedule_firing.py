"""Fires the schedules of a queue for a consumer: reads due schedules in one turn and fires them in the next.

Every consumer does this. The script alone decides which of them stores an occurrence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from delayq.broker.foreign import shown_id
from delayq.broker.replies import ClaimReply, PromoteReply
from delayq.broker.scripts import MAX_IDS
from delayq.errors import DelayqError
from delayq.options import Settings
from delayq.safe_log import SafeLog
from delayq.schedules.calls import DueSchedules, ScheduleFire, fire_call, schedules_due_call
from delayq.worker.parts.part import ERROR_WAIT, Call, LoopPart, Stage, Turns

if TYPE_CHECKING:
    from delayq.schedules.recurring.timetable import DueOccurrences

log = SafeLog("delayq.schedules")

FIRE_AHEAD = 250
"""Milliseconds by which an occurrence is fired early, so that its message is stored when it is due.

Enough for 5,000 that are due together: firing 200 takes up to 10 ms."""
MAX_SCHEDULES = 200
"""Schedules read at a time: finding their next occurrences takes some milliseconds."""
MAX_BYTES = 1 << 20
"""Bytes of definitions and payloads read at a time."""
EARLY_RETRY = 0.005
"""Seconds until the next poll after one that was too early: clocks differ by a little."""
HELD_WAIT = 0.2
"""Seconds until the next try after all due schedules wait for the end of a message: others still fire ahead of time."""
_OVERLAPS = "schedule %s: an occurrence is skipped, as the message of the one before has not ended"


class ScheduleFirer(LoopPart):
    """What a consumer knows of the schedules of its queue. A failing schedule does not stop its other work."""

    stage = Stage.FEED
    takes_errors = True

    def __init__(self, calls: Any, settings: Settings, tick: float) -> None:
        """Start without schedules; those that cannot be fired here are read again once per `tick`."""
        # Slow to import, and most senders have no schedules. Not later, in the consumer's thread: see `scripts._read`.
        from delayq.schedules.messages import firing
        from delayq.worker.parts.schedule_replanning import ScheduleReplanner

        self._firing = firing
        self._replanner = ScheduleReplanner(calls)
        self._calls = calls
        self._settings = settings
        self._tick = tick
        self.deciders: Sequence[Callable[[ScheduleFire], ScheduleFire]] = ()
        """Who decides what is fired: then one occurrence at a time, since each has a payload of its own."""
        self.occurs_at: float | None = None
        """When the next schedule occurs; None for never."""
        self._wait_until = 0.0
        self._to_fire: list[tuple[ScheduleFire, DueOccurrences]] = []
        self._complete = True
        self._skipped = 0
        self._reported: dict[str, str] = {}
        self._last_error = ""
        self._now = 0.0

    def connect(self, turns: Turns) -> None:
        """Learn to what loop it belongs."""
        self._local = turns.local

    def on_promoted(self, promoted: PromoteReply) -> None:
        """Learn when the next schedule occurs."""
        self.occurs_at = self._local(promoted.next_schedule)

    def on_due_claimed(self, claimed: ClaimReply) -> None:
        """Learn when the next schedule occurs."""
        self.occurs_at = self._local(claimed.next_schedule)

    def next_at(self, _: float) -> float:
        """Return when there is something to do next."""
        fires_at = self._fires_at
        return math.inf if fires_at is None else min(fires_at, self._replanner.next_at)

    @property
    def _fires_at(self) -> float | None:
        if self._to_fire or not self._complete:
            return self._wait_until
        return None if self.occurs_at is None else max(self.occurs_at - FIRE_AHEAD / 1000, self._wait_until)

    def plan(self, now: float) -> Iterator[Call]:
        """Yield the calls of a turn."""
        self._now = now
        self._replanner.begin(now)
        at = self._fires_at
        if at is not None:
            yield from self._replanner.plan(now)
        if at is None or at > now:
            return
        if self._to_fire:
            yield fire_call(self._calls, [row for row, _ in self._to_fire]), self.on_fired
        if not self._to_fire or not self._complete:
            options = {"ahead": FIRE_AHEAD, "offset": self._skipped, "limit": MAX_SCHEDULES, "byte_limit": MAX_BYTES}
            yield schedules_due_call(self._calls, **options), self.on_due

    def on_fired(self, reply: str | DelayqError) -> None:
        """Handle the reply to `fire`: which schedules this consumer has fired, and which others have."""
        rows, self._to_fire = self._to_fire, []
        if isinstance(reply, DelayqError):
            self._on_error(reply)
            return
        self._last_error = ""
        held = reply.count("2")
        if held and not self._complete:  # they stay at the front, like those that cannot be fired
            self._skipped += held
        elif held == len(rows):
            self._wait_until = self._now + HELD_WAIT
        for (row, taken), status in zip(rows, reply, strict=True):
            if status == "3":
                log.info(_OVERLAPS, row.name, extra={"schedule": row.name})
            if status == "1" and taken.missed:
                text = "schedule %s: occurrences were missed, catching up with %d"
                log.warning(text, row.name, len(taken.times), extra={"schedule": row.name})

    def on_due(self, reply: DueSchedules | DelayqError) -> None:
        """Handle the reply to `schedules_due`: work out what the due schedules fire."""
        if isinstance(reply, DelayqError):
            self._complete, self._skipped = True, 0
            self._on_error(reply)
            return

        size, failed = 0, 0
        self._complete = reply.complete
        for schedule in reply.schedules:
            try:
                most = 1 if self.deciders else None
                row, taken = self._firing(schedule, reply.now, self._settings, ahead=FIRE_AHEAD, most=most)
                for decide in self.deciders if row.occurrences else ():
                    row = decide(row)
                    if not row.occurrences:
                        break
            except Exception as error:  # noqa: BLE001 - another program may have stored anything
                failed += 1
                if self._reported.get(schedule.name) != schedule.revision:
                    self._reported[schedule.name] = schedule.revision
                    text = "schedule %s cannot be fired here: %s"
                    name = shown_id(schedule.name)
                    log.error(text, name, error, extra={"schedule": name})  # noqa: TRY400 - one line
                continue
            size += len(taken.times)
            if self._to_fire and size > MAX_IDS:
                self._complete = False
                break
            self._to_fire.append((row, taken))
        # Schedules that cannot be fired stay at the front, and are skipped when the next ones are read.
        self._skipped = 0 if self._complete else self._skipped + failed
        if self._complete and not self._to_fire:
            self._wait_until = self._now + (self._tick if failed else EARLY_RETRY)

    def _on_error(self, error: DelayqError) -> None:
        self._wait_until = self._now + ERROR_WAIT
        if str(error) != self._last_error:
            self._last_error = str(error)
            log.error("Redis refused to fire schedules, retrying every %g s: %s", ERROR_WAIT, error)
