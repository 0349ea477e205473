"""The dead letter, the schedules and the selections of a partitioned queue.

What their methods return is a result, or of an asyncio queue what is awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from delayq._parity import mirrors
from delayq.errors import ConfigurationError
from delayq.queue.dead_groups import DeadGroup
from delayq.queue.dead_letter import DeadLetter, Redriven
from delayq.queue.inspecting.deaths import check_entry
from delayq.queue.partitioned import merging
from delayq.queue.partitioned.pages import merged_page, place_in
from delayq.queue.placing.merged_stats import counters
from delayq.queue.scheduling.schedules import Schedules
from delayq.queue.sweeps.selection import Selection
from delayq.schedules.definition import Schedule
from delayq.schedules.info import Applied, Replanned, SchedulesPage
from delayq.values.rates import parse_rate


class _View:
    """Something that a queue has once in each partition."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue


def _of_all(part: str, method: Callable[..., Any], merge: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    """Return a method that acts on a part of all partitions."""

    @wraps(method)
    def routed(self: Any, *args: Any, **options: Any) -> Any:
        return self._queue.perform_all(lambda one: method(getattr(one, part), *args, **options), merge)

    return routed


# Selections


def _selecting(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def routed(self: Any, *args: Any, **options: Any) -> Any:
        return self._each(method, *args, **options)

    return routed


class Selected:
    """Some messages, from `select`; see `Selection`."""

    def __init__(self, queue: Any, how: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """Check what is wanted, and read nothing."""
        self._queue, self._how, self._options = queue, how, options
        queue.partitions[0].select(*how, **options)  # any: it is only checked

    def _each(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        def make(one: Any) -> Any:
            return method(one.select(*self._how, **self._options), *args, **options)

        merge = sum if method is Selection.count else counters
        return self._queue.perform_all(make, merge)

    count = _selecting(Selection.count)
    cancel = _selecting(Selection.cancel)
    kill = _selecting(Selection.kill)
    reschedule = _selecting(Selection.reschedule)
    run_now = _selecting(Selection.run_now)


# The dead letter


def _redriven(values: Sequence[Redriven]) -> Redriven:
    return Redriven(sum(one.redriven for one in values), sum(one.exists for one in values))


def _groups(values: Sequence[list[DeadGroup]]) -> list[DeadGroup]:
    found: dict[str, DeadGroup] = {}
    for one in merging.one_list(values):
        known = found.get(one.group, replace(one, count=0))
        last = max(known, one, key=lambda group: group.last)
        found[one.group] = replace(last, count=known.count + one.count, first=min(known.first, one.first))
    return sorted(found.values(), key=lambda one: (-one.count, one.group))


class PartitionedDeadLetter(_View):
    """The dead letter of all partitions; see `DeadLetter`."""

    groups = _of_all("dead", DeadLetter.groups, _groups)

    @mirrors(DeadLetter.list)
    def list(self, *, limit: int = 100, cursor: str | None = None) -> Any:
        def read(one: Any, number: int, after: str | None) -> Any:
            return DeadLetter.list(one.dead, limit=number, cursor=after)

        return self._queue._perform(merged_page(self._queue, read, limit=limit, cursor=cursor))  # noqa: SLF001

    @mirrors(DeadLetter.redrive)
    def redrive(self, id: str | None = None, *, payloads: Any = None, rate: str | None = None, **how: Any) -> Any:
        queue = self._queue
        if payloads is not None:
            return self._edit(payloads, {**how, "id": id, "rate": rate})
        if id is not None:
            redrive: Any = DeadLetter.redrive
            return queue.perform_at(
                _id_of(id),
                lambda one: redrive(one.dead, id, rate=rate, **how),
                lambda done: not (done.redriven or done.exists),
            )
        if rate is not None:
            count, period = parse_rate(rate, "rate")
            rate = f"{count}/{period * len(queue.partitions)}ms"
        return queue.perform_all(lambda one: DeadLetter.redrive(one.dead, rate=rate, **how), _redriven)

    def _edit(self, payloads: Any, how: Mapping[str, Any]) -> Any:
        """Redrive with other payloads, each where its message is: the partitions that have none of them do nothing."""
        if not isinstance(payloads, Mapping) or not payloads:
            raise ConfigurationError("payloads must map ids or entries of dead messages to their new payloads")
        for which in payloads:
            check_entry(which)
        queue = self._queue

        def make(one: Any) -> Any:
            return DeadLetter.redrive(one.dead, payloads=payloads, **how)

        def merge(values: Sequence[Redriven]) -> Redriven:
            gone = set.intersection(*(set(one.gone) for one in values))
            return replace(_redriven(values), gone=tuple(which for which in payloads if which in gone))

        return queue.perform_all(make, merge)

    @mirrors(DeadLetter.purge)
    def purge(self, id: str | None = None, **how: Any) -> Any:
        if id is None:
            return self._queue.perform_all(lambda one: DeadLetter.purge(one.dead, **how), sum)
        return self._queue.perform_at(
            _id_of(id), lambda one: DeadLetter.purge(one.dead, id, **how), lambda done: not done
        )


def _id_of(which: str) -> str:
    """Return the id of an entry `id:token`, or an id as it is; one that looks like an entry is found all the same."""
    id, _, token = check_entry(which).rpartition(":")
    return id if id and token.isdecimal() else which


# Schedules


def _applied(values: Sequence[Applied]) -> Applied:
    outcomes = {name: outcome for one in values for name, outcome in one.outcomes.items()}
    return Applied(outcomes, sorted(name for one in values for name in one.removed))


def _replanned(values: Sequence[Replanned]) -> Replanned:
    return replace(values[0], moved={name: times for one in values for name, times in one.moved.items()})


def _by_name(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method on the schedule with a name, in the partition of that."""

    @wraps(method)
    def routed(self: Any, name: str, *args: Any, **options: Any) -> Any:
        return self._queue.perform_on(str(name), lambda one: method(one.schedules, name, *args, **options))

    return routed


def _by_name_or_all(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method on one schedule by its name, or on all that have a label or a prefix."""

    @wraps(method)
    def routed(self: Any, name: str | None = None, **options: Any) -> Any:
        if name is not None:
            return self._queue.perform_on(str(name), lambda one: method(one.schedules, name, **options))
        return self._queue.perform_all(lambda one: method(one.schedules, **options), sum)

    return routed


class PartitionedSchedules(_View):
    """The schedules, each in the partition of its name, where its messages are, too; see `Schedules`."""

    add = _by_name(Schedules.add)
    get = _by_name(Schedules.get)
    run_now = _by_name(Schedules.run_now)
    next = _by_name(Schedules.next)
    backfill = _by_name(Schedules.backfill)
    skip = _by_name(Schedules.skip)
    move = _by_name(Schedules.move)
    restore = _by_name(Schedules.restore)
    history = _by_name(Schedules.history)
    pause = _by_name_or_all(Schedules.pause)
    resume = _by_name_or_all(Schedules.resume)
    set = _by_name_or_all(Schedules.set)
    remove = _by_name_or_all(Schedules.remove)
    replan = _of_all("schedules", Schedules.replan, _replanned)

    @mirrors(Schedules.add_many)
    def add_many(self, schedules: Iterable[Schedule]) -> Any:
        many = list(schedules)

        def merge(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            found = {name: outcome for one in values for name, outcome in one.items()}
            return {one.name: found[one.name] for one in many}

        return self._queue.perform_all(lambda one: Schedules.add_many(one.schedules, self._own(one, many)), merge)

    def _own(self, partition: Any, schedules: Sequence[Schedule]) -> Sequence[Schedule]:
        return [one for one in schedules if self._queue.partition_of(str(one.name)) is partition]

    @mirrors(Schedules.list)
    def list(self, **how: Any) -> Any:
        def merge(values: Sequence[list[Any]]) -> list[Any]:
            return sorted(merging.one_list(values), key=lambda schedule: schedule.name)

        return self._queue.perform_all(lambda one: Schedules.list(one.schedules, **how), merge)

    @mirrors(Schedules.page)
    def page(self, *, limit: int = 100, cursor: str | None = None, **how: Any) -> Any:
        """One partition after another."""
        return self._queue._perform(_schedules_page(self._queue, limit, cursor, how))  # noqa: SLF001

    @mirrors(Schedules.upcoming)
    def upcoming(self, n: int = 1, **how: Any) -> Any:
        def merge(values: Sequence[list[Any]]) -> list[Any]:
            return sorted(merging.one_list(values), key=lambda occurrence: occurrence.time)[:n]

        return self._queue.perform_all(lambda one: Schedules.upcoming(one.schedules, n, **how), merge)

    @mirrors(Schedules.orphans)
    def orphans(self) -> Any:
        def merge(values: Sequence[list[str]]) -> list[str]:
            return sorted(merging.one_list(values))

        return self._queue.perform_all(lambda one: Schedules.orphans(one.schedules), merge)

    @mirrors(Schedules.apply)
    def apply(self, *, prune: bool = False) -> Any:
        return self._queue.perform_all(lambda one: Schedules.apply(self._queue.declaring(one), prune=prune), _applied)

    @mirrors(Schedules.sync)
    def sync(self, schedules: Iterable[Schedule], **how: Any) -> Any:
        many = list(schedules)
        return self._queue.perform_all(lambda one: Schedules.sync(one.schedules, self._own(one, many), **how), _applied)


def _schedules_page(queue: Any, limit: int, cursor: str | None, how: Mapping[str, Any]) -> Any:
    partitions = queue.partitions
    at, after = place_in(cursor, len(partitions))
    read: Any = Schedules.page
    found, unreadable = list[Any](), dict[str, str]()
    while True:
        left = limit - len(found)
        page: SchedulesPage = yield from read(partitions[at].schedules, limit=left, cursor=after, **how)
        found += page.schedules
        unreadable |= page.unreadable
        after = page.cursor
        at += after is None
        is_over = at == len(partitions)
        if is_over or len(found) >= limit:
            cursor = None if is_over else f"{at}:{after or ''}"
            return replace(page, schedules=found, unreadable=unreadable, cursor=cursor)
