"""Operations on many schedules: those with a label, or with names that begin with a text, page by page.

An index has the names of each label, so operations on a label read no other schedules. A prefix alone reads all names.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection
from typing import NamedTuple

from delayq.broker.context import QueueContext
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.safe_log import SafeLog
from delayq.schedules.calls import StoredSchedule, schedules_find_call, schedules_page_call
from delayq.schedules.definition import check_label, check_schedule, declared_label, unpack
from delayq.schedules.store import BATCH, Change, put_rows, remove

log = SafeLog("delayq.schedules")

_CURSOR = re.compile(r"@[A-Za-z0-9._-]{1,100}|[0-9]{1,19}")
"""What cursors look like: the last name of a page, or the position of a scan."""

Occurrence = tuple[int, StoredSchedule]
"""A time (ms) and its schedule."""


class ScheduleSelection(NamedTuple):
    """One schedule by its name, or those with a label, or with names that begin with a prefix, or both; '' for any."""

    name: str = ""
    label: str = ""
    prefix: str = ""

    def has(self, stored: StoredSchedule) -> bool:
        """Tell whether a schedule that was found has the label: an older delayq does not update the index."""
        try:
            return not self.label or self.label in unpack(stored.spec).definition.labels
        except ConfigurationError:  # it cannot be read
            return False


class _Part(NamedTuple):
    """Some of the selected schedules, as of a server time (ms)."""

    now: int
    schedules: list[StoredSchedule]


def select(name: str | None, label: str | None, prefix: str | None) -> ScheduleSelection:
    """Return a selection; raises `ConfigurationError` if it is not valid, or if nothing is given."""
    if (name is None) is (label is None and prefix is None):
        raise ConfigurationError("select schedules: give a name, or a label, a prefix or both")
    return ScheduleSelection("" if name is None else check_schedule(name), *select_many(label, prefix)[1:])


def select_many(label: str | None, prefix: str | None) -> ScheduleSelection:
    """Return a selection by label and prefix, all schedules without; raises `ConfigurationError` if it is not valid."""
    return ScheduleSelection(
        label="" if label is None else check_label(label), prefix="" if prefix is None else check_schedule(prefix)
    )


def find(
    context: QueueContext, selection: ScheduleSelection, cursor: str, limit: int
) -> Operation[tuple[list[str], str]]:
    """Find a page of names, and the cursor of the next one ('' at the end)."""
    name, label, prefix = selection
    if name:
        return [name], ""
    if cursor and not (isinstance(cursor, str) and _CURSOR.fullmatch(cursor)):
        raise ConfigurationError(f"cursor {short_repr(cursor)} is not from a page of schedules")
    names: list[str] = []
    while len(names) < limit:
        find = schedules_find_call(context.calls, label=label, prefix=prefix, cursor=cursor, limit=limit - len(names))
        ((cursor, page),) = yield [find]
        names += page
        if not cursor:
            break
    return names, cursor


class _Walk:
    """Goes through the selected schedules, as many at a time as one reply has."""

    def __init__(self, context: QueueContext, selection: ScheduleSelection) -> None:
        """Begin before the first."""
        self._context = context
        self._selection = selection
        self._cursor: str | None = ""
        self.names: list[str] = []
        """Those to read before the next page."""

    def read(self) -> Operation[_Part | None]:
        """Read some more; None at the end."""
        while not self.names:
            if self._cursor is None:
                return None
            self.names, cursor = yield from find(self._context, self._selection, self._cursor, BATCH)
            self._cursor = cursor or None
        part, self.names = yield from _read_part(self._context, self._selection, self.names)
        return part


def _read_part(
    context: QueueContext, selection: ScheduleSelection, names: list[str]
) -> Operation[tuple[_Part, list[str]]]:
    """Read the first of some names, and return which names remain."""
    (page,) = yield [schedules_page_call(context.calls, names, limit=BATCH)]
    remaining = names[names.index(page.schedules[-1].name) + 1 :] if page.schedules else []
    return _Part(page.now, [stored for stored in page.schedules if selection.has(stored)]), remaining


def read_page(
    context: QueueContext, selection: ScheduleSelection, cursor: str, limit: int
) -> Operation[tuple[_Part, str]]:
    """Read up to `limit` schedules, sorted by name, and the cursor of the next page ('' at the end)."""
    names, cursor = yield from find(context, selection, cursor, limit)
    found, now = dict[str, StoredSchedule](), 0
    while names:
        part, names = yield from _read_part(context, selection, names)
        found, now = found | {stored.name: stored for stored in part.schedules}, part.now
    return _Part(now, [found[name] for name in sorted(found)]), cursor


def read_selected(context: QueueContext, selection: ScheduleSelection) -> Operation[_Part]:
    """Read all selected schedules, sorted by name."""
    walk = _Walk(context, selection)
    found, now = dict[str, StoredSchedule](), 0
    while part := (yield from walk.read()):
        found, now = found | {stored.name: stored for stored in part.schedules}, part.now
    return _Part(now, [found[name] for name in sorted(found)])


def change_each(context: QueueContext, selection: ScheduleSelection, change: Change) -> Operation[tuple[int, int]]:
    """Change the selected schedules; returns how many there are, and how many have changed."""
    walk = _Walk(context, selection)
    total, changed = 0, 0
    while part := (yield from walk.read()):
        rows = [row for stored in part.schedules if (row := change(stored, part.now)) is not None]
        again = yield from put_rows(context, rows)
        walk.names[:0] = again  # others have changed them meanwhile
        total, changed = total + len(part.schedules) - len(again), changed + len(rows) - len(again)
    return total, changed


def _is_readable(stored: StoredSchedule) -> bool:
    """Return whether the times of a schedule can be worked out: one of another program may not be understood."""
    try:
        unpack(stored.spec).definition.timetable  # noqa: B018 - raises if not
    except ConfigurationError as error:
        log.warning("schedule %s is left out: %s", stored.name, error, extra={"schedule": stored.name})
        return False
    return True


def find_names(context: QueueContext, selection: ScheduleSelection) -> Operation[list[str]]:
    """Return the names of the selected schedules, sorted."""
    names, cursor = yield from find(context, selection, "", LOOKED_AT)
    while cursor:
        more, cursor = yield from find(context, selection, cursor, LOOKED_AT)
        names += more
    return sorted(names)


def remove_each(context: QueueContext, selection: ScheduleSelection) -> Operation[int]:
    """Remove the selected schedules; returns how many."""
    walk = _Walk(context, selection)
    removed = 0
    while part := (yield from walk.read()):
        removed += len((yield from remove(context, [stored.name for stored in part.schedules])))
    return removed


def upcoming(context: QueueContext, selection: ScheduleSelection, n: int) -> Operation[list[Occurrence]]:
    """Return the next `n` occurrences of the selected schedules together, earliest first."""
    walk = _Walk(context, selection)
    first: dict[str, tuple[int, str, StoredSchedule]] = {}
    while part := (yield from walk.read()):
        active = [(one.next, one.name, one) for one in part.schedules if one.next is not None and _is_readable(one)]
        first |= {one[1]: one for one in active}
        # No other schedule can have one of the next `n` occurrences.
        first = {one[1]: one for one in heapq.nsmallest(n, first.values())}
    heap, fired = sorted(first.values()), {name: one[2].fired for name, one in first.items()}
    times: list[Occurrence] = []
    while heap and len(times) < n:
        at, name, stored = heap[0]
        times.append((at, stored))
        fired[name] += 1
        following = unpack(stored.spec).definition.timetable.after(at, fired[name])
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, name, stored))
    return times


NAMED = 10
"""Names in a line of the log."""
LOOKED_AT = 1000
"""Names of declared schedules that a start reads."""


def find_orphans(
    context: QueueContext, declared: Collection[str], *, at_most: int | None = None
) -> Operation[list[str]]:
    """Return the names of schedules that this service has declared and that are not in `declared`, sorted.

    The queue's option `owner` names the service; all without one count as the same. With `at_most`, only so many names
    are looked at.
    """
    selection = ScheduleSelection(label=declared_label(context.settings.owner))
    orphans: list[str] = []
    cursor = ""
    while True:
        names, cursor = yield from find(context, selection, cursor, at_most or LOOKED_AT)
        remaining = [name for name in names if name not in declared]
        while remaining:  # one reply has a limited number of bytes
            (page,) = yield [schedules_page_call(context.calls, remaining, limit=BATCH)]
            orphans += [stored.name for stored in page.schedules if _is_declared(stored.spec, selection.label)]
            read = page.schedules[-1].name if page.schedules else remaining[-1]
            remaining = remaining[remaining.index(read) + 1 :]
        if at_most or not cursor:
            return sorted(orphans)


def log_orphans(context: QueueContext, declared: Collection[str]) -> Operation[None]:
    """Log in one line which schedules this service has declared but no longer declares."""
    orphans = yield from find_orphans(context, declared, at_most=LOOKED_AT)
    if orphans:
        shown = ", ".join(orphans[:NAMED]) + (", …" if len(orphans) > NAMED else "")
        text = "queue %s: schedules are left over that this program does not declare: %s; %s"
        owned = "remove them, or call schedules.apply(prune=True)"
        unowned = "remove them, or give each service that declares schedules here an owner"
        hint = owned if context.settings.owner else unowned
        log.warning(text, context.queue, shown, hint, extra={"queue": context.queue, "schedules": orphans})


def _is_declared(spec: bytes, label: str) -> bool:
    try:
        definition = unpack(spec).definition
    except ConfigurationError:  # it cannot be read
        return False
    return definition.declared and label in definition.labels
