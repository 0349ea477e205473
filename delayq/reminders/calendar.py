"""A calendar's reminders in a queue: previewed, brought up to date, planned again, and taken back."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from delayq.clock import Duration, milliseconds
from delayq.config import check_retries
from delayq.operation import single
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.reminders.carrying_out import CalendarInfo, Events, Operations, told
from delayq.reminders.difference import Changes
from delayq.reminders.keeping import unpack
from delayq.reminders.planning import Before, Rules
from delayq.reminders.quiet import QuietHours
from delayq.reminders.reading import Progress
from delayq.twins import twin


class Calendar(Operations):
    """The reminders of one calendar in a `DelayQueue`.

    `before` says how long before an event its reminders are due: one offset or several, each a text (`15m`,
    `1 day before at 09:00`), a timedelta or an `Offset`. `quiet` are hours in which nobody is reminded (`22:00-07:00`),
    and `tz` is the zone on whose clocks days, times of day and quiet hours are counted, by default that of each event.
    A reminder whose time has passed is sent if that is no longer ago than the `grace`; `retries` are those of its
    message.
    """

    def __init__(
        self,
        queue: DelayQueue[Any],
        name: str,
        before: Before = (),
        *,
        quiet: QuietHours | str | None = None,
        tz: ZoneInfo | str | None = None,
        grace: Duration = 0,
        retries: int | None = None,
    ) -> None:
        """Validate everything; nothing is sent to Redis."""
        rules = Rules.of(name, before, quiet=quiet, tz=tz)
        super().__init__(queue, name, rules, milliseconds(grace, "grace"), _checked(retries))
        self._queue = queue

    def now(self) -> datetime:
        """Return the server's time, by which it is planned what is past: the `now` for reading files."""
        return self._perform(self._now())  # type: ignore[no-any-return]

    def preview(self, events: Events) -> Changes:
        """Return what `update` would change; nothing is written."""
        return self._perform(self._preview(events))  # type: ignore[no-any-return]

    def update(self, events: Events, *, again: bool = False, on_progress: Progress | None = None) -> Changes:
        """Have the queue hold the reminders of these events, and of no others of this calendar.

        Takes events, or the `Reading` of files, whose unreadable events keep the reminders that they have. Only what
        has changed is written: reminders of new events are sent, those of moved or changed ones replaced, those of
        cancelled and missing ones cancelled. One that was delivered is sent again only if its event has moved. `again`
        goes by what the queue holds and not by what is kept: it sends all that are not past and cancels all others of
        the calendar, which takes the rights of an admin. For when messages were lost or purged.

        Interrupted anywhere it leaves nothing that the next call does not put right. Of two at a time the one that ends
        last counts. Raises `CalendarChangedError`, having lost nothing, if others come between again and again.
        """
        self._queue.open()
        return self._perform(self._update(events, again=again, on_progress=on_progress))  # type: ignore[no-any-return]

    def replan(self, *, on_progress: Progress | None = None) -> Changes:
        """Plan the kept events again, by the rules they were imported with: for a newer database of time zones.

        Finishes an import that was cut off, too. Events beyond the horizon of the import are not known here.
        """
        self._queue.open()
        return self._perform(self._replan(on_progress))  # type: ignore[no-any-return]

    def forget(self) -> Changes:
        """Cancel every reminder of the calendar and forget its plan."""
        self._queue.open()
        return self._perform(self._forget())  # type: ignore[no-any-return]

    def info(self) -> CalendarInfo | None:
        """Return what is kept of the calendar, None if nothing is."""
        return self._perform(self._info())  # type: ignore[no-any-return]


class AsyncCalendar(Operations):
    """The reminders of one calendar in an `AsyncDelayQueue`; see `Calendar`.

    Planning itself does not give way to other tasks: a hundred thousand events take it a few seconds.
    """

    def __init__(
        self,
        queue: AsyncDelayQueue[Any],
        name: str,
        before: Before = (),
        *,
        quiet: QuietHours | str | None = None,
        tz: ZoneInfo | str | None = None,
        grace: Duration = 0,
        retries: int | None = None,
    ) -> None:
        """Validate everything; nothing is sent to Redis."""
        rules = Rules.of(name, before, quiet=quiet, tz=tz)
        super().__init__(queue, name, rules, milliseconds(grace, "grace"), _checked(retries))
        self._queue = queue

    @twin(Calendar.now)
    async def now(self) -> datetime:
        return await self._perform(self._now())  # type: ignore[no-any-return]

    @twin(Calendar.preview)
    async def preview(self, events: Events) -> Changes:
        return await self._perform(self._preview(events))  # type: ignore[no-any-return]

    @twin(Calendar.update)
    async def update(self, events: Events, *, again: bool = False, on_progress: Progress | None = None) -> Changes:
        await self._queue.open()
        return await self._perform(  # type: ignore[no-any-return]
            self._update(events, again=again, on_progress=on_progress)
        )

    @twin(Calendar.replan)
    async def replan(self, *, on_progress: Progress | None = None) -> Changes:
        await self._queue.open()
        return await self._perform(self._replan(on_progress))  # type: ignore[no-any-return]

    @twin(Calendar.forget)
    async def forget(self) -> Changes:
        await self._queue.open()
        return await self._perform(self._forget())  # type: ignore[no-any-return]

    @twin(Calendar.info)
    async def info(self) -> CalendarInfo | None:
        return await self._perform(self._info())  # type: ignore[no-any-return]


def calendars(queue: DelayQueue[Any]) -> list[CalendarInfo]:
    """Return what is kept of every calendar of a queue, by name."""
    calls = queue._tools.calls  # noqa: SLF001 - a queue shows its users no door to its calls
    plans = queue._perform(single(calls.plans()))  # noqa: SLF001
    named = sorted((name.decode(), held) for name, held in plans.items())
    return [info for name, held in named if (info := told(name, unpack(name, held)))]


def _checked(retries: int | None) -> int | None:
    return None if retries is None else check_retries(retries)
