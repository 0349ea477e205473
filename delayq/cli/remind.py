"""`delayq remind`: reminders of the events of iCalendar files, imported, previewed, planned again and taken back."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from delayq.cli.engines import engine_option
from delayq.cli.failure import Exit, Failure, NotFound
from delayq.cli.options import DURATION, QUEUE, TIME, confirm, json_option, yes_option
from delayq.cli.output import put, put_json, say
from delayq.cli.remind_text import (
    Tell,
    as_rows,
    bar,
    calendar_facts,
    counts,
    facts,
    reminder_facts,
    show_calendars,
    show_rows,
    summary,
    waiting,
)
from delayq.cli.session import Session
from delayq.cli.text import counted
from delayq.reminders import Calendar, CalendarInfo, Changes, Reading, calendars, read_calendar

F = TypeVar("F", bound=Callable[..., Any])
SHOWN = 50
"""Changes that a preview shows, unless all are asked for."""
_YEARS = re.compile(r"([0-9]{1,2}) ?y(?:ears?)?")

_queue_option = click.option(
    "--queue", type=QUEUE, default="reminders", show_default=True, help="The queue that the reminders are in."
)


def queue_option(function: F) -> F:
    """Add `--queue`, which is a delay queue's."""
    return _queue_option(engine_option("delay", lacking="reminders")(function))


class Given(NamedTuple):
    """What `import` and `plan` have in common."""

    files: tuple[Path, ...]
    queue: str
    calendar: str | None
    before: tuple[str, ...]
    alarms: bool
    quiet: str | None
    tz: str | None
    until: str
    grace: timedelta
    strict: bool

    def calendars(self) -> dict[str, list[Path]]:
        """Return the files by the calendar that they make."""
        if self.calendar is not None:
            return {self.calendar: [*self.files]}
        named: dict[str, list[Path]] = {}
        for file in self.files:
            if file.name == "-":
                raise click.UsageError("what comes from stdin needs a name: give --calendar")
            named.setdefault(file.stem, []).append(file)
        for name, files in named.items():
            if len(files) > 1:
                raise click.UsageError(f"{len(files)} files are called {name!r}: give --calendar to make them one")
        return named

    def open(self, session: Session, name: str, retries: int | None = None) -> Calendar:
        """Return a calendar."""
        return Calendar(
            session.queue(self.queue),
            name,
            self.before,
            quiet=self.quiet,
            tz=self.tz,
            grace=self.grace,
            retries=retries,
        )

    def read(self, files: list[Path], now: datetime, tell: Tell) -> Reading:
        """Read the files of a calendar."""
        last = _until(self.until, now)
        stdin = click.open_file("-", "rb")
        opened: list[Path | tuple[str, bytes]] = [
            ("stdin", stdin.read()) if file.name == "-" else file for file in files
        ]
        title = f"reading {', '.join(file.name for file in files)}"
        return read_calendar(opened, now=now, until=last, alarms=self.alarms, on_progress=tell(title))


def _until(text: str, now: datetime) -> datetime:
    if years := _YEARS.fullmatch(text.strip()):
        return now + timedelta(days=366 * int(years[1]))
    if re.match(r"[0-9]{4}-", text):
        at: datetime = TIME.convert(text, None, None)
        return at
    ahead: timedelta = DURATION.convert(text, None, None)
    return now + ahead


