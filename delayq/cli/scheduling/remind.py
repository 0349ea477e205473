"""`delayq remind`: imports, previews, replans, lists and forgets the calendars of iCalendar files."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from delayq.broker.engine import Feature
from delayq.cli.scheduling import remind_text
from delayq.cli.scheduling.remind_text import reminder_json
from delayq.cli.support.exit_codes import CommandError, Exit, NotFoundError
from delayq.cli.support.groups import SuggestingGroup
from delayq.cli.support.options import (
    DURATION,
    LOCAL_TIME,
    QUEUE,
    F,
    confirm,
    engine_option,
    json_option,
    options_as,
    retries_option,
    reveal_option,
    yes_option,
)
from delayq.cli.support.output import print_json, print_note, print_result
from delayq.cli.support.progress import Advance, progress_bars
from delayq.cli.support.session import Session
from delayq.privacy.redaction import HIDDEN, Redacted, RedactedPayload
from delayq.reminders import Calendar, CalendarInfo, Changes, Reading, Reminder, account_of, read_calendar
from delayq.reminders.calendar import stored_calendars
from delayq.reminders.plan_store import encrypted_plan
from delayq.values.text import pluralize


def all_calendars(session: Session, queue: str) -> dict[str, CalendarInfo | None]:
    """Return the calendars of a queue by name, None for one whose plan is encrypted."""
    return stored_calendars(session.existing_queue(queue))


def existing_calendars(session: Session, queue: str, names: Sequence[str]) -> list[CalendarInfo]:
    """Return the named calendars, or all of a queue.

    Raises `NotFoundError` if one does not exist, and `ConfigurationError` if the plan of one of them is encrypted.
    """
    stored = all_calendars(session, queue)
    infos = []
    for name in names or stored:
        if name not in stored:
            raise NotFoundError("calendar", name, [*stored])
        info = stored[name]
        if info is None:
            raise encrypted_plan(name)
        infos.append(info)
    return infos


def shown_reminders(reminders: Sequence[Reminder], hidden: Sequence[str]) -> list[dict[str, Any]]:
    """Return reminders for JSON; what these paths of their payloads lead to is hidden."""
    if not hidden:
        return list(map(reminder_json, reminders))
    redacted = Redacted(hidden)
    return [_shown(reminder, redacted) for reminder in reminders]


def _shown(reminder: Reminder, redacted: Redacted) -> dict[str, Any]:
    row = reminder_json(reminder)
    payload = redacted.decode(msgspec.json.encode(reminder.payload))
    if not isinstance(payload, RedactedPayload):
        return row
    shown = msgspec.json.decode(payload)
    if not isinstance(shown, dict):  # it is hidden as a whole
        shown = dict.fromkeys(reminder.payload, HIDDEN)
    return {name: shown.get(name, value) for name, value in row.items()}


MAX_SHOWN = 50
"""Changes that `plan` shows, unless --all is given."""
_OBJECTS = 200_000
"""New objects between two garbage collections: events are many and all needed, so looking for garbage is in vain."""
_YEARS = re.compile(r"([0-9]{1,2}) ?y(?:ears?)?")


def queue_option(function: F) -> F:
    """Add `--queue`, the name of a delay queue."""
    option = click.option("--queue", type=QUEUE, default="reminders", help="Use this queue.")
    return option(engine_option(Feature.REMINDERS)(function))


class ImportOptions(NamedTuple):
    """The options that `import` and `plan` have in common."""

    files: tuple[Path, ...]
    queue: str
    calendar: str | None
    before: tuple[str, ...]
    alarms: bool
    quiet: str | None
    tz: str | None
    until: str
    grace: timedelta
    late: Any
    strict: bool

    def calendars(self) -> dict[str, list[Path]]:
        """Return the files of each calendar, by the calendar's name."""
        if self.calendar is not None:
            return {self.calendar: [*self.files]}
        calendars: dict[str, list[Path]] = {}
        for file in self.files:
            if file.name == "-":
                raise click.UsageError("a calendar from stdin needs a name: give --calendar")
            calendars.setdefault(file.stem, []).append(file)
        for name, files in calendars.items():
            if len(files) > 1:
                raise click.UsageError(f"{len(files)} files are called {name!r}: give --calendar to merge them")
        return calendars

    def open(self, session: Session, name: str, retries: int | None = None) -> Calendar:
        """Return the calendar with this name."""
        options: dict[str, Any] = {"quiet": self.quiet, "tz": self.tz, "grace": self.grace, "late": self.late}
        return Calendar(session.queue(self.queue), name, self.before, retries=retries, **options)

    def read(
        self, session: Session, add_bar: Callable[[str], Advance], retries: int | None = None
    ) -> list[tuple[Calendar, Reading]]:
        """Read all files before anything is written; print what cannot be read."""
        gc.set_threshold(_OBJECTS)
        if not self.before and not self.alarms:
            raise click.UsageError("when should it remind? give --before 1d, or --alarms to use the events' own alarms")
        calendars = self.calendars()
        # Opening them checks the options before any file is read.
        opened = [(self.open(session, name, retries), files) for name, files in calendars.items()]
        now = opened[0][0].now()
        readings = [(calendar, self._read(calendar, files, now, add_bar)) for calendar, files in opened]
        problems = [problem for _, reading in readings for problem in reading.problems]
        for problem in problems:
            print_note(str(problem))
        if problems and self.strict:
            raise CommandError(f"{pluralize(len(problems), 'problem')}; nothing was imported (--strict)")
        return readings

    def _read(self, calendar: Calendar, files: list[Path], now: datetime, add_bar: Callable[[str], Advance]) -> Reading:
        stdin = click.open_file("-", "rb")
        sources: list[Any] = [("stdin", stdin.read()) if file.name == "-" else file for file in files]
        advance = add_bar(f"reading {', '.join(file.name for file in files)}")
        options: dict[str, Any] = {"until": _until(self.until, now), "alarms": self.alarms, "on_progress": advance}
        return read_calendar(sources, now=now, known=calendar.known(), **options)


