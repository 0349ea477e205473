"""The reminders of a calendar in a queue: preview, update, replan and forget them.

Sends and cancels are first recorded in the stored plan and removed from it when done, so the next import completes an
interrupted one. A message's id is made of calendar, event and offset, so repeating a step has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args
from zoneinfo import ZoneInfo

from delayq._parity import awaited
from delayq.broker.batches import batched
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.operation import Operation
from delayq.errors import CalendarChangedError, ConfigurationError, short_repr
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.sending.message_options import NewMessage
from delayq.queue.sending.producer import SendStatus
from delayq.queue.sweeps.cancellation import cancel_waiting
from delayq.reminders.event import Event
from delayq.reminders.ics_reader import Progress, Reading
from delayq.reminders.known_events import KnownEvents
from delayq.reminders.offsets import QuietHours
from delayq.reminders.plan_diff import Changes, Late, compare_plans
from delayq.reminders.plan_store import (
    StoredPlan,
    is_encrypted_plan,
    is_sealed,
    keep_plan_call,
    pack,
    read_plan,
    read_plans,
    seal_plan,
    unpack,
)
from delayq.reminders.planner import Before, Plan, Reminder, Rules, id_prefix, plan
from delayq.values.checks import check_retries
from delayq.values.times import Duration, from_millis, to_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor


PROGRESS_EVERY = 5_000
"""Messages sent between two progress reports."""
ATTEMPTS = 5
"""How often to plan again when another import of the calendar interferes."""

Q = TypeVar("Q")
Events = Iterable[Event] | Reading
MakeChanges = Callable[[StoredPlan, Rules, int], Changes]
_CANCELLED = ("1", "4")
"""Statuses of a cancelled message, or of one that waited to follow a running one.

