"""`queue.schedules`: adds, lists, pauses and removes schedules, which send a message again and again.

Schedules are stored in Redis. The consumers of the queue fire them, each occurrence once: see `worker.schedule_firing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from delayq._parity import awaited
from delayq.queue.scheduling.schedule_occurrences import AsyncScheduleOccurrences, ScheduleOccurrences
from delayq.queue.scheduling.schedule_operations import ScheduleOperations
from delayq.queue.sending.producer import Sent
from delayq.schedules.definition import Schedule, TimedOptions, make_schedule
from delayq.schedules.info import Applied, Occurrence, Replanned, ScheduleInfo, SchedulesPage
from delayq.schedules.selection import select, select_many
from delayq.schedules.store import ScheduleOutcome, pausing, resume
from delayq.values.times import Duration

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

Times = list[datetime]
Occurrences = list[Occurrence]
NameList = list[str]


class Schedules(ScheduleOperations, ScheduleOccurrences):
    """The schedules of a `DelayQueue`, as `queue.schedules`."""

    _executor: Executor

    def add(self, name: str, **options: Unpack[TimedOptions]) -> ScheduleOutcome:
        """Add a schedule: with one of `cron`, `every` and `rrule`, and the options of `ScheduleOptions`.

        If a schedule with this name exists and is the same, nothing changes. If it differs, this one replaces it: it
        stays paused if it was, keeps the count of what it has fired, and fires no occurrence twice. An occurrence that
        is due and not yet fired stays due. Atomic.
        """
        return self._executor.perform(self._add(make_schedule(name, options)), writes=True)

    def add_many(self, schedules: Iterable[Schedule]) -> dict[str, ScheduleOutcome]:
        """Add many schedules in few round trips, each like `add`; all are checked before the first is stored."""
        return self._executor.perform(self._add_many(schedules), writes=True)

    def list(self, *, label: str | None = None, prefix: str | None = None) -> list[ScheduleInfo]:
        """Read all schedules, or those with a label, or with names that begin with `prefix`, sorted by name.

        A label is looked up in an index. A prefix without a label reads all names.
        """
        return self._executor.perform(self._list(select_many(label, prefix)))

    def page(
        self, *, label: str | None = None, prefix: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> SchedulesPage:
        """Read a page of the schedules that `list` reads; pass its cursor for the next page.

        They are in the order of their names. Without a label, if the queue has more than 1,000 schedules, only those of
        one page are in order, and a page may have some more than `limit`.
        """
        return self._executor.perform(self._page(select_many(label, prefix), limit, cursor))

    def get(self, name: str) -> ScheduleInfo | None:
        """Read a schedule; None if no schedule has this name."""
        return self._executor.perform(self._get(name))

    def pause(
        self,
        name: str | None = None,
        *,
        label: str | None = None,
        prefix: str | None = None,
        until: Duration | datetime | None = None,
    ) -> int:
        """Stop schedules from firing until they are resumed, or `until` a time; returns how many this has changed.

        With `until`, a duration from now or an aware datetime, each goes on with its first occurrence from then on.
        Those before are not fired. Again: changes the end.

        Select one by its name, or those with a label, or with names that begin with `prefix`. Many are changed in
        batches; what is added meanwhile may be left out. Occurrences are fired up to 250 ms early, as messages that
        are due at their time. A message that was fired before the pause is still delivered.

        Raises `UnknownScheduleError` if no schedule has this name.
        """
        return self._executor.perform(self._change(select(name, label, prefix), pausing(until)))

    def resume(self, name: str | None = None, *, label: str | None = None, prefix: str | None = None) -> int:
        """Continue paused schedules from now on, selected as in `pause`; returns how many were paused.

        Occurrences during the pause are not fired. Raises `UnknownScheduleError` if no schedule has this name.
        """
        return self._executor.perform(self._change(select(name, label, prefix), resume))

    def set(
        self,
        name: str | None = None,
        *,
        label: str | None = None,
        prefix: str | None = None,
        **options: Unpack[TimedOptions],
    ) -> int:
        """Change some options of schedules, selected as in `pause`, and keep the others; returns how many changed.

        For example, `set(label="user:42", tz="Europe/Paris")`. Each keeps its state and the count of what it has
        fired, as with `add`. `tz` leaves intervals of elapsed time unchanged. An error may leave some changed: call it
        again.

        Raises `UnknownScheduleError` if no schedule has this name.
        """
        return self._executor.perform(self._set(select(name, label, prefix), options))

    def remove(self, name: str | None = None, *, label: str | None = None, prefix: str | None = None) -> int:
        """Remove schedules, selected as in `pause`; returns how many existed. Messages that were fired stay."""
        return self._executor.perform(self._remove(select(name, label, prefix)))

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

    def upcoming(self, n: int = 1, *, label: str | None = None, prefix: str | None = None) -> Occurrences:
        """Return the next `n` occurrences (up to 1,000) of several schedules together, each in its schedule's zone.

        They are those with a label, or with names that begin with `prefix`, or all.
        """
        return self._executor.perform(self._upcoming(select_many(label, prefix), n))

    def replan(self) -> Replanned:
        """Work out anew when each schedule occurs next; returns which have moved.

        Consumers do it by themselves if they have newer time zone data than the schedules were planned with, and after
        the clock of the server was set back by more than an hour: what has fired while it was ahead may fire again.
        They look every minute. Raises `ConfigurationError` if this machine has older data.
        """
        return self._executor.perform(self._replan(), writes=True)

    def orphans(self) -> NameList:
        """Return the names of schedules that this service has declared but no longer declares, sorted.

        Their functions were renamed or removed, and they still fire. The queue's option `owner` names the service; all
        without one count as the same. Those stored by a delayq older than that option are not found.
        """
        return self._executor.perform(self._orphans())

    def apply(self, *, prune: bool = False) -> Applied:
        """Store the schedules that this queue object declares with `cron`, `every` and `rrule`, like `add`.

        Consuming does this when it starts. With `prune`, it also removes the `orphans`; then the queue needs the option
        `owner`, or `ConfigurationError` is raised.
        """
        return self._executor.perform(self._apply(prune=prune), writes=True)

    def sync(self, schedules: Iterable[Schedule], *, owner: str, prune: bool = False, dry_run: bool = False) -> Applied:
        """Make the schedules of an owner these: adds and changes them, each like `add`, with the label `sync:OWNER`.

        With `prune`, those that an earlier call of this owner has added and that are not among these are removed. With
        `dry_run`, nothing is changed, and the result says what would be. All are checked before the first is stored.
        """
        return self._executor.perform(self._sync(schedules, owner, prune=prune, dry_run=dry_run), writes=True)


class AsyncSchedules(ScheduleOperations, AsyncScheduleOccurrences):
    """The schedules of an `AsyncDelayQueue`; see `Schedules`."""

    _executor: AsyncExecutor

    add = awaited(Schedules.add)
    add_many = awaited(Schedules.add_many)
    list = awaited(Schedules.list)
    page = awaited(Schedules.page)
    get = awaited(Schedules.get)
    pause = awaited(Schedules.pause)
    resume = awaited(Schedules.resume)
    set = awaited(Schedules.set)
    remove = awaited(Schedules.remove)
    run_now = awaited(Schedules.run_now)
    next = awaited(Schedules.next)
    upcoming = awaited(Schedules.upcoming)
    replan = awaited(Schedules.replan)
    orphans = awaited(Schedules.orphans)
    apply = awaited(Schedules.apply)
    sync = awaited(Schedules.sync)
