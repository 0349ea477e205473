"""The operations behind `queue.schedules`, which the blocking and the asyncio class share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from delayq.broker.context import QueueContext
from delayq.broker.message.ids import new_id
from delayq.broker.requests import Outgoing
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, UnknownScheduleError, short_repr
from delayq.queue.inspecting.inspector import MAX_ROWS
from delayq.queue.sending.message_options import NewMessage, attributes_of, options_of
from delayq.queue.sending.producer import Producer, Sent
from delayq.queue.tasks.handlers import HandlerRegistry
from delayq.safe_log import SafeLog
from delayq.schedules.calls import StoredSchedule
from delayq.schedules.definition import Schedule, check_schedule, pack, unpack
from delayq.schedules.info import Applied, Occurrence, Replanned, ScheduleInfo, SchedulesPage, describe
from delayq.schedules.messages import message_headers, stored_attributes
from delayq.schedules.recurring.local_times import check_zone, zone_release
from delayq.schedules.recurring.timetable import MAX_FIRED
from delayq.schedules.selection import (
    ScheduleSelection,
    change_each,
    find_names,
    find_orphans,
    read_page,
    read_selected,
    remove_each,
    select_many,
    upcoming,
)
from delayq.schedules.store import Change, ScheduleOutcome, put, read_one, redefine, remove, replan
from delayq.values.checks import check_int, check_owner
from delayq.values.other_names import SCHEDULE_METHODS, Hinting
from delayq.values.times import from_millis

_TIMED = ("delay", "at", "id", "unique", "unique_for", "unique_after", "jitter")
"""What the schedule decides for each of its messages."""


def message_options(context: QueueContext, payload: Any) -> tuple[dict[str, Any], bytes | None]:
    """Return what a payload says of a schedule's options, and of the attributes of its messages, None for nothing.

    Raises `ConfigurationError` for a `NewMessage` with options that a message of a schedule cannot have.
    """
    if not isinstance(payload, NewMessage):
        return {"payload": payload}, None
    refused = [name for name in _TIMED if getattr(payload, name) is not None]
    if refused:
        raise ConfigurationError(f"the message of a schedule has no {refused[0]}: its schedule decides that")
    if isinstance(payload.expires, datetime):
        raise ConfigurationError("the message of a schedule expires so long after its due time: give a duration")
    (options,) = options_of([payload])
    attributes = attributes_of(context, 0, options)
    own = {name: value for name in ("retries", "headers") if (value := getattr(payload, name)) is not None}
    return {"payload": payload.payload, **own}, attributes


log = SafeLog("delayq.schedules")


class ScheduleOperations(Hinting):
    """The operations on the schedules of a queue."""

    _other_names = SCHEDULE_METHODS

    def __init__(self, context: QueueContext, producer: Producer, handlers: HandlerRegistry, executor: Any) -> None:
        """Work on the schedules of the queue of `context`; `handlers` has those that the program declares."""
        self._context = context
        self._producer = producer
        self._handlers = handlers
        self._executor = executor

    def _pack(self, schedule: Schedule, *, declared: bool = False) -> bytes:
        if not isinstance(schedule, Schedule):
            raise ConfigurationError(f"schedules must be Schedule objects, not {short_repr(schedule)}")
        given, attributes = message_options(self._context, schedule.payload)
        taken = [name for name in given if name != "payload" and getattr(schedule, name) is not None]
        if taken:
            raise ConfigurationError(f"schedule {schedule.name}: give {taken[0]} to the schedule or to its message")
        settings, encode = self._context.settings, self._producer.encode_stable
        return pack(replace(schedule, **given), settings, encode, declared=declared, attributes=attributes)

    def _add(self, schedule: Schedule) -> Operation[ScheduleOutcome]:
        outcomes = yield from put(self._context, {schedule.name: self._pack(schedule)})
        return outcomes[schedule.name]

    def _add_many(self, schedules: Iterable[Schedule]) -> Operation[dict[str, ScheduleOutcome]]:
        return (yield from put(self._context, self._packed(schedules)))

    def _packed(self, schedules: Iterable[Schedule]) -> dict[str, bytes]:
        specs: dict[str, bytes] = {}
        for schedule in schedules:
            spec = self._pack(schedule)
            if schedule.name in specs:
                raise ConfigurationError(f"two schedules are named {schedule.name}: give one of them another name")
            specs[schedule.name] = spec
        return specs

    def _sync(self, schedules: Iterable[Schedule], owner: str, *, prune: bool, dry_run: bool) -> Operation[Applied]:
        if not check_owner(owner):
            raise ConfigurationError("give an owner, by which the schedules are found again, as in owner='billing'")
        label = f"sync:{owner}"
        specs = self._packed(_labelled(one, label) for one in schedules)
        outcomes = yield from put(self._context, specs, dry_run=dry_run)
        gone: list[str] = []
        if prune:
            names = yield from find_names(self._context, select_many(label, None))
            gone = [name for name in names if name not in specs]
            if not dry_run:
                gone = yield from remove(self._context, gone)
        return Applied(outcomes, gone)

    def _list(self, selection: ScheduleSelection) -> Operation[list[ScheduleInfo]]:
        found, unreadable = self._described(*(yield from read_selected(self._context, selection)))
        for name, error in unreadable.items():
            log.warning("schedule %s is left out: %s", name, error, extra={"schedule": name})
        return found

    def _described(self, now: int, stored: Iterable[StoredSchedule]) -> tuple[list[ScheduleInfo], dict[str, str]]:
        """Return what can be read of some schedules, and why others cannot."""
        found: list[ScheduleInfo] = []
        unreadable: dict[str, str] = {}
        for one in stored:
            try:
                found.append(describe(one, now, self._context.decode))
            except ConfigurationError as error:
                unreadable[one.name] = str(error)
        return found, unreadable

    def _page(self, selection: ScheduleSelection, limit: int, cursor: str | None) -> Operation[SchedulesPage]:
        check_int(limit, "limit", 1, MAX_ROWS)
        found, following = yield from read_page(self._context, selection, cursor or "", limit)
        schedules, unreadable = self._described(*found)
        return SchedulesPage(schedules, following or None, unreadable)

    def _get(self, name: str) -> Operation[ScheduleInfo | None]:
        stored, now = yield from read_one(self._context, check_schedule(name))
        return None if stored is None else describe(stored, now, self._context.decode)

    def _change(self, selection: ScheduleSelection, change: Change) -> Operation[int]:
        total, changed = yield from change_each(self._context, selection, change)
        if selection.name and not total:
            raise _unknown(selection.name)
        return changed

    def _remove(self, selection: ScheduleSelection) -> Operation[int]:
        if selection.name:  # also one that cannot be read
            return len((yield from remove(self._context, [selection.name])))
        return (yield from remove_each(self._context, selection))

    def _set(self, selection: ScheduleSelection, options: Mapping[str, Any]) -> Operation[int]:
        given, attributes = message_options(self._context, options.get("payload"))
        changed = options if attributes is None else {**given, **options, "payload": given["payload"]}
        change = redefine(changed, self._context.settings, self._producer.encode_stable, attributes)
        return (yield from self._change(selection, change))

    def _upcoming(self, selection: ScheduleSelection, n: int) -> Operation[list[Occurrence]]:
        check_int(n, "n", 1, MAX_FIRED)
        found = yield from upcoming(self._context, selection, n)
        return [
            Occurrence(stored.name, from_millis(at).astimezone(check_zone(unpack(stored.spec).definition.tz)))
            for at, stored in found
        ]

    def _stored(self, name: str) -> Operation[StoredSchedule]:
        stored, _ = yield from read_one(self._context, check_schedule(name))
        if stored is None:
            raise _unknown(name)
        return stored

    def _run_now(self, name: str) -> Operation[Sent]:
        stored = yield from self._stored(name)
        definition, payload = unpack(stored.spec)
        headers = message_headers(name, definition)
        attributes = stored_attributes(definition, self._context.settings)
        outgoing = Outgoing(f"{name}@now:{new_id()}", 0, definition.retries, payload, headers, attributes)
        (sent,) = yield from self._producer.send([outgoing])
        return sent

    def _next(self, name: str, n: int) -> Operation[list[datetime]]:
        check_int(n, "n", 1, MAX_FIRED)
        stored = yield from self._stored(name)
        definition, _ = unpack(stored.spec)
        zone = check_zone(definition.tz)
        times = definition.timetable.upcoming(stored.next, n, stored.fired)
        return [from_millis(time).astimezone(zone) for time in times]

    def _replan(self) -> Operation[Replanned]:
        moved, zones_before = yield from replan(self._context)
        times = {
            name: (None if before is None else from_millis(before), None if after is None else from_millis(after))
            for name, (before, after) in moved.items()
        }
        return Replanned(times, zone_release(), zones_before)

    def _orphans(self) -> Operation[list[str]]:
        return (yield from find_orphans(self._context, self._handlers.declared))

    def _apply(self, *, prune: bool) -> Operation[Applied]:
        if prune and not self._context.settings.owner:
            raise ConfigurationError(
                "to prune, give the queue an owner, as in owner='billing': only schedules of that service are removed"
            )
        outcomes = yield from self._handlers.put_declared(self._context)
        removed: list[str] = []
        if prune:
            removed = yield from remove(self._context, (yield from self._orphans()))
        return Applied(outcomes, removed)


def _labelled(schedule: Schedule, label: str) -> Schedule:
    """Return a schedule with one more label; one whose labels are not valid as it is: it is refused later."""
    if not isinstance(schedule, Schedule) or not isinstance(schedule.labels, list | tuple | set | frozenset):
        return schedule
    return replace(schedule, labels=[*schedule.labels, label])


def _unknown(name: str) -> UnknownScheduleError:
    return UnknownScheduleError(f"no schedule is named {name}")