def _until(text: str, now: datetime) -> datetime:
    if years := _YEARS.fullmatch(text.strip()):
        return now + timedelta(days=366 * int(years[1]))
    if re.match(r"[0-9]{4}-", text):
        at: datetime = LOCAL_TIME.convert(text, None, None)
        return at
    ahead: timedelta = DURATION.convert(text, None, None)
    return now + ahead


_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
_import_options = options_as(
    ImportOptions,
    "options",
    [
        click.argument("files", nargs=-1, required=True, metavar="FILE...", type=_FILE),
        queue_option,
        click.option("--calendar", metavar="NAME", help="Name the calendar.  [default: the name of its file]"),
        click.option(
            "--before",
            multiple=True,
            metavar="OFFSET",
            help="Remind at 15m, 1d, '1 day before at 09:00', 'on the day at 08:00'; repeatable.",
        ),
        click.option("--alarms", is_flag=True, help="Also remind at the events' own alarms."),
        click.option("--quiet", metavar="HOURS", help="Do not remind at 22:00-07:00, but later ('… earlier': before)."),
        click.option("--tz", metavar="ZONE", help="Use this time zone: Europe/Berlin.  [default: each event's]"),
        click.option("--until", default="1y", metavar="TIME", help="Plan ahead to here: 90d, 2y, or a time."),
        click.option("--grace", type=DURATION, default="0", help="Send a late reminder if it is at most this late."),
        click.option(
            "--late",
            type=click.Choice(["now", "skip", "note"]),
            default="now",
            help="Send a reminder now if its event is new or moved and it was due already, skip it, or list it.",
        ),
        click.option("--strict", is_flag=True, help="Do nothing if anything cannot be read."),
    ],
)


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def remind() -> None:
    """Send reminders of the events in iCalendar files (pip install 'delayq[reminders]')."""