The others were delivered already or are being processed."""
_REFUSED = frozenset([SendStatus.RUNNING, SendStatus.SETTLED])


@dataclass(frozen=True, slots=True)
class CalendarInfo:
    """The stored plan of a calendar."""

    name: str
    changed: datetime
    """When an import last changed the plan."""
    reminders: list[Reminder]
    """In the order of their due times, including delivered ones."""
    before: list[str]
    quiet: str
    tz: str
    finished: bool
    """Whether the last import completed; if not, import again."""


class CalendarOperations(Generic[Q]):
    """The operations that `Calendar` and `AsyncCalendar` share, for the kind of queue that each takes."""

    _executor: Any

    def __init__(
        self,
        queue: Q,
        name: str,
        before: Before = (),
        *,
        quiet: QuietHours | str | None = None,
        tz: ZoneInfo | str | None = None,
        grace: Duration = 0,
        late: Late = "now",
        retries: int | None = None,
    ) -> None:
        """Validate everything; nothing is sent to Redis."""
        self.name = name
        self.rules = Rules.of(name, before, quiet=quiet, tz=tz)
        self._grace = to_millis(grace, "grace")
        if late not in get_args(Late):
            raise ConfigurationError(f"late must be 'now', 'skip' or 'note', not {short_repr(late)}")
        self._late = late
        self._retries = None if retries is None else check_retries(retries)
        self._seen: tuple[bytes | None, StoredPlan] = None, StoredPlan()
        inner: Any = queue
        self._queue = inner
        self._context, self._executor, self._producer = inner.context, inner.executor, inner.producer
        self._codec = inner.codec

    def _read(self) -> Operation[tuple[StoredPlan, int]]:
        calls = self._context.calls
        data, now = yield [read_plan(calls, self.name), calls.time()]
        stored = self._seen[1] if data == self._seen[0] else unpack(self.name, data, self._codec)
        self._seen = data, stored
        return stored, now if calls.clock is None else calls.clock()

    def _now(self) -> Operation[datetime]:
        _, now = yield from self._read()
        return from_millis(now)

    def _known(self) -> Operation[KnownEvents]:
        stored, _ = yield from self._read()
        return stored.known

    def _preview(self, events: Events) -> Operation[Changes]:
        stored, now = yield from self._read()
        made = self._plan(_events(events), _known(events), stored, now)
        return compare_plans(stored, made, now=now, grace=self._grace, late=self._late, unread=_unread(events))

    def _update(self, events: Events, *, again: bool, on_progress: Progress | None) -> Operation[Changes]:
        event_list, unread, known = _events(events), _unread(events), _known(events)
        in_queue = (yield from self._ids_in_queue()) if again else frozenset[str]()

        def make(stored: StoredPlan, _: Rules, now: int) -> Changes:
            delivered = stored.reminders.keys() - stored.unconfirmed if again else ()
            if again:
                stored = replace(stored, unconfirmed=stored.unconfirmed | stored.reminders.keys() | in_queue)
            made = self._plan(event_list, known, stored, now)
            options: dict[str, Any] = {"grace": self._grace, "late": self._late, "unread": unread}
            return compare_plans(stored, made, now=now, delivered=delivered, **options)

        return (yield from self._apply(self.rules, make, on_progress, known=known))

    def _plan(self, events: list[Event], known: KnownEvents, stored: StoredPlan, now: int) -> Plan:
        """Plan events; those that the last import has planned, by the same rules and time zones, are ready."""
        same = stored.rules and stored.rules.texts == self.rules.texts and stored.known.context == known.context != ""
        return plan(events, self.rules, now=from_millis(now), known=stored.reminders.values() if same else ())

    def _ids_in_queue(self) -> Operation[frozenset[str]]:
        """Return the ids of the calendar's reminders in the queue, whether or not the plan has them."""
        prefix, found = f"{self.name}/".encode(), set[str]()
        for one in getattr(self._queue, "partitions", [self._queue]):
            cursor = ""
            while cursor != "0":
                (page,) = yield [one.context.calls.walk("messages", cursor=cursor or "0", limit=MAX_IDS)]
                cursor, ids = page
                found.update(id.decode() for id in ids if id.startswith(prefix))
        return frozenset(found)

    def _cancel(self, ids: Sequence[str]) -> Operation[Any]:
        if hasattr(self._queue, "partitions"):
            return self._queue.cancel_waiting(ids)  # type: ignore[no-any-return]
        return cancel_waiting(self._context, ids)

    def _replan(self, on_progress: Progress | None) -> Operation[Changes]:
        self._seen = None, StoredPlan()  # its times are of the time zone database when it was read

        def make(stored: StoredPlan, rules: Rules, now: int) -> Changes:
            pinned = stored.pinned
            events = {id(one.event): one.event for one in stored.reminders.values() if one.id not in pinned}
            made = plan(events.values(), rules, now=from_millis(now))
            # Reminders that were never sent are not planned again.
            known = {id: one for id, one in made.reminders.items() if id in stored.reminders}
            return compare_plans(stored, Plan(rules, known | pinned), now=now)

        return (yield from self._apply(None, make, on_progress))

    def _forget(self) -> Operation[Changes]:
        def make(stored: StoredPlan, _: Rules, __: int) -> Changes:
            return Changes(cancelled=sorted(stored.reminders.keys() | stored.unconfirmed))

        return (yield from self._apply(None, make, None, forget=True))

    def _apply(
        self,
        rules: Rules | None,
        make: MakeChanges,
        on_progress: Progress | None,
        *,
        forget: bool = False,
        known: KnownEvents | None = None,
    ) -> Operation[Changes]:
        """Apply the changes that `make` computes, with the given rules or the stored ones."""
        for _ in range(ATTEMPTS):
            stored, now = yield from self._read()
            effective = rules or stored.rules or self.rules
            changes = make(stored, effective, now)
            same = (
                stored.rules
                and stored.rules.texts == effective.texts
                and (known is None or known.same_as(stored.known))
                and is_sealed(self._seen[0], self._codec)
            )
            if same and not (changes or forget or stored.unconfirmed):
                return changes
            revision = stored.revision
            if changes:
                unconfirmed = {reminder.id for reminder in changes.sent} | set(changes.cancelled)
                pending = pack(effective, changes.kept.values(), at=now, unconfirmed=unconfirmed)
                if not (yield from self._store(revision, pending)):
                    continue
                revision += 1
                changes = yield from self._send_and_cancel(changes, on_progress)
            if forget and not revision:
                return changes
            packed = b"" if forget else pack(effective, changes.kept.values(), at=now, known=known)
            if (yield from self._store(revision, packed)):
                return changes
        raise CalendarChangedError(
            f"calendar {self.name} is being updated by other processes at the same time: try again later"
        )

    def _store(self, revision: int, packed: bytes) -> Operation[bool]:
        stored = seal_plan(packed, self._codec)
        status, *_ = yield [keep_plan_call(self._context.calls, self.name, revision, stored), *self._context.confirming]
        return bool(status)

    def _send_and_cancel(self, changes: Changes, on_progress: Progress | None) -> Operation[Changes]:
        """Cancel and send; returns the actual changes, without messages already gone or refused."""
        done, total = 0, len(changes)

        def report(more: int) -> None:
            nonlocal done
            done += more
            if on_progress is not None:
                on_progress(done, total)

        report(0)
        cancelled: list[str] = []
        for ids in batched(changes.cancelled, MAX_IDS):
            statuses = yield from self._cancel(ids)
            cancelled += [id for id, status in zip(ids, statuses, strict=True) if status in _CANCELLED]
            report(len(ids))
        sent, refused = changes.sent, []
        for part in batched(sent, PROGRESS_EVERY):
            messages = [
                NewMessage(one.payload, at=from_millis(changes.at.get(one.id, one.due)), id=one.id) for one in part
            ]
            outcome = yield from self._producer.send_many(
                messages, delay=0, retries=self._retries, replace="after", run=None
            )
            refused += [one.id for one in outcome if one.status in _REFUSED]
            report(len(part))
        actual = replace(changes, cancelled=cancelled)
        return actual.without(refused) if refused else actual

    def _info(self) -> Operation[CalendarInfo | None]:
        stored, _ = yield from self._read()
        return describe_calendar(self.name, stored)


