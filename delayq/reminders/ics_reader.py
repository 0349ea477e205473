"""Reads iCalendar files from any producer: events with their occurrences, and a problem for each unreadable one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq.errors import ConfigurationError
from delayq.reminders.event import Event, start_of
from delayq.reminders.ics_splitter import RawCalendar, split
from delayq.reminders.problem import Problem
from delayq.reminders.zone_table import UnknownZone, ZoneTable
from delayq.times import timestamp

if TYPE_CHECKING:
    from delayq.reminders.vevent import Component, EventSource

HORIZON = timedelta(days=366)
"""How far ahead events are read by default."""
SLACK = timedelta(days=2)
"""Events that started this long ago are still read: the plan decides in which time zone they have started."""
PROGRESS_EVERY = 200
"""Events read between two progress reports."""

File = str | Path | tuple[str, bytes]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """The events and problems read from one calendar."""

    events: list[Event] = field(repr=False)
    problems: list[Problem]
    found: int
    """Events in the files: a series counts as one, each changed occurrence as another."""


def read_calendar(
    files: File | Iterable[File],
    *,
    now: datetime,
    until: datetime | None = None,
    alarms: bool = False,
    on_progress: Progress | None = None,
) -> Reading:
    """Read the events of a calendar that start between `now` and `until`, by default a year and a day later.

    A file is a path, or a pair of name and bytes; several files make one calendar. With `alarms`, the alarms of an
    event become its own offsets. `on_progress` is called with the number of events read and the total. Raises
    `ConfigurationError` for a file that cannot be opened. Errors within a file become problems of the reading, and the
    rest is read.
    """
    timestamp(now, "now")
    last = now + HORIZON if until is None else until
    timestamp(last, "until")
    if last <= now:
        raise ConfigurationError(f"until must be after now, not {last.isoformat()}")
    try:
        import icalendar  # noqa: F401
        import recurring_ical_events  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigurationError("iCalendar files need the extra: pip install 'delayq[reminders]'") from error
    file_list: Iterable[Any] = [files] if isinstance(files, str | Path | tuple) else files
    opened = [(name, split(data)) for name, data in map(_open, file_list)]
    reader = _Reader(now, last, alarms=alarms)
    total = sum(len(raw_calendar.events) for _, raw_calendar in opened)
    sources = (source for name, raw_calendar in opened for source in reader.sources(name, raw_calendar))
    for done, source in enumerate(sources):
        if on_progress is not None and done % PROGRESS_EVERY == 0:
            on_progress(done, total)
        reader.read(source)
    reader.expand()
    if on_progress is not None:
        on_progress(total, total)
    return Reading(reader.events, reader.problems, total)


class _Reader:
    """Collects events; those that share a uid are kept until all files are read."""

    def __init__(self, now: datetime, last: datetime, *, alarms: bool) -> None:
        self.events: list[Event] = []
        self.problems: list[Problem] = []
        self._now, self._last, self._alarms = now, last, alarms
        self._single: dict[str, tuple[EventSource, Event | None]] = {}
        self._several: dict[str, list[tuple[EventSource, Component]]] = {}

    def sources(self, name: str, raw_calendar: RawCalendar) -> Iterator[EventSource]:
        """Yield the events of a file; records problems of the file itself."""
        from delayq.reminders.vevent import EventSource

        self.problems += [Problem(name, line, what) for line, what in raw_calendar.errors]
        zones, zone = ZoneTable(raw_calendar.zones), raw_calendar.zone
        if zone:
            try:
                zone = getattr(zones.find(zone), "key", "")
            except UnknownZone as error:
                self.problems.append(Problem(name, 1, f"X-WR-TIMEZONE: {error}, using UTC", hides=False))
                zone = ""
        for raw in raw_calendar.events:
            yield EventSource(name, raw, zones, zone, raw_calendar.method == "CANCEL")

    def read(self, source: EventSource) -> None:
        from delayq.reminders.vevent import UnreadableEvent, event_of, one_line, recurs, uid_of

        try:
            component = source.parse()
            uid = uid_of(source, component)
            alone = not recurs(component) and uid not in self._several
            if alone and uid not in self._single:
                event = event_of(source, component, component["DTSTART"].dt, uid=uid, alarms=self._alarms)
                relevant = self._is_near(event) and not source.is_cancelled(component)
                self._single[uid] = source, event if relevant else None
                return
            members = self._several.setdefault(uid, [])
            if uid in self._single:
                other, _ = self._single.pop(uid)
                members.append((other, other.parse()))
            members.append((source, component))
        except UnreadableEvent as error:
            self.problems.append(source.problem(str(error)))
        except Exception as error:  # noqa: BLE001 - the libraries raise all kinds of errors
            self.problems.append(source.problem(f"it cannot be read: {one_line(error)}"))

    def expand(self) -> None:
        """Add the occurrences of recurring events; call this last."""
        from delayq.reminders.occurrences import occurrences
        from delayq.reminders.vevent import UnreadableEvent, one_line

        self.events += [event for _, event in self._single.values() if event is not None]
        for uid, members in self._several.items():
            try:
                found = list(occurrences(members, uid, self._now, self._last, alarms=self._alarms))
                self.events += filter(self._is_near, found)
            except UnreadableEvent as error:
                self.problems.append(members[0][0].problem(str(error)))
            except Exception as error:  # noqa: BLE001 - see above
                self.problems.append(members[0][0].problem(f"its occurrences cannot be computed: {one_line(error)}"))

    def _is_near(self, event: Event) -> bool:
        try:
            return self._now - SLACK < start_of(event, None).at <= self._last
        except OverflowError:
            return False


def _open(file: File) -> tuple[str, bytes]:
    if isinstance(file, tuple):
        return file
    path = Path(file)
    try:
        return path.name, path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
