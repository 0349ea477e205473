"""Schedules: what sends a message again and again, as `queue.schedules`.

They are kept in Redis and fired by every consumer of the queue, each occurrence by one of them (see `flows.recurring`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar, Unpack
from zoneinfo import ZoneInfo

from delayq.clock import moment
from delayq.config import whole
from delayq.errors import ConfigurationError, UnknownScheduleError, shown
from delayq.ids import new_id
from delayq.operation import Operation
from delayq.producer import Producer, Sent
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
from delayq.schedules.placing import ScheduleOutcome, alter, pausing, put, read_all, read_one, remove, resuming
from delayq.schedules.standing import Standing
from delayq.schedules.timetable import MOST_FIRED
from delayq.twins import twin
from delayq.values import Outgoing

R = TypeVar("R")
Times = list[datetime]


class _Schedules:
    """The operations behind both faces."""

    def __init__(self, face: Any) -> None:
        """Work on the schedules of a face's queue."""
        self._tools = face._tools  # noqa: SLF001 - a part of the face
        self._perform = face._perform  # noqa: SLF001
        self._face = face
        self._producer = Producer(face._tools, face._codec)  # noqa: SLF001

    def _pack(self, schedule: Schedule, *, declared: bool = False) -> bytes:
        if not isinstance(schedule, Schedule):
            raise ConfigurationError(f"schedules must be Schedule objects, not {shown(schedule)}")
        return pack(schedule, self._tools.settings, self._face._codec.encode, declared=declared)  # noqa: SLF001

    def _add(self, schedule: Schedule) -> Operation[ScheduleOutcome]:
        outcomes = yield from put(self._tools, {schedule.name: self._pack(schedule)})
        return outcomes[schedule.name]

    def _add_many(self, schedules: Iterable[Schedule]) -> Operation[dict[str, ScheduleOutcome]]:
        specs: dict[str, bytes] = {}
        for schedule in schedules:
            spec = self._pack(schedule)
            if schedule.name in specs:
                raise ConfigurationError(f"schedule {schedule.name} is given twice")
            specs[schedule.name] = spec
        return (yield from put(self._tools, specs))

    def _list(self) -> Operation[list[ScheduleInfo]]:
        found = yield from read_all(self._tools)
        return [describe(found[name], self._tools.decode) for name in sorted(found)]

    def _get(self, name: str) -> Operation[ScheduleInfo | None]:
        standing, _ = yield from read_one(self._tools, check_schedule(name))
        return None if standing is None else describe(standing, self._tools.decode)

    def _alter(self, name: str, place: Any) -> Operation[None]:
        if (yield from alter(self._tools, check_schedule(name), place)) is None:
            raise _unknown(name)

    def _remove(self, name: str) -> Operation[bool]:
        return bool((yield from remove(self._tools, [check_schedule(name)])))

    def _run_now(self, name: str) -> Operation[Sent]:
        standing, _ = yield from read_one(self._tools, check_schedule(name))
        if standing is None:
            raise _unknown(name)
        definition, payload, _ = unpack(standing.spec)
        headers = message_headers(name, definition)
        (sent,) = yield from self._producer.send(
            [Outgoing(f"{name}@now:{new_id()}", 0, definition.retries, payload, headers)]
        )
        return sent

    def _next(self, name: str, n: int) -> Operation[list[datetime]]:
        whole(n, "n", 1, MOST_FIRED)
        standing, _ = yield from read_one(self._tools, check_schedule(name))
        if standing is None:
            raise _unknown(name)
        opened = unpack(standing.spec)
        zone = ZoneInfo(opened.definition.tz)
        times = opened.timetable.upcoming(standing.next, n, standing.fired)
        return [moment(time).astimezone(zone) for time in times]

    def _apply(self, *, prune: bool) -> Operation[Applied]:
        declared = self._face._declared  # noqa: SLF001
        outcomes = yield from put(self._tools, declared)
        removed: list[str] = []
        if prune:
            found = yield from read_all(self._tools)
            gone = [name for name in found if name not in declared and _was_declared(found[name])]
            removed = yield from remove(self._tools, sorted(gone))
        return Applied(outcomes, removed)


def _unknown(name: str) -> UnknownScheduleError:
    return UnknownScheduleError(f"no schedule is named {name}")


def _was_declared(standing: Standing) -> bool:
    try:
        return unpack(standing.spec).definition.declared
    except ConfigurationError:
        return False


class _Perform(Protocol):
    def __call__(self, operation: Operation[R], /, *, writes: bool = False) -> R: ...