@remind.command("import", short_help="Send, move and cancel reminders to match files.")
@_import_options
@retries_option()
@click.option("--again", is_flag=True, help="Send all reminders again, after messages were lost or purged.")
@json_option
@click.pass_obj
def import_(session: Session, options: ImportOptions, *, retries: int | None, again: bool, as_json: bool) -> Exit:
    """Import the events in FILE...: send their reminders to a queue. Each file is a calendar.

    A repeated import sends, moves or cancels only what has changed. An event that cannot be read is reported in one
    line and keeps its reminders; then the exit code is 1.

    JSON, one line per calendar: {"queue", "calendar", "events", "new", "moved", "changed", "cancelled", "refused",
    "late", "unchanged", "past", "spared", "account", "problems"}; "account" is how many "events" are {"planned",
    "past", "without_alarm", "refused", "later", "cancelled"}; a problem is {"file", "line", "event", "uid", "problem"}.
    """
    with progress_bars() as add_bar:
        done = []
        for calendar, reading in options.read(session, add_bar, retries):
            changes = calendar.update(reading, again=again, on_progress=add_bar("sending"))
            done.append((calendar, reading, changes))
    for calendar, reading, changes in done:
        account = account_of(reading, changes, calendar.rules)
        result = remind_text.import_json(options.queue, calendar.name, reading, changes, account)
        print_result(result, f"{calendar.name}: {remind_text.summary(changes, account)}", as_json=as_json)
    return _exit_code(done)


@remind.command(short_help="Show what an import would do.")
@_import_options
@click.option("--all", "everything", is_flag=True, help=f"Show all changes, not only the first {MAX_SHOWN}.")
@json_option
@click.pass_obj
def plan(session: Session, options: ImportOptions, *, everything: bool, as_json: bool) -> Exit:
    """Show what `delayq remind import` would send, move and cancel; change nothing.

    JSON, one line per calendar: like import, with "changes", a list of {"change", "id", "due", "start", "offset",
    "summary"}, and "left_out", a list of {"uid", "why"} of the events that are not planned.
    """
    with progress_bars() as add_bar:
        readings = options.read(session, add_bar)
        done = [(calendar, reading, calendar.preview(reading)) for calendar, reading in readings]
    for calendar, reading, changes in done:
        account = account_of(reading, changes, calendar.rules)
        rows = remind_text.changes_json(changes)
        result = remind_text.import_json(options.queue, calendar.name, reading, changes, account)
        result |= {"changes": rows, "left_out": remind_text.left_out_json(account)}
        print_result(result, f"{calendar.name}: {remind_text.summary(changes, account, would=True)}", as_json=as_json)
        if rows and not as_json:
            remind_text.print_reminders(rows if everything else rows[:MAX_SHOWN])
        if len(rows) > MAX_SHOWN and not (everything or as_json):
            print_note(f"and {len(rows) - MAX_SHOWN:,} more (--all shows them)")
        if everything and not as_json:
            for row in result["left_out"]:
                print_note(f"{row['why']}: event {row['uid']!r}")
    return _exit_code(done)


@remind.command(short_help="Plan again with a newer time zone database.")
@click.argument("names", nargs=-1, metavar="[CALENDAR...]")
@queue_option
@json_option
@click.pass_obj
def replan(session: Session, *, names: tuple[str, ...], queue: str, as_json: bool) -> None:
    """Plan the imported events of each CALENDAR again, or of all calendars.

    Moves reminders whose time differs in a newer time zone database, and finishes an interrupted import.

    JSON, one line per calendar: {"queue", "calendar", "new", "moved", "changed", "cancelled", …} like import.
    """
    infos = existing_calendars(session, queue, names)
    with progress_bars() as add_bar:
        calendars = [Calendar(session.queue(queue), info.name) for info in infos]
        done = [calendar.replan(on_progress=add_bar("sending")) for calendar in calendars]
    for info, changes in zip(infos, done, strict=True):
        result = {"queue": queue, "calendar": info.name, **remind_text.change_counts(changes)}
        print_result(result, f"{info.name}: {remind_text.summary(changes)}", as_json=as_json)


