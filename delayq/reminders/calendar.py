"""The public classes for a calendar's reminders in a queue: preview, update, replan and forget them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from delayq._parity import awaited
from delayq.broker.transport.operation import single
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.reminders.calendar_operations import CalendarInfo, CalendarOperations, Events, describe_calendar
from delayq.reminders.ics.ics_reader import Progress
from delayq.reminders.known_events import KnownEvents
from delayq.reminders.plan_diff import Changes
from delayq.reminders.plan_store import is_encrypted_plan, read_plans, unpack

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor


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
    codec, stored = queue._codec, _stored_plans(queue)  # noqa: SLF001 - a queue has no public access to its codec
    return [info for name, data in stored if (info := describe_calendar(name, unpack(name, data, codec)))]


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
    calls = queue._context.calls  # noqa: SLF001 - a queue has no public access to its calls
    plans = queue._perform(single(read_plans(calls)))  # noqa: SLF001
    return sorted((name.decode(), data) for name, data in plans.items())
