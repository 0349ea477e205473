"""What `delayq remind` prints: sentences, tables and JSON of calendars, changes and reminders, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from delayq.cli.output import Column, console, show, table
from delayq.cli.text import clean, counted, iso, when
from delayq.clock import moment
from delayq.reminders import CalendarInfo, Changes, Problem, Reading, Reminder

Tell = Callable[[str], Callable[[int, int], None]]
"""Takes what is being done, and returns what is told how far it is."""

_VERBS = {"new": "sent", "moved": "moved", "changed": "changed", "cancelled": "cancelled"}
_ROW = ("change", "due", "start", "offset", "summary")


def counts(changes: Changes) -> dict[str, int]:
    """Return what an import did, in numbers."""
    lists = {name: len(getattr(changes, name)) for name in (*_VERBS, "refused")}
    return lists | {name: getattr(changes, name) for name in ("unchanged", "past", "spared")}


def facts(queue: str, name: str, reading: Reading, changes: Changes) -> dict[str, Any]:
    """Return what an import did, for machines."""
    problems = [_problem(problem) for problem in reading.problems]
    return {"queue": queue, "calendar": name, "events": reading.found, **counts(changes), "problems": problems}


def summary(changes: Changes, reading: Reading | None = None, *, would: bool = False) -> str:
    """Return what an import did, or would do, in a sentence."""
    numbers = counts(changes)
    did = [f"{numbers[name]:,} {'to be ' if would else ''}{verb}" for name, verb in _VERBS.items() if numbers[name]]
    rest = [f"{numbers[name]:,} {name}" for name in ("unchanged", "past") if numbers[name]]
    found = "" if reading is None else f"{counted(reading.found, 'event')}; "
    return f"{found}reminders: {', '.join([*did, *rest]) or 'none'}"


def as_rows(changes: Changes) -> list[dict[str, Any]]:
    """Return every change, in the order of their due times; the cancelled ones last, of which only the id is known."""
    sent = [
        (one.due, {"change": verb} | reminder_facts(one))
        for verb, ones in (("send", changes.new), ("move", changes.moved), ("change", changes.changed))
        for one in ones
    ]
    rows = [row for _, row in sorted(sent, key=lambda pair: pair[0])]
    return [*rows, *({"change": "cancel", "id": id} for id in changes.cancelled)]


def reminder_facts(reminder: Reminder) -> dict[str, Any]:
    """Return a reminder, for machines."""
    event = reminder.event
    return {
        "id": reminder.id,
        "due": iso(moment(reminder.due)),
        "start": reminder.start,
        "offset": reminder.offset,
        "summary": event.summary,
        "location": event.location,
        "uid": event.uid,
        "recurrence": event.recurrence,
    }


def show_rows(rows: list[dict[str, Any]]) -> None:
    """Print reminders, or changes to them, as a table."""
    names = [name for name in _ROW if any(name in row for row in rows)]
    cells = [[str(row.get(name, "" if name != "summary" else row["id"])) for name in names] for row in rows]
    show(table([Column(name, flexible=name == "summary") for name in names], cells))


def show_calendars(found: list[CalendarInfo], now: datetime) -> None:
    """Print calendars as a table."""
    names = ["calendar", "reminders", "next", "changed", "before", "quiet", "tz"]
    rows = []
    for info in found:
        ahead = waiting(info, now)
        changed = when(info.changed, now) if info.finished else "cut off: import again"
        following = when(moment(ahead[0].due), now) if ahead else ""
        rows.append([info.name, f"{len(ahead):,}", following, changed, ", ".join(info.before), info.quiet, info.tz])
    show(table([Column(name, right=name == "reminders") for name in names], rows))


def calendar_facts(info: CalendarInfo, now: datetime) -> dict[str, Any]:
    """Return a calendar, for machines."""
    ahead = waiting(info, now)
    return {
        "calendar": info.name,
        "changed": iso(info.changed),
        "finished": info.finished,
        "reminders": len(ahead),
        "next": iso(moment(ahead[0].due)) if ahead else None,
        "before": info.before,
        "quiet": info.quiet,
        "tz": info.tz,
    }


def waiting(info: CalendarInfo, now: datetime) -> list[Reminder]:
    """Return the reminders of a calendar that are still to come, the next first."""
    return [one for one in info.reminders if moment(one.due) > now]


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "event": problem.event,
        "uid": problem.uid,
        "problem": problem.what,
    }


@contextmanager
def bar() -> Iterator[Tell]:
    """Show on a terminal how far the work is, a bar for each thing that is done."""
    printer = console(stderr=True)
    if not printer.is_terminal:
        yield lambda _what: lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=printer, transient=True) as progress:

        def begin(what: str) -> Callable[[int, int], None]:
            task = progress.add_task(clean(what), total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield begin