@remind.command("list", short_help="List calendars, or the reminders of one.")
@click.argument("calendar", required=False, metavar="[CALENDAR]")
@queue_option
@reveal_option
@json_option
@click.pass_obj
def list_(session: Session, *, calendar: str | None, queue: str, reveal: bool, as_json: bool) -> None:
    """List the calendars whose reminders are in a queue; with CALENDAR, list its reminders, the next first.

    A calendar whose plan is encrypted is listed as such. What the queue redacts of payloads is hidden of reminders.

    JSON: {"calendars": [{"calendar", "changed", "finished", "reminders", "next", "before", "quiet", "tz",
    "encrypted": if so, others are null}]}, or {"reminders": [{"id", "due", "start", "offset", "summary", "location",
    "uid", "recurrence"}]}.
    """
    if calendar:
        (info,) = existing_calendars(session, queue, (calendar,))
        hidden = [] if reveal else session.check_queue_exists(queue)
        reminders = shown_reminders(remind_text.upcoming(info, session.now), hidden)
        if as_json:
            print_json({"reminders": reminders})
        elif reminders:
            remind_text.print_reminders(reminders)
        else:
            print_note(f"no upcoming reminders in {calendar}")
        return
    infos = all_calendars(session, queue)
    now = session.now
    if as_json:
        print_json({"calendars": [remind_text.calendar_json(name, info, now) for name, info in infos.items()]})
    elif not infos:
        print_note(f"no calendars in {queue}: add one with delayq remind import")
    else:
        remind_text.print_calendars(infos, now)


@remind.command(short_help="Cancel all reminders of calendars.")
@click.argument("names", nargs=-1, required=True, metavar="CALENDAR...")
@queue_option
@yes_option
@json_option
@click.pass_obj
def forget(session: Session, *, names: tuple[str, ...], queue: str, yes: bool, as_json: bool) -> None:
    """Cancel every reminder of each CALENDAR and delete its plan.

    JSON, one line per calendar: {"queue", "calendar", "cancelled"}.
    """
    infos = existing_calendars(session, queue, names)
    total = sum(len(remind_text.upcoming(info, session.now)) for info in infos)
    confirm(f"Cancel {pluralize(total, 'reminder')} of {', '.join(names)}?", yes=yes)
    for info in infos:
        cancelled = len(Calendar(session.queue(queue), info.name).forget().cancelled)
        result = {"queue": queue, "calendar": info.name, "cancelled": cancelled}
        print_result(result, f"{info.name}: cancelled {pluralize(cancelled, 'reminder')}", as_json=as_json)


def _exit_code(done: list[tuple[Calendar, Reading, Changes]]) -> Exit:
    """Report what was skipped, and return the exit code."""
    for _, _, changes in done:
        unsent = [one for one in changes.late if one.id not in changes.at]
        for one in unsent[:MAX_SHOWN]:
            start, what = remind_text.start_text(one.start), repr(one.event.summary or one.event.uid)
            print_note(f"late, not sent: {one.offset} before {what}, {start}")
        if len(unsent) > MAX_SHOWN:
            print_note(f"and {len(unsent) - MAX_SHOWN:,} more late reminders")
    refused = sum(len(changes.refused) for _, _, changes in done)
    spared = sum(changes.spared for _, _, changes in done)
    if spared:
        print_note(f"{pluralize(spared, 'reminder')} left unchanged: their events could not be read")
    if refused:
        why = "they are being processed, or were just settled; import again"
        print_note(f"{pluralize(refused, 'reminder')} not updated: {why}")
    return Exit.FAILURE if refused or any(reading.problems for _, reading, _ in done) else Exit.OK