def _import_options(function: F) -> F:
    options = [
        click.argument(
            "files",
            nargs=-1,
            required=True,
            metavar="FILE...",
            type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
        ),
        queue_option,
        click.option("--calendar", metavar="NAME", help="Name of the calendar; by default that of its file."),
        click.option(
            "--before",
            multiple=True,
            metavar="OFFSET",
            help="15m, 1d, '1 day before at 09:00', 'on the day at 08:00'; any number.",
        ),
        click.option("--alarms", is_flag=True, help="Also remind when the events' own alarms say."),
        click.option("--quiet", metavar="HOURS", help="When nobody is reminded: 22:00-07:00 ('… earlier': before it)."),
        click.option("--tz", metavar="ZONE", help="Whose clocks count: Europe/Berlin.  [default: each event's]"),
        click.option(
            "--until", default="1y", show_default=True, metavar="TIME", help="How far ahead: 90d, 2y, or a time."
        ),
        click.option(
            "--grace", type=DURATION, default="0", metavar="DURATION", help="Send what is late by no more than this."
        ),
        click.option("--strict", is_flag=True, help="Do nothing at all if anything cannot be read."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.group(no_args_is_help=False)
def remind() -> None:
    """Remind people of the events of iCalendar files (pip install 'delayq[reminders]')."""


@remind.command("import", short_help="Send, move and cancel reminders as files say.")
@_import_options
@click.option("--retries", type=click.IntRange(0), metavar="N", help="Redeliveries of a reminder; 3 if not given.")
@click.option("--again", is_flag=True, help="Send everything anew: after messages were lost or purged.")
@json_option
@click.pass_context
def import_(ctx: click.Context, /, *, retries: int | None, again: bool, as_json: bool, **options: Any) -> None:
    """Have a queue hold the reminders of the events in FILE..., each file being a calendar.

    Imported again, only what has changed is sent, moved or cancelled. An event that cannot be read is told in a line
    and keeps the reminders that it has; then the exit code is 1.

    JSON, a line a calendar: {"queue", "calendar", "events", "new", "moved", "changed", "cancelled", "refused",
    "unchanged", "past", "spared", "problems"}; a problem is {"file", "line", "event", "uid", "problem"}.
    """
    session, given = ctx.obj, _given(options)
    with bar() as tell:
        readings = _read(session, given, tell)
        done = []
        for name, reading in readings:
            calendar = given.open(session, name, retries)
            done.append((name, reading, calendar.update(reading, again=again, on_progress=tell("sending"))))
    for name, reading, changes in done:
        told = facts(given.queue, name, reading, changes)
        put_json(told) if as_json else put(f"{name}: {summary(changes, reading)}")
    _end(ctx, done)


@remind.command(short_help="Show what an import would do.")
@_import_options
@click.option("--all", "everything", is_flag=True, help=f"Show every change, not only the first {SHOWN}.")
@json_option
@click.pass_context
def plan(ctx: click.Context, /, *, everything: bool, as_json: bool, **options: Any) -> None:
    """Show what `delayq remind import` would send, move and cancel. Writes nothing.

    JSON, a line a calendar: as of import, and "changes" of {"change", "id", "due", "start", "offset", "summary"}.
    """
    session, given = ctx.obj, _given(options)
    with bar() as tell:
        readings = _read(session, given, tell)
        done = [(name, reading, given.open(session, name).preview(reading)) for name, reading in readings]
    for name, reading, changes in done:
        rows = as_rows(changes)
        if as_json:
            put_json(facts(given.queue, name, reading, changes) | {"changes": rows})
            continue
        put(f"{name}: {summary(changes, reading, would=True)}")
        if rows:
            show_rows(rows if everything else rows[:SHOWN])
        if len(rows) > SHOWN and not everything:
            say(f"and {len(rows) - SHOWN:,} more (--all shows them)")
    _end(ctx, done)


@remind.command(short_help="Plan again, for a newer database of time zones.")
@click.argument("names", nargs=-1, metavar="[CALENDAR...]")
@queue_option
@json_option
@click.pass_obj
def replan(session: Session, *, names: tuple[str, ...], queue: str, as_json: bool) -> None:
    """Plan the events of calendars again as they were imported, all of them if none is named.

    Moves what a newer database of time zones puts elsewhere, and finishes an import that was cut off.

    JSON, a line a calendar: {"queue", "calendar", "new", "moved", "changed", "cancelled", …} as of import.
    """
    found = _calendars(session, queue, names)
    with bar() as tell:
        done = [
            (info.name, Calendar(session.queue(queue), info.name).replan(on_progress=tell("sending"))) for info in found
        ]
    for name, changes in done:
        told = {"queue": queue, "calendar": name, **counts(changes)}
        put_json(told) if as_json else put(f"{name}: {summary(changes)}")


@remind.command("list", short_help="List calendars, or the reminders of one.")
@click.argument("calendar", required=False, metavar="[CALENDAR]")
@queue_option
@json_option
@click.pass_obj
def list_(session: Session, *, calendar: str | None, queue: str, as_json: bool) -> None:
    """List the calendars whose reminders are in a queue; or the reminders of one, the next first.

    JSON: {"calendars": [{"calendar", "changed", "finished", "reminders", "next", "before", "quiet", "tz"}]}, or
    {"reminders": [{"id", "due", "start", "offset", "summary", "location", "uid", "recurrence"}]}.
    """
    found = _calendars(session, queue, (calendar,) if calendar else ())
    now = session.now
    if calendar:
        next_ones = [reminder_facts(one) for one in waiting(found[0], now)]
        if as_json:
            put_json({"reminders": next_ones})
        elif next_ones:
            show_rows(next_ones)
        else:
            say(f"nothing is due of {calendar}")
        return
    if as_json:
        put_json({"calendars": [calendar_facts(info, now) for info in found]})
    elif not found:
        say(f"no calendars in {queue}: delayq remind import brings them")
    else:
        show_calendars(found, now)


@remind.command(short_help="Cancel all reminders of calendars.")
@click.argument("names", nargs=-1, required=True, metavar="CALENDAR...")
@queue_option
@yes_option
@json_option
@click.pass_obj
def forget(session: Session, *, names: tuple[str, ...], queue: str, yes: bool, as_json: bool) -> None:
    """Cancel every reminder of calendars and forget their plans.

    JSON, a line a calendar: {"queue", "calendar", "cancelled"}.
    """
    found = _calendars(session, queue, names)
    many = sum(len(waiting(info, session.now)) for info in found)
    confirm(f"Cancel {counted(many, 'reminder')} of {', '.join(names)}?", yes=yes)
    for info in found:
        cancelled = len(Calendar(session.queue(queue), info.name).forget().cancelled)
        told = {"queue": queue, "calendar": info.name, "cancelled": cancelled}
        put_json(told) if as_json else put(f"{info.name}: cancelled {counted(cancelled, 'reminder')}")


def _given(options: dict[str, Any]) -> Given:
    given = Given(**options)
    if not given.before and not given.alarms:
        raise click.UsageError("say when to remind: --before 1d, or --alarms for the events' own")
    return given


def _read(session: Session, given: Given, tell: Tell) -> list[tuple[str, Reading]]:
    """Read every file before anything is written; what cannot be read is told."""
    named = given.calendars()
    for name in named:
        given.open(session, name)  # what is wrong with the options is said first
    now = given.open(session, next(iter(named))).now()
    readings = [(name, given.read(files, now, tell)) for name, files in named.items()]
    problems = [problem for _, reading in readings for problem in reading.problems]
    for problem in problems:
        say(str(problem))
    if problems and given.strict:
        raise Failure(f"{counted(len(problems), 'problem')}; nothing was imported (--strict)")
    return readings


def _calendars(session: Session, queue: str, names: tuple[str, ...]) -> list[CalendarInfo]:
    found = {info.name: info for info in calendars(session.known(queue))}
    for name in names:
        if name not in found:
            raise NotFound("calendar", name, [*found])
    return [found[name] for name in names] if names else [*found.values()]


def _end(ctx: click.Context, done: list[tuple[str, Reading, Changes]]) -> None:
    """Tell what was left out, and end as that deserves."""
    refused = sum(len(changes.refused) for _, _, changes in done)
    spared = sum(changes.spared for _, _, changes in done)
    if spared:
        say(f"{counted(spared, 'reminder')} left as they were: it could not be read whether their event has changed")
    if refused:
        say(f"{counted(refused, 'reminder')} not taken, being processed or settled just now: import again")
    if refused or any(reading.problems for _, reading, _ in done):
        ctx.exit(Exit.FAILURE)
