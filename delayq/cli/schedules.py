"""`delayq schedules`: lists, adds, pauses, resumes, removes and runs the schedules of a queue."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.exit_codes import CommandError, NotFoundError
from delayq.cli.message_json import decode_payload
from delayq.cli.options import DURATION, TIME, codec_option, header_option, json_option, queue_with, retries_option
from delayq.cli.output import json_fields, print_details, print_json, print_line, print_note, print_rich, table
from delayq.cli.send import payload_parser
from delayq.cli.session import Session
from delayq.cli.suggestions import SuggestingGroup
from delayq.cli.zones import exact_time
from delayq.errors import UnknownScheduleError
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.schedules import Schedules
from delayq.schedules.info import ScheduleInfo
from delayq.schedules.timetable import MAX_FIRED
from delayq.text import format_duration, iso, pluralize, preview, relative_time

_TITLES = ["name", "occurs", "next", "last", "fired", "state"]
of_queue = queue_with(Feature.SCHEDULES)
_NUMBER = click.IntRange(1, MAX_FIRED)
name_argument = click.argument("name")
names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def schedules() -> None:
    """List, add, pause, resume, remove or run schedules, which send recurring messages."""


@schedules.command("list", short_help="List schedules.")
@of_queue
@json_option
@click.pass_obj
def list_(session: Session, queue: str, *, as_json: bool) -> None:
    """List the schedules of QUEUE.

    JSON: {"schedules": [{"name", "state", "next", "last", "fired", "cron", "every", "tz", "payload", "encoding",
    "retries", "headers", "start", "end", "count", "misfire", "late_after", "declared"}, …]}; "every" and "late_after"
    are in seconds.
    """
    found = session.existing_queue(queue).schedules.list()
    if as_json:
        print_json({"schedules": [_json(info) for info in found]})
    elif found:
        print_rich(table(_TITLES, [_row(info, session.now) for info in found]))
    else:
        print_note(f"no schedules in {queue}")


@schedules.command("show", short_help="Show one schedule.")
@of_queue
@name_argument
@json_option
@click.pass_obj
def show_(session: Session, queue: str, name: str, *, as_json: bool) -> None:
    """Show the schedule NAME of QUEUE.

    JSON: like one schedule of `delayq schedules list --json`.
    """
    opened = session.existing_queue(queue)
    info = opened.schedules.get(name)
    if info is None:
        raise _not_found(opened, name)
    if as_json:
        print_json(_json(info))
    else:
        print_details(_details(info, session.now))


@schedules.command("add", short_help="Add or change a schedule.")
@of_queue
@name_argument
@click.argument("payload", required=False, default="null")
@click.option(
    "--cron", metavar="EXPRESSION", help="Send at the times of a cron expression: '0 9 * * MON-FRI', '@daily'."
)
@click.option("--tz", metavar="ZONE", help="Read --cron in this time zone, such as Europe/Berlin.  [default: UTC]")
@click.option("--every", type=DURATION, help="Send at this interval: 30s, 15m, 1d.")
@codec_option
@retries_option()
@header_option
@click.option("--start", type=TIME, metavar="TIME", help="Start at this time: 2027-01-31T09:00+01:00.")
@click.option("--end", type=TIME, metavar="TIME", help="End at this time.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("--misfire", metavar="skip|once|N", default="once", help="Send this many missed occurrences.")
@click.option(
    "--late-after",
    type=DURATION,
    help="Treat an occurrence later than this as missed.  [default: 60s, or until the next]",
)
@click.pass_obj
def add(
    session: Session, /, queue: str, name: str, payload: str, *, codec: str, header: Any, misfire: str, **options: Any
) -> None:
    """Add the schedule NAME to QUEUE: send PAYLOAD (JSON, by default null) by --cron or --every.

    If NAME exists, it is changed; an identical schedule stays as it is.
    """
    opened: DelayQueue[Any] = session.queue(queue, codec=codec)
    parsed = payload_parser(codec)(os.fsencode("" if codec != "json" and payload == "null" else payload), "PAYLOAD")
    policy: Any = int(misfire) if misfire.isdecimal() else misfire
    outcome = opened.schedules.add(name, payload=parsed, headers=header or None, misfire=policy, **options)
    info = opened.schedules.get(name)
    print_line(f"{name}  {outcome}")
    if info is not None:
        following = exact_time(info.next, datetime.now(UTC))
        print_note(f"next {following}" if following else f"no next occurrence: {name} is {info.state}")


def _for_each(session: Session, queue: str, names: tuple[str, ...], act: Callable[[Any, str], Any], done: str) -> None:
    """Act on schedules and report each; raise `NotFoundError` at the end if one does not exist."""
    opened = session.existing_queue(queue)
    missing: list[CommandError] = []
    for name in names:
        try:
            found = act(opened.schedules, name) is not False  # `remove` returns False, the others raise
        except UnknownScheduleError:
            found = False
        if found:
            print_line(f"{name}  {done}")
        else:
            missing.append(_not_found(opened, name))
    if missing:
        raise missing[-1]


@schedules.command(short_help="Stop schedules from firing for now.")
@of_queue
@names_argument
@click.pass_obj
def pause(session: Session, queue: str, names: tuple[str, ...]) -> None:
    """Pause the schedules NAME... of QUEUE: they do not fire until you resume them."""
    _for_each(session, queue, names, Schedules.pause, "paused")


@schedules.command(short_help="Let paused schedules fire again.")
@of_queue
@names_argument
@click.pass_obj
def resume(session: Session, queue: str, names: tuple[str, ...]) -> None:
    """Resume the schedules NAME... of QUEUE; occurrences during the pause are not fired."""
    _for_each(session, queue, names, Schedules.resume, "resumed")


@schedules.command(short_help="Remove schedules.")
@of_queue
@names_argument
@click.pass_obj
def remove(session: Session, queue: str, names: tuple[str, ...]) -> None:
    """Remove the schedules NAME... of QUEUE; messages they already sent stay."""
    _for_each(session, queue, names, Schedules.remove, "removed")


@schedules.command("run", short_help="Send a message of a schedule now.")
@of_queue
@name_argument
@click.pass_obj
def run(session: Session, queue: str, name: str) -> None:
    """Send one message of the schedule NAME of QUEUE now, even if it is paused; print its id."""
    opened = session.existing_queue(queue)
    try:
        print_line(opened.schedules.run_now(name).id)
    except UnknownScheduleError:
        raise _not_found(opened, name) from None


@schedules.command("next", short_help="Show when a schedule fires next.")
@of_queue
@name_argument
@click.option("-n", "--number", type=_NUMBER, metavar="N", default=5, help="Show N occurrences.")
@json_option
@click.pass_obj
def next_(session: Session, queue: str, name: str, *, number: int, as_json: bool) -> None:
    """Show the next occurrences of the schedule NAME of QUEUE in its time zone; none if it is paused or has ended.

    JSON: {"name", "next": [TIME, …]}, in UTC.
    """
    opened = session.existing_queue(queue)
    try:
        times = opened.schedules.next(name, number)
    except UnknownScheduleError:
        raise _not_found(opened, name) from None
    if as_json:
        print_json({"name": name, "next": [iso(time) for time in times]})
        return
    for time in times:
        print_line(f"{time.isoformat(timespec='seconds')}  {relative_time(time, session.now)}")
    if not times:
        print_note(f"no next occurrence: {name} is paused or has ended")


def _json(info: ScheduleInfo) -> dict[str, Any]:
    payload, encoding, _ = decode_payload(info.payload, len(info.payload))
    return json_fields(info) | {"payload": payload, "encoding": encoding}


def _not_found(queue: DelayQueue[Any], name: str) -> NotFoundError:
    return NotFoundError("schedule", name, [info.name for info in queue.schedules.list()])


def _occurs(info: ScheduleInfo) -> str:
    if info.every is not None:
        return f"every {format_duration(info.every.total_seconds())}"
    return f"{info.cron} {info.tz}"


def _row(info: ScheduleInfo, now: datetime) -> list[str | int]:
    following, last = relative_time(info.next, now), relative_time(info.last, now)
    return [info.name, _occurs(info), following, last, info.fired, info.state]


def _details(info: ScheduleInfo, now: datetime) -> dict[str, str]:
    return {
        "name": info.name,
        "state": str(info.state),
        "occurs": _occurs(info),
        "next": exact_time(info.next, now),
        "last": exact_time(info.last, now),
        "fired": pluralize(info.fired, "message") + (f" of {info.count:,}" if info.count else ""),
        "start": exact_time(info.start, now),
        "end": exact_time(info.end, now),
        "misfire": f"{info.misfire}, after {format_duration(info.late_after.total_seconds())}",
        "retries": str(info.retries),
        "declared": "in code" if info.declared else "",
        **{f"header {name}": value for name, value in info.headers.items()},
        "payload": preview(info.payload, len(info.payload)),
    }