class _AsyncPerform(Protocol):
    async def __call__(self, operation: Operation[R], /, *, writes: bool = False) -> R: ...


class Schedules(_Schedules):
    """The schedules of a `DelayQueue`, as `queue.schedules`."""

    _perform: _Perform

    def add(self, name: str, **options: Unpack[TimedOptions]) -> ScheduleOutcome:
        """Add a schedule: either `cron`, with its `tz`, or `every`, and the options of `ScheduleOptions`.

        One of this name that is the same already stays as it is. Another is replaced by this, keeps what it has fired
        and whether it is paused, and fires no occurrence twice; one that is due and not yet fired stays due. Atomic.
        """
        return self._perform(self._add(make_schedule(name, options)), writes=True)

    def add_many(self, schedules: Iterable[Schedule]) -> dict[str, ScheduleOutcome]:
        """Add many schedules in few round trips, each as by `add`; all are checked before the first is stored."""
        return self._perform(self._add_many(schedules), writes=True)

    def list(self) -> list[ScheduleInfo]:
        """Read all schedules, by name."""
        return self._perform(self._list())

    def get(self, name: str) -> ScheduleInfo | None:
        """Read a schedule; None if there is none of this name."""
        return self._perform(self._get(name))

    def pause(self, name: str) -> None:
        """Have a schedule fire no more until it is resumed; harmless when it is paused.

        An occurrence may be fired up to 100 ms ahead, as a message that is due at its time: such a one still comes.
        Raises `UnknownScheduleError` if there is none of this name.
        """
        self._perform(self._alter(name, pausing))

    def resume(self, name: str) -> None:
        """Have a paused schedule go on from now; what would have occurred during the pause is not fired.

        Raises `UnknownScheduleError` if there is none of this name.
        """
        self._perform(self._alter(name, resuming))

    def remove(self, name: str) -> bool:
        """Remove a schedule; returns whether there was one. Messages that it has fired stay."""
        return self._perform(self._remove(name))

    def run_now(self, name: str) -> Sent:
        """Send one message of a schedule at once, under an id `name@now:…`, paused or not; its times stay as they are.

        Raises `UnknownScheduleError` if there is none of this name.
        """
        return self._perform(self._run_now(name))

    def next(self, name: str, n: int = 1) -> Times:
        """Return the next `n` occurrences (up to 1,000) in the schedule's zone; none of one that is paused or ended.

        Raises `UnknownScheduleError` if there is none of this name.
        """
        return self._perform(self._next(name, n))

    def apply(self, *, prune: bool = False) -> Applied:
        """Put the schedules declared by `cron` and `every` of this queue object into Redis, each as by `add`.

        Consuming does so when it starts. With `prune`, schedules that were declared in code before, and are not by this
        queue object, are removed.
        """
        return self._perform(self._apply(prune=prune), writes=True)


class AsyncSchedules(_Schedules):
    """The schedules of an `AsyncDelayQueue`; see `Schedules`."""

    _perform: _AsyncPerform

    @twin(Schedules.add)
    async def add(self, name: str, **options: Unpack[TimedOptions]) -> ScheduleOutcome:
        return await self._perform(self._add(make_schedule(name, options)), writes=True)

    @twin(Schedules.add_many)
    async def add_many(self, schedules: Iterable[Schedule]) -> dict[str, ScheduleOutcome]:
        return await self._perform(self._add_many(schedules), writes=True)

    @twin(Schedules.list)
    async def list(self) -> list[ScheduleInfo]:
        return await self._perform(self._list())

    @twin(Schedules.get)
    async def get(self, name: str) -> ScheduleInfo | None:
        return await self._perform(self._get(name))

    @twin(Schedules.pause)
    async def pause(self, name: str) -> None:
        await self._perform(self._alter(name, pausing))

    @twin(Schedules.resume)
    async def resume(self, name: str) -> None:
        await self._perform(self._alter(name, resuming))

    @twin(Schedules.remove)
    async def remove(self, name: str) -> bool:
        return await self._perform(self._remove(name))

    @twin(Schedules.run_now)
    async def run_now(self, name: str) -> Sent:
        return await self._perform(self._run_now(name))

    @twin(Schedules.next)
    async def next(self, name: str, n: int = 1) -> Times:
        return await self._perform(self._next(name, n))

    @twin(Schedules.apply)
    async def apply(self, *, prune: bool = False) -> Applied:
        return await self._perform(self._apply(prune=prune), writes=True)
