"""Putting schedules in their places, as operations: each is read, placed by its timetable, and put if it still stands.

Where a consumer fires one meanwhile, or another process changes it, it is read and placed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from delayq.message import Tools
from delayq.operation import Operation
from delayq.schedules.definition import placed, unpack
from delayq.schedules.standing import Standing
from delayq.values import Placing

SLICE = 500
"""Schedules read and put in one call."""
SLICE_BYTES = 1 << 20
"""Bytes of definitions and payloads after which a slice ends before that."""
PAGE = 500
"""Schedules read at a time when all are."""

Place = Callable[[Standing, int], Placing | None]
"""What makes a placing of a schedule as it stands at a server's time (ms); None if it is to stay as it is."""


class ScheduleOutcome(StrEnum):
    """What became of a schedule that was added."""

    NEW = "new"
    CHANGED = "changed"
    """It has this definition now; what it has fired so far stays known."""
    UNCHANGED = "unchanged"


def read_one(tools: Tools, name: str) -> Operation[tuple[Standing | None, int]]:
    """Read a schedule, and the server's time (ms)."""
    (page,) = yield [tools.calls.schedules_page([name], limit=1)]
    return (page.schedules[0] if page.schedules else None), page.now


def read_all(tools: Tools) -> Operation[dict[str, Standing]]:
    """Read all schedules, page by page."""
    found: dict[str, Standing] = {}
    cursor = ""
    while cursor != "0":
        (page,) = yield [tools.calls.schedules_page(cursor=cursor or "0", limit=PAGE)]
        found |= {standing.name: standing for standing in page.schedules}
        cursor = page.cursor
    return found


def put(tools: Tools, specs: Mapping[str, bytes]) -> Operation[dict[str, ScheduleOutcome]]:
    """Put definitions in their places; one that is there already stays as it is."""
    found: dict[str, ScheduleOutcome] = {}
    for names in _slices(specs):
        waiting = names
        while waiting:
            (page,) = yield [tools.calls.schedules_page(waiting, limit=SLICE)]
            standing = {one.name: one for one in page.schedules}
            rows = []
            for name in waiting:
                row = _place(name, standing.get(name), specs[name], page.now)
                if row is None:
                    found[name] = ScheduleOutcome.UNCHANGED
                else:
                    rows.append(row)
                    found[name] = ScheduleOutcome.CHANGED if name in standing else ScheduleOutcome.NEW
            waiting = yield from _put_rows(tools, rows)
    return found


def alter(tools: Tools, name: str, place: Place) -> Operation[Standing | None]:
    """Put a schedule that is there in another place; returns it as it stood, None if there is none."""
    while True:
        standing, now = yield from read_one(tools, name)
        row = None if standing is None else place(standing, now)
        if row is None or not (yield from _put_rows(tools, [row])):
            return standing


def pausing(standing: Standing, _now: int) -> Placing | None:
    """Return how a schedule is paused; None if it is already."""
    return None if standing.paused else Placing(standing.name, standing.revision, "", 1, b"")


def resuming(standing: Standing, now: int) -> Placing | None:
    """Return how a schedule goes on after a pause, counting from now; None if it is not paused."""
    if not standing.paused:
        return None
    at = placed(standing, unpack(standing.spec).timetable, now)
    return Placing(standing.name, standing.revision, "" if at is None else at, 0, b"")


def remove(tools: Tools, names: Iterable[str]) -> Operation[list[str]]:
    """Remove schedules; returns the names of those that were there."""
    meant, gone = list(names), []
    for first in range(0, len(meant), SLICE):
        part = meant[first : first + SLICE]
        digits, *_ = yield [tools.calls.schedule_remove(part), *tools.confirming]
        gone += [name for name, digit in zip(part, digits, strict=True) if digit == "1"]
    return gone


def _put_rows(tools: Tools, rows: list[Placing]) -> Operation[list[str]]:
    """Put schedules; returns the names of those that stand otherwise by now."""
    if not rows:
        return []
    digits, *_ = yield [tools.calls.schedule_put(rows), *tools.confirming]
    return [row.name for row, digit in zip(rows, digits, strict=True) if digit == "0"]


def _place(name: str, standing: Standing | None, spec: bytes, now: int) -> Placing | None:
    timetable = unpack(spec).timetable
    if standing is None:
        at = placed(None, timetable, now)
        return Placing(name, "0", "" if at is None else at, 0, spec)
    at = None if standing.paused else placed(standing, timetable, now)
    # Its time is compared as well: the rules of a zone may have changed since it was put.
    if (standing.spec, standing.next) == (spec, at):
        return None
    return Placing(name, standing.revision, "" if at is None else at, int(standing.paused), spec)


def _slices(specs: Mapping[str, bytes]) -> Iterator[list[str]]:
    names: list[str] = []
    size = 0
    for name, spec in specs.items():
        names.append(name)
        size += len(spec)
        if len(names) == SLICE or size >= SLICE_BYTES:
            yield names
            names, size = [], 0
    if names:
        yield names
