"""`delayq schedules skip|move|restore|backfill|history`: works on single occurrences of a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from delayq.cli.scheduling.schedule_selection import not_found, of_queue
from delayq.cli.support.options import WHEN, F, dry_run_option, json_option
from delayq.cli.support.output import json_fields, print_json, print_line, print_note, print_rich, table
from delayq.cli.support.session import Session
from delayq.cli.support.zones import own_iso, read_time, zoned_iso
from delayq.errors import ConfigurationError, UnknownScheduleError
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.scheduling.schedule_history import OccurrenceHistory
from delayq.queue.scheduling.schedule_occurrences import MAX_BACKFILL, MAX_LIMIT
from delayq.schedules.occurrences import OccurrenceChange
from delayq.values.text import format_duration, iso, pluralize

_TIME = "2026-12-24T09:00"


@contextmanager
def _existing(queue: DelayQueue[Any], name: str) -> Iterator[None]:
    """Raise `NotFoundError` with a suggestion if no schedule has this name."""
    try:
        yield
    except UnknownScheduleError:
        raise not_found(queue, name) from None


@click.command(short_help="Send past occurrences of a schedule.")
@of_queue
@click.argument("name")
@click.option(
    "--from", "start", type=WHEN, required=True, metavar="TIME", help="Begin with this time: 2027-01-31T09:00."
)
@click.option("--until", "end", type=WHEN, default="now", metavar="TIME", help="End before this time.  [default: now]")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LIMIT),
    metavar="N",
    default=MAX_BACKFILL,
    help=f"Send nothing if there are more than N.  [default: {MAX_BACKFILL:,}]",
)
@dry_run_option
@json_option
@click.pass_obj
def backfill(
    session: Session, queue: str, name: str, *, start: datetime, end: datetime, limit: int, dry_run: bool, as_json: bool
) -> None:
    """Send a message for each past occurrence of the schedule NAME of QUEUE between two times.

    Occurrences whose messages are in the queue are left out. The next occurrence, which the schedule fires itself, and
    all after it are left out, too.

    JSON: {"name", "times": [TIME, …], "sent", "existed"}, in UTC.
    """
    opened = session.existing_queue(queue)
    with _existing(opened, name):
        done = opened.schedules.backfill(name, start, end, limit=limit, dry_run=dry_run)
    if as_json:
        times = [iso(time) for time in done.times]
        print_json({"name": name, "times": times, "sent": done.sent, "existed": done.existed})
    elif dry_run:
        for time in done.times:
            print_line(own_iso(time))
        print_line(f"{pluralize(len(done.times), 'occurrence')}, nothing was sent")
    else:
        print_line(f"{name}  {pluralize(done.sent, 'message')} sent, {done.existed:,} existed")


def _time(opened: DelayQueue[Any], name: str, text: str) -> date:
    """Return a date, or a time in the zone of the schedule unless it has one."""
    info = opened.schedules.get(name)
    if info is None:
        raise UnknownScheduleError
    if len(text) == len("2026-12-24"):
        with suppress(ValueError):  # raised below, with what is allowed
            return date.fromisoformat(text)
    return read_time(text, "TIME", f"{_TIME} or 2026-12-24", zone=ZoneInfo(info.tz))


def _print(changes: list[OccurrenceChange], *, as_json: bool) -> None:
    """Print what became of occurrences."""
    if as_json:
        rows = [{"occurrence": iso(one.occurrence), "due": iso(one.due), "outcome": one.outcome} for one in changes]
        print_json({"occurrences": rows})
        return
    for one in changes:
        due = f", due {own_iso(one.due)}" if one.due and one.due != one.occurrence else ""
        print_line(f"{own_iso(one.occurrence)}  {one.outcome}{due}")


def _occurrence_arguments(function: F) -> F:
    return of_queue(click.argument("name")(click.argument("occurrence", metavar="TIME")(json_option(function))))


@click.command(short_help="Skip occurrences of a schedule.")
@_occurrence_arguments
@click.pass_obj
def skip(session: Session, queue: str, name: str, occurrence: str, *, as_json: bool) -> None:
    """Skip the occurrence of the schedule NAME of QUEUE at TIME, or on a date such as 2026-12-24.

    TIME is in the zone of the schedule unless it has one, as `delayq schedules next` prints it. If the occurrence has
    fired and its message still waits, that is cancelled.

    JSON: {"occurrences": [{"occurrence", "due", "outcome"}, …]}; "due" is null if it is skipped.
    """
    opened = session.existing_queue(queue)
    with _existing(opened, name):
        _print(opened.schedules.skip(name, _time(opened, name, occurrence)), as_json=as_json)


@click.command(short_help="Move one occurrence of a schedule.")
@_occurrence_arguments
@click.option("--to", metavar="TIME", required=True, help="Set this due time.")
@click.pass_obj
def move(session: Session, queue: str, name: str, occurrence: str, *, to: str, as_json: bool) -> None:
    """Move the occurrence of the schedule NAME of QUEUE at TIME to another time.

    Times are in the zone of the schedule unless they have one. If the occurrence has fired and its message still waits,
    that is rescheduled.

    JSON: like `delayq schedules skip`.
    """
    opened = session.existing_queue(queue)
    with _existing(opened, name):
        times = [_time(opened, name, text) for text in (occurrence, to)]
        for time in times:
            if not isinstance(time, datetime):
                raise ConfigurationError(f"move takes times such as {_TIME}, not the date {time}")
        _print([opened.schedules.move(name, *times)], as_json=as_json)  # type: ignore[arg-type]


@click.command(short_help="Take back a skip or a move.")
@_occurrence_arguments
@click.pass_obj
def restore(session: Session, queue: str, name: str, occurrence: str, *, as_json: bool) -> None:
    """Let the skipped or moved occurrence of the schedule NAME of QUEUE at TIME, or on a date, occur as its rule says.

    JSON: like `delayq schedules skip`.
    """
    opened = session.existing_queue(queue)
    with _existing(opened, name):
        _print(opened.schedules.restore(name, _time(opened, name, occurrence)), as_json=as_json)


@click.command(short_help="Show what became of occurrences.")
@of_queue
@click.argument("name")
@click.option("-n", "--number", type=click.IntRange(1, 1000), metavar="N", default=20, help="Show N occurrences.")
@json_option
@click.pass_obj
def history(session: Session, queue: str, name: str, *, number: int, as_json: bool) -> None:
    """Show what became of the latest occurrences of the schedule NAME of QUEUE that have fired, newest first.

    This is read from the event log, which is off until you turn it on: delayq events QUEUE --on.

    JSON: {"occurrences": [{"id", "occurrence", "result", "due", "fired", "delivered", "ended", "attempts", "lateness",
    "error"}, …], "since", "more"}; "lateness" is in seconds, "since" is the time of the oldest event that was read,
    and "more" is true if the log reaches further back.
    """
    opened = session.existing_queue(queue)
    found = opened.schedules.history(name, limit=number)
    if not found.occurrences and opened.schedules.get(name) is None:
        raise not_found(opened, name)
    if as_json:
        rows = [json_fields(one) for one in found.occurrences]
        print_json({"occurrences": rows, "since": iso(found.since), "more": found.more})
        return
    if found.occurrences:
        print_rich(
            table(["occurrence", "result", "late", "attempts", "error"], [_row(one) for one in found.occurrences])
        )
    if found.since is None:
        print_note(f"no events in {queue}; if its log is off, turn it on: delayq events {queue} --on")
    elif len(found.occurrences) < number:
        reach = "the log was read back to" if found.more else "the log begins at"
        print_note(f"{reach} {zoned_iso(found.since)}")


def _row(one: OccurrenceHistory) -> list[str | int]:
    late = "" if one.lateness is None else format_duration(max(0.0, one.lateness))
    return [zoned_iso(one.occurrence), str(one.result), late, one.attempts, one.error or ""]


OCCURRENCE_COMMANDS = (skip, move, restore, backfill, history)