def describe_calendar(name: str, stored: StoredPlan) -> CalendarInfo | None:
    """Return a stored plan as public info, None if nothing is stored."""
    if stored.rules is None:
        return None
    reminders = list(Plan(stored.rules, stored.reminders))
    return CalendarInfo(name, from_millis(stored.at), reminders, *stored.rules.texts, finished=not stored.unconfirmed)


def _events(events: Events) -> list[Event]:
    return events.events if isinstance(events, Reading) else list(events)


def _unread(events: Events) -> frozenset[str]:
    """Return the uids of events that could not be read; '' stands for an unknown one."""
    problems = events.problems if isinstance(events, Reading) else []
    return frozenset(problem.uid for problem in problems if problem.hides)


def _known(events: Events) -> KnownEvents:
    return events.known if isinstance(events, Reading) else KnownEvents()


KINDS = ("planned", "past", "without_alarm", "refused", "later", "cancelled")
"""What can become of an event: `later` is after the range that was read, `refused` cannot be read or not be sent."""


def account_of(reading: Reading, changes: Changes, rules: Rules) -> dict[str, list[str]]:
    """Return the uids of all events in the files of a reading, by what became of them in an update or preview.

    `rules` are those of its `Calendar`. A series counts as one event, each changed occurrence as another.
    """
    account: dict[str, list[str]] = {kind: list(reading.left_out.get(kind, ())) for kind in KINDS}
    planned = {one.event.uid for one in changes.kept.values()}
    reminded = {event.uid for event in reading.events if rules.offsets or event.alarms}
    refused = {id.rpartition("/")[0] + "/" for id in changes.refused}
    refused_uids = {event.uid for event in reading.events if refused and id_prefix(rules.calendar, event) in refused}
    for uid, size in reading.sizes.items():
        if uid not in reminded:
            kind = "without_alarm"
        elif uid in refused_uids:
            kind = "refused"
        else:
            kind = "planned" if uid in planned else "past"
        account[kind] += [uid] * size
    return account


