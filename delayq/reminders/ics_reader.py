"""Reading iCalendar files of any producer: events with their occurrences, and a line for each that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq.clock import timestamp
from delayq.errors import ConfigurationError
from delayq.reminders.event import Event, beginning
from delayq.reminders.pieces import Pieces, cut
from delayq.reminders.problem import Problem
from delayq.reminders.zone_table import UnknownZone, ZoneTable

if TYPE_CHECKING:
    from delayq.reminders.components import Component, Part

HORIZON = timedelta(days=366)
"""How far ahead events are read where nothing else is said."""
SLACK = timedelta(days=2)
"""Events are read that began so long ago: on whose clocks one has begun is for the plan to say."""
AT_ONCE = 200
"""Events between two reports of how far the reading is."""

File = str | Path | tuple[str, bytes]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one calendar."""

    events: list[Event] = field(repr=False)
    problems: list[Problem]
    found: int
    """Events in the files: a series is one, and each change of one of its occurrences another."""


def read_calendar(
    files: File | Iterable[File],
    *,
    now: datetime,
    until: datetime | None = None,
    alarms: bool = False,
    on_progress: Progress | None = None,
) -> Reading:
    """Read the events of a calendar that begin between `now` and `until`, a year and a day later by default.

    A file is a path, or a name with the bytes that go by it; several make one calendar. With `alarms` the alarms of an
    event become its own offsets. `on_progress` is told how many events are read, of how many. Raises
    `ConfigurationError` for a file that cannot be opened; what is wrong within a file is a problem of the reading, and
    the rest is read.
    """
    timestamp(now, "now")
    last = now + HORIZON if until is None else until
    timestamp(last, "until")
    if last <= now:
        raise ConfigurationError(f"until must lie ahead, not at {last.isoformat()}")
    try:
        import icalendar  # noqa: F401
        import recurring_ical_events  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigurationError("iCalendar files need the extra: pip install 'delayq[reminders]'") from error
    several: Iterable[Any] = [files] if isinstance(files, str | Path | tuple) else files
    opened = [(name, cut(data)) for name, data in map(_opened, several)]
    reader = _Reader(now, last, alarms=alarms)
    total = sum(len(pieces.events) for _, pieces in opened)
    done = 0
    for name, pieces in opened:
        for part in reader.parts(name, pieces):
            if on_progress is not None and done % AT_ONCE == 0:
                on_progress(done, total)
            done += 1
            reader.read(part)
    reader.expand()
    if on_progress is not None:
        on_progress(total, total)
    return Reading(reader.events, reader.problems, total)


class _Reader:
    """Gathers events; those that share a uid are put aside until all are there."""

    def __init__(self, now: datetime, last: datetime, *, alarms: bool) -> None:
        self.events: list[Event] = []
        self.problems: list[Problem] = []
        self._now, self._last, self._alarms = now, last, alarms
        self._single: dict[str, tuple[Part, Event | None]] = {}
        self._several: dict[str, list[tuple[Part, Component]]] = {}

    def parts(self, name: str, pieces: Pieces) -> Iterator[Part]:
        """Yield the events of a file; notes what is wrong with the file."""
        from delayq.reminders.components import Part

        self.problems += [Problem(name, line, what) for line, what in pieces.trouble]
        zones, zone = ZoneTable(pieces.zones), pieces.zone
        if zone:
            try:
                zone = getattr(zones.find(zone), "key", "")
            except UnknownZone as error:
                self.problems.append(Problem(name, 1, f"X-WR-TIMEZONE: {error}, UTC is taken", hides=False))
                zone = ""
        for piece in pieces.events:
            yield Part(name, piece, zones, zone, pieces.method == "CANCEL")

    def read(self, part: Part) -> None:
        """Take one event."""
        from delayq.reminders.components import Unreadable, event_of, one_line, recurs, uid_of

        try:
            component = part.parse()
            uid = uid_of(part, component)
            alone = not recurs(component) and uid not in self._several
            if alone and uid not in self._single:
                event = event_of(part, component, component["DTSTART"].dt, uid=uid, alarms=self._alarms)
                wanted = self._is_near(event) and not part.withdraws(component)
                self._single[uid] = part, event if wanted else None
                return
            members = self._several.setdefault(uid, [])
            if uid in self._single:
                other, _ = self._single.pop(uid)
                members.append((other, other.parse()))
            members.append((part, component))
        except Unreadable as error:
            self.problems.append(part.problem(str(error)))
        except Exception as error:  # noqa: BLE001 - the libraries raise what their parts happen to raise
            self.problems.append(part.problem(f"it cannot be read: {one_line(error)}"))

    def expand(self) -> None:
        """Find the occurrences of what recurs, and finish."""
        from delayq.reminders.components import Unreadable, one_line
        from delayq.reminders.series import occurrences

        self.events += [event for _, event in self._single.values() if event is not None]
        for uid, members in self._several.items():
            try:
                found = list(occurrences(members, uid, self._now, self._last, alarms=self._alarms))
                self.events += filter(self._is_near, found)
            except Unreadable as error:
                self.problems.append(members[0][0].problem(str(error)))
            except Exception as error:  # noqa: BLE001 - see above
                self.problems.append(members[0][0].problem(f"its occurrences cannot be computed: {one_line(error)}"))

    def _is_near(self, event: Event) -> bool:
        try:
            return self._now - SLACK < beginning(event, None).at <= self._last
        except OverflowError:
            return False


def _opened(file: File) -> tuple[str, bytes]:
    if isinstance(file, tuple):
        return file
    path = Path(file)
    try:
        return path.name, path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
