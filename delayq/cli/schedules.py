"""`delayq schedules`: listing, adding, pausing, resuming, removing and running the schedules of a queue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from delayq.cli.engines import delay_queue
from delayq.cli.failure import Failure, NotFound
from delayq.cli.messages import as_read
from delayq.cli.options import DURATION, TIME, codec_option, json_option
from delayq.cli.output import Column, put, put_json, say, show, table
from delayq.cli.send import headers_given, reader
from delayq.cli.session import Session
from delayq.cli.text import counted, exactly, iso, preview, span, when
from delayq.errors import UnknownScheduleError
from delayq.queue import DelayQueue
from delayq.schedules.face import Schedules
from delayq.schedules.info import ScheduleInfo
from delayq.schedules.timetable import MOST_FIRED

_COLUMNS = [
    Column("name"),
    Column("occurs"),
    Column("next"),
    Column("last"),
    Column("fired", right=True),
    Column("state"),
]

of_queue = delay_queue("schedules")
name_argument = click.argument("name")
names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)


@click.group(no_args_is_help=False)
def schedules() -> None:
    """List, add, pause, resume, remove or run schedules: what sends a message again and again."""


@schedules.command("list", short_help="List schedules.")
@of_queue
@json_option
@click.pass_obj
def list_(session: Session, queue: str, *, as_json: bool) -> None:
    """List the schedules of QUEUE.

    JSON: {"schedules": [{"name", "state", "next", "last", "fired", "cron", "every", "tz", "payload", "encoding",
    "retries", "headers", "start", "end", "count", "misfire", "late_after", "declared"}, …]}; every and late_after in
    seconds.
    """
    found = session.known(queue).schedules.list()
    if as_json:
        put_json({"schedules": [facts(info) for info in found]})
    elif found:
        show(table(_COLUMNS, [_row(info, session.now) for info in found]))
    else:
        say(f"no schedules in {queue}")


@schedules.command("show", short_help="Show one schedule.")
@of_queue
@name_argument
@json_option
@click.pass_obj
def show_(session: Session, queue: str, name: str, *, as_json: bool) -> None:
    """Show the schedule NAME of QUEUE.

    JSON: as one schedule of `delayq schedules list --json`.
    """
    known = session.known(queue)
    info = known.schedules.get(name)
    if info is None:
        raise _not_found(known, name)
    if as_json:
        put_json(facts(info))
    else:
        show(table([Column(""), Column("", wraps=True)], _details(info, session.now), titles=False))


@schedules.command("add", short_help="Add or change a schedule.")
@of_queue
@name_argument
@click.argument("payload", required=False, default="null")
@click.option("--cron", metavar="EXPRESSION", help="When, by a cron expression: '0 9 * * MON-FRI', '@daily'.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron, such as Europe/Berlin; UTC if not given.")
@click.option("--every", type=DURATION, metavar="DURATION", help="When, by the time between two: 30s, 15m, 1d.")
@codec_option
@click.option("--retries", type=click.IntRange(0), metavar="N", help="Redeliveries of each message; 3 if not given.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", callback=headers_given, help="Sent along; any number.")
@click.option("--start", type=TIME, metavar="TIME", help="Not before a time with its zone: 2027-01-31T09:00+01:00.")
@click.option("--end", type=TIME, metavar="TIME", help="Not after.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="For so many messages.")
@click.option(
    "--misfire", metavar="skip|once|N", default="once", show_default=True, help="How many missed ones to fire."
)
@click.option(
    "--late-after",
    type=DURATION,
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="By how much an occurrence is missed.",
)
@click.pass_obj
def add(
    session: Session,
    /,
    queue: str,
    name: str,
    payload: str,
    *,
    codec: str,
    header: dict[str, str],
    misfire: str,
    **options: Any,
) -> None:
    """Add the schedule NAME to QUEUE, by --cron or --every, whose messages have PAYLOAD (JSON; null if not given).

    One of this name that is the same stays as it is; another is changed into this one.
    """
    into: DelayQueue[Any] = session.queue(queue, codec=codec)
    read = reader(codec)(os.fsencode("" if codec != "json" and payload == "null" else payload), "PAYLOAD")
    policy: Any = int(misfire) if misfire.isdecimal() else misfire
    outcome = into.schedules.add(name, payload=read, headers=header or None, misfire=policy, **options)
    info = into.schedules.get(name)
    put(f"{name}  {outcome}")
    if info is not None:
        say(f"next {exactly(info.next, datetime.now(UTC))}" if info.next else f"it is {info.state}")


def _each(session: Session, queue: str, names: tuple[str, ...], act: Callable[[Any, str], Any], done: str) -> None:
    """Do something to schedules, and say what was done; in the end, which one was not there."""
    known = session.known(queue)
    missing: list[Failure] = []
    for name in names:
        try:
            is_known = act(known.schedules, name) is not False  # as `remove` answers; the others raise
        except UnknownScheduleError:
            is_known = False
        if is_known:
            put(f"{name}  {done}")
        else:
            missing.append(_not_found(known, name))
    if missing:
        raise missing[-1]


@schedules.command("pause", short_help="Have schedules fire no more for now.")
@of_queue
@names_argument
@click.pass_obj
def pause(session: Session, queue: str, names: tuple[str, ...]) -> None:
    """Pause the schedules NAME... of QUEUE: they stay, and fire nothing until they are resumed."""
    _each(session, queue, names, Schedules.pause, "paused")


@schedules.command("resume", short_help="Have paused schedules go on.")
@of_queue
@names_argument
@click.pass_obj
def resume(session: Session, queue: str, names: tuple[str, ...]) -> None:
    """Resume the schedules NAME... of QUEUE from now on: what would have occurred meanwhile is not fired."""
    _each(session, queue, names, Schedules.resume, "resumed")


@schedules.command("remove", short_help="Remove schedules.")
@of_queue
@names_argument
@click.pass_obj
def remove(session: Session, queue: str, names: tuple[str, ...]) -> None:
    """Remove the schedules NAME... of QUEUE; messages that they have fired stay."""
    _each(session, queue, names, Schedules.remove, "removed")


@schedules.command("run", short_help="Send a message of a schedule now.")
@of_queue
@name_argument
@click.pass_obj
def run(session: Session, queue: str, name: str) -> None:
    """Send one message of the schedule NAME of QUEUE at once, paused or not. Prints its id."""
    known = session.known(queue)
    try:
        put(known.schedules.run_now(name).id)
    except UnknownScheduleError:
        raise _not_found(known, name) from None


@schedules.command("next", short_help="Show when a schedule occurs.")
@of_queue
@name_argument
@click.option("-n", "--number", type=click.IntRange(1, MOST_FIRED), default=5, show_default=True, help="How many.")
@json_option
@click.pass_obj
def next_(session: Session, queue: str, name: str, *, number: int, as_json: bool) -> None:
    """Show the next occurrences of the schedule NAME of QUEUE, in its zone; none of one that is paused or has ended.

    JSON: {"name", "next": [TIME, …]}, in UTC.
    """
    known = session.known(queue)
    try:
        times = known.schedules.next(name, number)
    except UnknownScheduleError:
        raise _not_found(known, name) from None
    if as_json:
        put_json({"name": name, "next": [iso(time) for time in times]})
        return
    for time in times:
        put(f"{time.isoformat(timespec='seconds')}  {when(time, session.now)}")
    if not times:
        say(f"{name} does not occur any more, or is paused")


def facts(info: ScheduleInfo) -> dict[str, Any]:
    """Return a schedule for machines: every field, times in ISO 8601, durations in seconds."""
    payload, encoding, _ = as_read(info.payload, len(info.payload))
    return {
        "name": info.name,
        "state": info.state,
        "next": iso(info.next),
        "last": iso(info.last),
        "fired": info.fired,
        "cron": info.cron,
        "every": _seconds(info.every),
        "tz": info.tz,
        "payload": payload,
        "encoding": encoding,
        "retries": info.retries,
        "headers": dict(info.headers),
        "start": iso(info.start),
        "end": iso(info.end),
        "count": info.count,
        "misfire": info.misfire,
        "late_after": _seconds(info.late_after),
        "declared": info.declared,
    }


def _not_found(queue: DelayQueue[Any], name: str) -> NotFound:
    return NotFound("schedule", name, [info.name for info in queue.schedules.list()])


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()


def _occurs(info: ScheduleInfo) -> str:
    if info.every is not None:
        return f"every {span(info.every.total_seconds())}"
    return f"{info.cron} {info.tz}"


def _row(info: ScheduleInfo, now: datetime) -> list[str]:
    return [info.name, _occurs(info), when(info.next, now), when(info.last, now), f"{info.fired:,}", str(info.state)]


def _details(info: ScheduleInfo, now: datetime) -> Iterator[tuple[str, str]]:
    named = {
        "name": info.name,
        "state": str(info.state),
        "occurs": _occurs(info),
        "next": exactly(info.next, now),
        "last": exactly(info.last, now),
        "fired": counted(info.fired, "message") + (f" of {info.count:,}" if info.count else ""),
        "start": exactly(info.start, now),
        "end": exactly(info.end, now),
        "misfire": f"{info.misfire}, after {span(info.late_after.total_seconds())}",
        "retries": str(info.retries),
        "declared": "in code" if info.declared else "",
        **{f"header {name}": value for name, value in info.headers.items()},
        "payload": preview(info.payload, len(info.payload)),
    }
    return ((name, value) for name, value in named.items() if value)
