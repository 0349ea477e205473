"""Operations on single occurrences of a schedule, and the methods of `queue.schedules` for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from delayq._parity import awaited
from delayq.broker.batches import BATCH, BATCH_BYTES, batched
from delayq.broker.context import QueueContext
from delayq.broker.requests import Outgoing
from delayq.broker.transport.operation import Operation, Wait
from delayq.errors import ConfigurationError, UnknownScheduleError
from delayq.queue.scheduling.schedule_history import ScheduleHistory, history
from delayq.queue.sending.producer import Producer
from delayq.queue.sweeps.cancellation import cancel, reschedule
from delayq.schedules.calls import SchedulePut, StoredSchedule
from delayq.schedules.definition import check_schedule, unpack
from delayq.schedules.messages import message_headers, occurrence_id
from delayq.schedules.occurrences import (
    Backfill,
    OccurrenceChange,
    OccurrenceOutcome,
    OccurrencePlan,
    local_time,
    plan_move,
    plan_restore,
    plan_skip,
)
from delayq.schedules.recurring.timetable import MAX_FIRED, Timetable
from delayq.schedules.store import read_one, update
from delayq.values.checks import check_int
from delayq.values.times import timestamp

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

MAX_BACKFILL = 10_000
"""Occurrences that a backfill sends at most, unless it is given a `limit`."""
MAX_LIMIT = 1_000_000


def backfill(
    context: QueueContext,
    producer: Producer,
    name: str,
    start: datetime,
    end: datetime,
    *,
    limit: int,
    dry_run: bool,
) -> Operation[Backfill]:
    """Send the messages of past occurrences."""
    since, until = timestamp(start, "start"), timestamp(end, "end")
    if until < since:
        raise ConfigurationError("end is before start")
    check_int(limit, "limit", 1, MAX_LIMIT)
    stored, now = yield from read_one(context, check_schedule(name))
    if stored is None:
        raise _unknown(name)
    definition, payload = unpack(stored.spec)
    # What is due and not yet fired is left to the consumers: a message that is settled before they fire it comes twice.
    until = min(until, now + 1) if stored.next is None else min(until, now + 1, stored.next)
    times = yield from _between(definition.timetable, since, until, limit)
    headers, origin, sent = message_headers(name, definition), definition.rule.origin, 0
    for batch in batched([] if dry_run else times, max(1, min(BATCH, BATCH_BYTES // max(1, len(payload))))):
        messages = [
            Outgoing(occurrence_id(name, origin(time)), f"@{time}", definition.retries, payload, headers)
            for time in batch
        ]
        results = yield from producer.send(messages)
        sent += sum(result.new for result in results)
    existed = 0 if dry_run else len(times) - sent
    return Backfill([local_time(time, definition) for time in times], sent, existed)


def _between(timetable: Timetable, since: int, until: int, limit: int) -> Operation[list[int]]:
    """Return the occurrences from the first time on and before the second, at most `limit`."""
    times: list[int] = []
    at = timetable.after(since - 1)
    while at is not None and at < until:
        if len(times) == limit:
            raise ConfigurationError(f"more than {limit:,} occurrences: shorten the time, or raise the limit")
        times.append(at)
        if len(times) % MAX_FIRED == 0:
            yield Wait(0)  # an event loop has other things to do
        at = timetable.after(at)
    return times


def _unknown(name: str) -> UnknownScheduleError:
    return UnknownScheduleError(f"no schedule is named {name}")


def change(
    context: QueueContext,
    name: str,
    make_plan: Callable[[StoredSchedule, int], OccurrencePlan],
    act: Callable[[str], Operation[str]],
    to: datetime | None = None,
) -> Operation[list[OccurrenceChange]]:
    """Change occurrences of a schedule as planned, and act on the messages of those that have fired."""
    plans: list[OccurrencePlan] = []

    def row(stored: StoredSchedule, now: int) -> SchedulePut | None:
        plans.append(make_plan(stored, now))  # again if a consumer fires it meanwhile
        return plans[-1].row

    if (yield from update(context, check_schedule(name), row)) is None:
        raise _unknown(name)
    definition, _, outcomes, fired = plans[-1]
    dues: dict[int, datetime | None] = {}
    for origin in [*outcomes, *fired]:
        due = definition.rule.due(origin)
        dues[origin] = local_time(due, definition) if due else None
    for origin in fired:
        outcome = yield from act(occurrence_id(name, origin))
        outcomes[origin] = OccurrenceOutcome(outcome) if outcome != "gone" else OccurrenceOutcome.OVER
        if outcomes[origin] in (OccurrenceOutcome.CANCELLED, OccurrenceOutcome.RESCHEDULED):
            dues[origin] = None if to is None else to.astimezone(ZoneInfo(definition.tz))
    return [OccurrenceChange(local_time(origin, definition), dues[origin], outcomes[origin]) for origin in sorted(dues)]


class ScheduleOccurrences:
    """The methods of `Schedules` for single occurrences."""

    _context: QueueContext
    _producer: Producer
    _executor: Executor

    def backfill(
        self, name: str, start: datetime, end: datetime, *, limit: int = MAX_BACKFILL, dry_run: bool = False
    ) -> Backfill:
        """Send a message for each past occurrence from `start` on and before `end`, such as those of a downtime.

        Each message has the id and the due time of its occurrence: if the queue has a message with this id, or has
        settled one within its `dedupe_window`, nothing is sent, so it is safe to repeat. The schedule does not change,
        and its `count` does not count them. Ends before the next occurrence, which the schedule fires itself.

        Raises `ConfigurationError` and sends nothing if there are more than `limit` (up to a million), and
        `UnknownScheduleError` if no schedule has this name. With `dry_run` it sends nothing.
        """
        operation = backfill(self._context, self._producer, name, start, end, limit=limit, dry_run=dry_run)
        return self._executor.perform(operation, writes=True)

    def skip(self, name: str, occurrence: date) -> list[OccurrenceChange]:
        """Skip the occurrence at a time (an aware datetime), or all that are due on a date in the schedule's zone.

        A skipped occurrence does not fire and counts for nothing. If it has fired and its message still waits, that is
        cancelled. Returns what became of each. A time at which it occurs also names it once it is moved. Safe to
        repeat.

        Raises `UnknownOccurrenceError`, which names the nearest occurrences, if there is none, and
        `UnknownScheduleError` if no schedule has this name. A schedule may have 1,000 skipped and moved occurrences.
        """
        make_plan = partial(plan_skip, when=occurrence)
        return self._executor.perform(change(self._context, name, make_plan, partial(cancel, self._context)))

    def move(self, name: str, occurrence: datetime, to: datetime) -> OccurrenceChange:
        """Move the occurrence at a time to another time, which must not have passed; see `skip`.

        Its message keeps the id with the time of the rule, and is due at the new time. If it has fired and its message
        still waits, that is rescheduled. If another occurrence is due at the new time, it is due a millisecond later.
        """
        make_plan = partial(plan_move, occurrence=occurrence, to=to)
        act = partial(reschedule, self._context, delay=None, at=to)
        return self._executor.perform(_first(change(self._context, name, make_plan, act, to)))

    def restore(self, name: str, occurrence: date) -> list[OccurrenceChange]:
        """Take back that occurrences are skipped or moved, at a time or on a date: they occur as the rule says.

        Those whose own time has passed do not change. Otherwise like `skip`.
        """
        make_plan = partial(plan_restore, when=occurrence)
        return self._executor.perform(change(self._context, name, make_plan, partial(cancel, self._context)))

    def history(self, name: str, *, limit: int = 20) -> ScheduleHistory:
        """Read from the event log what became of the latest occurrences that have fired, newest first (up to 1,000).

        Reads at most ten thousand entries of the log, back from its end, and says how far it has read. Occurrences that
        were skipped or missed have no messages, so they are not in the log. The log must be on (`events=True`).
        """
        return self._executor.perform(history(self._context, name, limit))


def _first(operation: Operation[list[OccurrenceChange]]) -> Operation[OccurrenceChange]:
    (found,) = yield from operation
    return found


class AsyncScheduleOccurrences:
    """The methods of `AsyncSchedules` for single occurrences."""

    _context: QueueContext
    _producer: Producer
    _executor: AsyncExecutor

    backfill = awaited(ScheduleOccurrences.backfill)
    skip = awaited(ScheduleOccurrences.skip)
    move = awaited(ScheduleOccurrences.move)
    restore = awaited(ScheduleOccurrences.restore)
    history = awaited(ScheduleOccurrences.history)