class Calendar(CalendarOperations[DelayQueue[Any]]):
    """The reminders of one calendar in a `DelayQueue`.

    `before` is how long before an event its reminders are due: one or more offsets, each a str (`15m`,
    `1 day before at 09:00`), a timedelta or an `Offset`. During `quiet` hours (`22:00-07:00`) no reminder is due. Days,
    times of day and quiet hours are in the time zone `tz`, by default that of each event. A reminder whose time has
    passed by at most `grace` is still sent. If an event is made or moved when its reminder was due already, `late`
    decides, as long as the event has not started: `"now"` sends the last such reminder at once, `"note"` lists it in
    the changes, and `"skip"` only counts it as past. `retries` are the retries of a reminder's message.
    """

    _executor: Executor

    def now(self) -> datetime:
        """Return the server's time, which decides what is past; use it as `now` for reading files."""
        return self._executor.perform(self._now())

    def known(self) -> KnownEvents:
        """Return what the last import has read, for `read_calendar`, which then reads only what has changed since."""
        return self._executor.perform(self._known())

    def preview(self, events: Events) -> Changes:
        """Return what `update` would change; writes nothing."""
        return self._executor.perform(self._preview(events))

    def update(self, events: Events, *, again: bool = False, on_progress: Progress | None = None) -> Changes:
        """Make the queue contain the reminders of these events, and no others of this calendar.

        Takes events, or the `Reading` of files, whose unreadable events keep their reminders. Only changes are written:
        reminders of new events are sent, those of moved or changed events replaced, and those of cancelled and missing
        events cancelled. A delivered reminder is sent again only if its event has moved. Use `again` after messages
        were lost or purged: it compares with the queue instead of the stored plan, sends all reminders that are not
        past and cancels all others of the calendar. It needs admin rights.

        If it is interrupted, the next call completes it. Of two concurrent calls, the one that ends last wins. Raises
        `CalendarChangedError` without losing anything if other updates interfere repeatedly.
        """
        return self._executor.perform(self._update(events, again=again, on_progress=on_progress), writes=True)

    def replan(self, *, on_progress: Progress | None = None) -> Changes:
        """Plan the stored events again with the rules of their import, for example after a time zone update.

        Also completes an interrupted import. Events beyond the horizon of the import are not included.
        """
        return self._executor.perform(self._replan(on_progress), writes=True)

    def forget(self) -> Changes:
        """Cancel all reminders of the calendar and delete its plan."""
        return self._executor.perform(self._forget(), writes=True)

    def info(self) -> CalendarInfo | None:
        """Return the stored plan of the calendar, None if there is none."""
        return self._executor.perform(self._info())


class AsyncCalendar(CalendarOperations[AsyncDelayQueue[Any]]):
    """The reminders of one calendar in an `AsyncDelayQueue`; see `Calendar`.

    Planning itself does not yield to other tasks: a hundred thousand events take a few seconds.
    """

    _executor: AsyncExecutor

    now = awaited(Calendar.now)
    known = awaited(Calendar.known)
    preview = awaited(Calendar.preview)
    update = awaited(Calendar.update)
    replan = awaited(Calendar.replan)
    forget = awaited(Calendar.forget)
    info = awaited(Calendar.info)


def calendars(queue: DelayQueue[Any]) -> list[CalendarInfo]:
    """Return the stored plans of all calendars of a queue, by name."""
    codec = queue.codec
    return [info for name, data in _stored_plans(queue) if (info := describe_calendar(name, unpack(name, data, codec)))]


def stored_calendars(queue: DelayQueue[Any]) -> dict[str, CalendarInfo | None]:
    """Return the stored plans of all calendars of a queue that is read without keys, None for what is encrypted."""
    found: dict[str, CalendarInfo | None] = {}
    for name, data in _stored_plans(queue):
        if is_encrypted_plan(data):
            found[name] = None
        elif info := describe_calendar(name, unpack(name, data)):
            found[name] = info
    return found


def _stored_plans(queue: DelayQueue[Any]) -> list[tuple[str, bytes]]:
    plans = queue.executor.call(read_plans(queue.context.calls))
    return sorted((name.decode(), data) for name, data in plans.items())
