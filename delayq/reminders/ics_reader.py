"""Reads iCalendar files from any producer: events with their occurrences, and a problem for each unreadable one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq.errors import ConfigurationError
from delayq.reminders.event import Event, start_of
from delayq.reminders.ics_splitter import Problem, RawCalendar, split
from delayq.reminders.known_events import Found, KnownEvents, Mark, can_be_known, context_of, digest_of
from delayq.reminders.zone_table import UnknownZone, ZoneTable
from delayq.values.times import timestamp

if TYPE_CHECKING:
    from delayq.reminders.vevent import Component, EventSource

HORIZON = timedelta(days=366)
"""How far ahead events are read by default."""
SLACK = timedelta(days=2)
"""Events that started this long ago are still read: the plan decides in which time zone they have started."""
AHEAD = 8
"""Series are read this fraction of the range beyond it, so that the imports of the next nights know them."""
PROGRESS_EVERY = 200
"""Events read between two progress reports."""
_PLAIN = re.compile(r"[A-Za-z0-9._:@/+=#{}-]+")
"""A uid that needs no parsing."""
_PAST, _NEAR, _LATER = -1, 0, 1
_TIME = re.compile(r"[0-9]{8}(T[0-9]{6}Z?)?")

_Member = tuple["EventSource", "Component | None"]
"""An event and what it was parsed to, None if not yet."""
File = str | Path | tuple[str, bytes]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """The events and problems read from one calendar."""

    events: list[Event] = field(repr=False)
    problems: list[Problem]
    found: int
    """Events in the files: a series counts as one, each changed occurrence as another."""
    known: KnownEvents = field(default_factory=KnownEvents, repr=False)
    """What the next reading need not read again."""
    sizes: dict[str, int] = field(default_factory=dict, repr=False)
    """How many of those `found` each uid of `events` has."""
    left_out: dict[str, list[str]] = field(default_factory=dict, repr=False)
    """The uids of those `found` without `events`, by why: past, later than the range, cancelled, or refused."""


def read_calendar(
    files: File | Iterable[File],
    *,
    now: datetime,
    until: datetime | None = None,
    alarms: bool = False,
    known: KnownEvents | None = None,
    on_progress: Progress | None = None,
) -> Reading:
    """Read the events of a calendar that start between `now` and `until`, by default a year and a day later.

    A file is a path, or a pair of name and bytes; several files make one calendar. With `alarms`, the alarms of an
    event become its own offsets. With `known`, from `Calendar.known`, only events that have changed since are read.
    `on_progress` is called with the number of events read and the total. Raises `ConfigurationError` for a file that
    cannot be opened. Errors within a file become problems of the reading, and the rest is read.
    """
    timestamp(now, "now")
    last = now + HORIZON if until is None else until
    timestamp(last, "until")
    if last <= now:
        raise ConfigurationError(f"until must be after now, not {last.isoformat()}")
    if not (find_spec("icalendar") and find_spec("recurring_ical_events")):
        raise ConfigurationError("iCalendar files need the extra: pip install 'delayq[reminders]'")
    file_list: Iterable[Any] = [files] if isinstance(files, str | Path | tuple) else files
    return _Reader(now, last, known or KnownEvents(), alarms=alarms).read(
        [_open(file) for file in file_list], on_progress or _no_progress
    )


def _no_progress(_done: int, _total: int) -> None:
    pass


class _Reader:
    """Groups the events of all files by uid, and reads each group that is not known."""

    def __init__(self, now: datetime, last: datetime, known: KnownEvents, *, alarms: bool) -> None:
        self._now, self._last, self._alarms = now, last, alarms
        context, at = context_of(alarms=alarms), timestamp(now)
        self._before = known if known.context == context and known.at <= at else KnownEvents()
        self._known = KnownEvents(context, at)
        self._first_day, self._last_day = now.date(), (last - SLACK).date()
        self._ahead, self._last_at = last + max(SLACK, (last - now) / AHEAD), timestamp(last)
        self._problems: list[Problem] = []
        self._found = self._refused = 0
        self._events: list[Event] = []
        self._sizes: dict[str, int] = {}
        self._left_out: dict[str, list[str]] = {}
        self._groups: dict[str, list[_Member]] = {}

    def read(self, files: list[tuple[str, bytes]], on_progress: Progress) -> Reading:
        """Return the events of all files."""
        digest = digest_of(data for _, data in files)
        if self._before.find_all(digest, self._last_at):
            for uid, mark in self._before.marks.items():
                self._put(uid, mark.size, self._before.events.get(uid, []), mark.why)
            on_progress(self._before.found, self._before.found)
            return Reading(self._events, [], self._before.found, self._before, self._sizes, self._left_out)
        for name, data in files:
            for raw_calendar in split(data):
                self._add(name, raw_calendar)
        self._read_groups(on_progress)
        if len(self._known.marks) == len(self._groups) and not self._problems:
            self._known = replace(self._known, files=digest, found=self._found)
        return Reading(self._events, self._problems, self._found, self._known, self._sizes, self._left_out)

    def _add(self, name: str, raw_calendar: RawCalendar) -> None:
        """Add the events of one calendar of a file; records problems of the file itself."""
        from delayq.reminders.vevent import EventSource, uid_of

        self._problems += [Problem(name, line, what) for line, what in raw_calendar.errors]
        zones, zone = ZoneTable(raw_calendar.zones), raw_calendar.zone
        if zone:
            try:
                zone = getattr(zones.find(zone), "key", "")
            except UnknownZone as error:
                self._problems.append(Problem(name, 1, f"X-WR-TIMEZONE: {error}, using UTC", hides=False))
                zone = ""
        cancelled = raw_calendar.method == "CANCEL"
        context = digest_of(
            [zone.encode(), raw_calendar.method.encode(), *(one.text.encode() for one in raw_calendar.zones)]
        )
        self._found += len(raw_calendar.events)
        for raw in raw_calendar.events:
            source, component = EventSource(name, raw, zones, zone, cancelled, self._problems, context), None
            uid = raw.uid
            if not _PLAIN.fullmatch(uid):
                component = self._parse(source)
                if component is None:
                    continue
                uid = uid_of(source, component)
            self._groups.setdefault(uid, []).append((source, component))

    def _read_groups(self, on_progress: Progress) -> None:
        done = reported = 0
        for uid, members in self._groups.items():
            if done >= reported:
                on_progress(done, self._found)
                reported += PROGRESS_EVERY
            done += len(members)
            self._read_group(uid, members)
        on_progress(self._found, self._found)

    def _read_group(self, uid: str, members: list[_Member]) -> None:
        digest = digest_of(part for source, _ in members for part in (source.context, source.raw.content))
        refused = self._refused
        known = self._before.find(uid, digest, self._last_at)
        if known is not None:
            mark = self._before.marks[uid]
            found = Found(known, mark.until, mark.why)
        else:
            problems = len(self._problems)
            found = self._events_of(uid, members)
            known = None if len(self._problems) > problems else found.events
        size = len(members) - (self._refused - refused)
        kept = self._put(uid, size, found.events, found.why)
        if known is not None and all(map(can_be_known, known)):
            self._known.marks[uid] = Mark(digest, found.until, size, found.why)
            if kept:
                self._known.events[uid] = kept

    def _put(self, uid: str, size: int, events: list[Event], why: str) -> list[Event]:
        """Add the events of a uid that are in the range; return those that are not past."""
        times = [(event, self._time(event)) for event in events]
        near = [event for event, time in times if time == _NEAR]
        self._events += near
        kept = [event for event, time in times if time != _PAST]
        if near:
            self._sizes[uid] = size
        elif size:
            self._left_out.setdefault("later" if kept else why, []).extend([uid] * size)
        return kept

    def _events_of(self, uid: str, members: list[_Member]) -> Found:
        """Read the events of a uid up to some time after the horizon; records what cannot be read."""
        from delayq.reminders.expansion import occurrences
        from delayq.reminders.vevent import UnreadableEvent, event_of, one_line, recurs

        if len(members) == 1 and (found := self._far(members[0][0])):
            return found
        parsed = [(source, component or self._parse(source)) for source, component in members]
        readable = [(source, component) for source, component in parsed if component is not None]
        if not readable:
            return Found([])
        source, component = readable[0]
        try:
            if len(readable) > 1 or recurs(component):
                return occurrences(readable, uid, self._now, self._ahead, alarms=self._alarms)
            if source.is_cancelled(component):
                return Found([], why="cancelled")
            start = component["DTSTART"].dt
            alarm_offsets = source.alarms(start) if self._alarms else ()
            return Found([event_of(source, component, start, uid=uid, alarms=alarm_offsets)])
        except UnreadableEvent as error:
            self._refuse(source, str(error), len(readable))
        except Exception as error:  # noqa: BLE001 - the libraries raise all kinds of errors
            self._refuse(source, f"it cannot be read: {one_line(error)}", len(readable))
        return Found([])

    def _refuse(self, source: EventSource, what: str, size: int = 1) -> None:
        """Report an event that cannot be read, and that it costs so many."""
        problem = source.problem(what)
        self._problems.append(problem)
        self._left_out.setdefault("refused", []).extend([problem.uid] * size)
        self._refused += size

    def _far(self, source: EventSource) -> Found | None:
        """Return that nothing is found if an event is far from the range; its lines need not be read."""
        raw = source.raw
        cancelled = source.cancelled or raw.value("STATUS").upper() == "CANCELLED"
        if raw.recurs or not (raw.whole and _TIME.fullmatch(raw.start)):
            return None
        if raw.start < f"{self._now - 2 * SLACK:%Y%m%d}":
            return Found([], why="cancelled" if cancelled else "past")
        if raw.start > f"{self._ahead + 2 * SLACK:%Y%m%d}":
            return Found([], timestamp(self._ahead), "cancelled" if cancelled else "later")
        return None

    def _parse(self, source: EventSource) -> Component | None:
        from delayq.reminders.vevent import UnreadableEvent, one_line

        try:
            return source.parse()
        except UnreadableEvent as error:
            self._refuse(source, str(error))
        except Exception as error:  # noqa: BLE001 - see above
            self._refuse(source, f"it cannot be read: {one_line(error)}")
        return None

    def _time(self, event: Event) -> int:
        """Return whether an event is past, in the range or later."""
        start = event.start
        if self._first_day < (start.date() if isinstance(start, datetime) else start) < self._last_day:
            return _NEAR  # in any time zone, which saves most of the time
        try:
            at = start_of(event, None).at
        except OverflowError:
            return _PAST
        return _PAST if at <= self._now - SLACK else _NEAR if at <= self._last else _LATER


def _open(file: File) -> tuple[str, bytes]:
    if isinstance(file, tuple):
        return file
    path = Path(file)
    try:
        return path.name, path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
