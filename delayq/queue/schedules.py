"""`queue.schedules`: adds, lists, pauses and removes schedules, which send a message again and again.

Schedules are stored in Redis. The consumers of the queue fire them, each occurrence once: see `worker.schedule_firing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack
from zoneinfo import ZoneInfo

from delayq._parity import awaited
from delayq.broker.context import QueueContext
from delayq.broker.ids import new_id
from delayq.broker.replies import StoredSchedule
from delayq.broker.requests import Outgoing
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, UnknownScheduleError, short_repr
from delayq.options import check_int
from delayq.queue.handlers import HandlerRegistry
from delayq.queue.producer import Producer, Sent
from delayq.schedules.definition import (
    Schedule,
    TimedOptions,
    check_schedule,
    make_schedule,
    message_headers,
    pack,
    unpack,
)
from delayq.schedules.info import Applied, ScheduleInfo, describe
from delayq.schedules.store import ScheduleOutcome, pause, put, read_all, read_one, remove, resume, update
from delayq.schedules.timetable import MAX_FIRED
from delayq.times import from_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

Times = list[datetime]


class _ScheduleOperations:
    """The operations on the schedules of a queue."""

    def __init__(self, context: QueueContext, producer: Producer, handlers: HandlerRegistry, executor: Any) -> None:
        """Work on the schedules of the queue of `context`; `handlers` has those that the program declares."""
        self._context = context
        self._producer = producer
        self._handlers = handlers
        self._executor = executor

    def _pack(self, schedule: Schedule, *, declared: bool = False) -> bytes:
        if not isinstance(schedule, Schedule):
            raise ConfigurationError(f"schedules must be Schedule objects, not {short_repr(schedule)}")
        return pack(schedule, self._context.settings, self._producer.encode, declared=declared)

    def _add(self, schedule: Schedule) -> Operation[ScheduleOutcome]:
        outcomes = yield from put(self._context, {schedule.name: self._pack(schedule)})
        return outcomes[schedule.name]

    def _add_many(self, schedules: Iterable[Schedule]) -> Operation[dict[str, ScheduleOutcome]]:
        specs: dict[str, bytes] = {}
        for schedule in schedules:
            spec = self._pack(schedule)
            if schedule.name in specs:
                raise ConfigurationError(f"two schedules are named {schedule.name}: give one of them another name")
            specs[schedule.name] = spec
        return (yield from put(self._context, specs))

    def _list(self) -> Operation[list[ScheduleInfo]]:
        found = yield from read_all(self._context)
        return [describe(found[name], self._context.decode) for name in sorted(found)]

    def _get(self, name: str) -> Operation[ScheduleInfo | None]:
        stored, _ = yield from read_one(self._context, check_schedule(name))
        return None if stored is None else describe(stored, self._context.decode)

    def _update(self, name: str, change: Any) -> Operation[None]:
        if (yield from update(self._context, check_schedule(name), change)) is None:
            raise _unknown(name)

    def _remove(self, name: str) -> Operation[bool]:
        return bool((yield from remove(self._context, [check_schedule(name)])))

    def _stored(self, name: str) -> Operation[StoredSchedule]:
        stored, _ = yield from read_one(self._context, check_schedule(name))
        if stored is None:
            raise _unknown(name)
        return stored

    def _run_now(self, name: str) -> Operation[Sent]:
        stored = yield from self._stored(name)
        definition, payload = unpack(stored.spec)
        headers = message_headers(name, definition)
        outgoing = Outgoing(f"{name}@now:{new_id()}", 0, definition.retries, payload, headers)
        (sent,) = yield from self._producer.send([outgoing])
        return sent

    def _next(self, name: str, n: int) -> Operation[list[datetime]]:
        check_int(n, "n", 1, MAX_FIRED)
        stored = yield from self._stored(name)
        definition, _ = unpack(stored.spec)
        zone = ZoneInfo(definition.tz)
        times = definition.timetable.upcoming(stored.next, n, stored.fired)
        return [from_millis(time).astimezone(zone) for time in times]

    def _apply(self, *, prune: bool) -> Operation[Applied]:
        declared = self._handlers.declared
        outcomes = yield from self._handlers.put_declared(self._context)
        removed: list[str] = []
        if prune:
            found = yield from read_all(self._context)
            gone = [name for name in found if name not in declared and _was_declared(found[name])]
            removed = yield from remove(self._context, sorted(gone))
        return Applied(outcomes, removed)


def _unknown(name: str) -> UnknownScheduleError:
    return UnknownScheduleError(f"no schedule is named {name}")


def _was_declared(stored: StoredSchedule) -> bool:
    try:
        return unpack(stored.spec).definition.declared
    except ConfigurationError:
        return False


class Schedules(_ScheduleOperations):
    """The schedules of a `DelayQueue`, as `queue.schedules`."""

    _executor: Executor

    def add(self, name: str, **options: Unpack[TimedOptions]) -> ScheduleOutcome:
        """Add a schedule: with `cron` and its `tz`, or with `every`, and the options of `ScheduleOptions`.

        If a schedule with this name exists and is the same, nothing changes. If it differs, this one replaces it: it
        stays paused if it was, keeps the count of what it has fired, and fires no occurrence twice. An occurrence that
        is due and not yet fired stays due. Atomic.
        """
        return self._executor.perform(self._add(make_schedule(name, options)), writes=True)

    def add_many(self, schedules: Iterable[Schedule]) -> dict[str, ScheduleOutcome]:
        """Add many schedules in few round trips, each like `add`; all are checked before the first is stored."""
        return self._executor.perform(self._add_many(schedules), writes=True)

    def list(self) -> list[ScheduleInfo]:
        """Read all schedules, sorted by name."""
        return self._executor.perform(self._list())

    def get(self, name: str) -> ScheduleInfo | None:
        """Read a schedule; None if no schedule has this name."""
        return self._executor.perform(self._get(name))

    def pause(self, name: str) -> None:
        """Stop a schedule from firing until it is resumed. Does nothing if it is paused already.

        Occurrences are fired up to 100 ms early, as messages that are due at their time. A message that was fired
        before the pause is still delivered. Raises `UnknownScheduleError` if no schedule has this name.
        """
        return self._executor.perform(self._update(name, pause))

    def resume(self, name: str) -> None:
        """Continue a paused schedule from now on; occurrences during the pause are not fired.

        Raises `UnknownScheduleError` if no schedule has this name.
        """
        return self._executor.perform(self._update(name, resume))

    def remove(self, name: str) -> bool:
        """Remove a schedule; returns whether it existed. Messages that it has fired stay in the queue."""
        return self._executor.perform(self._remove(name))

    def run_now(self, name: str) -> Sent:
        """Send one message of a schedule now, with an id `name@now:…`, even if it is paused; its times do not change.

        Raises `UnknownScheduleError` if no schedule has this name.
        """
        return self._executor.perform(self._run_now(name))

    def next(self, name: str, n: int = 1) -> Times:
        """Return the next `n` occurrences (up to 1,000) in the schedule's zone; [] if it is paused or has ended.

        Raises `UnknownScheduleError` if no schedule has this name.
        """
        return self._executor.perform(self._next(name, n))

    def apply(self, *, prune: bool = False) -> Applied:
        """Store the schedules that this queue object declares with `cron` and `every`, each like `add`.

        Consuming does this when it starts. With `prune`, it removes the schedules in Redis that were declared in code
        but are not declared by this queue object.
        """
        return self._executor.perform(self._apply(prune=prune), writes=True)


class AsyncSchedules(_ScheduleOperations):
    """The schedules of an `AsyncDelayQueue`; see `Schedules`."""

    _executor: AsyncExecutor

    add = awaited(Schedules.add)
    add_many = awaited(Schedules.add_many)
    list = awaited(Schedules.list)
    get = awaited(Schedules.get)
    pause = awaited(Schedules.pause)
    resume = awaited(Schedules.resume)
    remove = awaited(Schedules.remove)
    run_now = awaited(Schedules.run_now)
    next = awaited(Schedules.next)
    apply = awaited(Schedules.apply)
