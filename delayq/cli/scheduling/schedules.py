"""`delayq schedules`: lists, adds and runs the schedules of a queue; `actions` changes them."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.messages.send import payload_parser
from delayq.cli.scheduling.actions import ACTIONS, Chosen, chosen_options, not_found, of_one, rule_options
from delayq.cli.support.groups import SuggestingGroup
from delayq.cli.support.options import (
    Paging,
    codec_option,
    dry_run_option,
    header_option,
    json_option,
    page_options,
    queue_with,
    reveal_option,
)
from delayq.cli.support.output import json_fields, print_details, print_json, print_line, print_note, print_rich, table
from delayq.cli.support.session import Session
from delayq.cli.support.several import queues_with
from delayq.cli.support.zones import exact_time, own_iso, zoned_iso
from delayq.privacy.redaction import preview
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.inspecting.decoded_payload import decode_payload
from delayq.queue.inspecting.inspector import MAX_ROWS
from delayq.queue.scheduling.schedule_file import read_schedules
from delayq.queue.sending.message_options import NewMessage
from delayq.schedules.info import Occurrence, ScheduleInfo, rule_text
from delayq.schedules.recurring.timetable import MAX_FIRED
from delayq.values.text import format_duration, iso, pluralize, relative_time

_TITLES = ["name", "occurs", "next", "last", "fired", "state"]
_NUMBER = click.IntRange(1, MAX_FIRED)
name_argument = click.argument("name")
of_queue = queue_with(Feature.SCHEDULES)


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def schedules() -> None:
    """List, add, change, pause, resume, remove or run schedules, which send recurring messages."""


@schedules.command("list", short_help="List schedules.")
@queues_with(Feature.SCHEDULES, names=True)
@chosen_options
@page_options
@reveal_option
@json_option
@click.pass_obj
def list_(session: Session, queue: str, *, chosen: Chosen, paging: Paging, reveal: bool, as_json: bool) -> None:
    """List the schedules of QUEUE, page by page.

    JSON, one line per page: {"schedules": [{"name", "state", "paused_until", "next", "last", "fired", "cron", "every",
    "rrule", "tz", "payload", "encoding", "message_name", "retries", "headers", "start", "end", "count", "misfire",
    "except", "jitter", "overlap", "hours", "late_after", "labels", "changes", "declared"}, …], "cursor"}; "every",
    "jitter" and "late_after" are in seconds, "changes" has the skipped and moved occurrences as {"occurrence", "due"},
    and "cursor" is null on the last page.
    """
    read = partial(session.existing_queue(queue, reveal=reveal).schedules.page, **chosen._asdict())
    is_empty, cursor = True, paging.cursor
    while True:
        page = read(limit=MAX_ROWS if paging.all else paging.limit, cursor=cursor)
        is_empty, cursor = is_empty and not page.schedules, page.cursor
        for name, error in page.unreadable.items():
            print_note(f"schedule {name} is left out: {error}")
        if as_json:
            print_json({"schedules": [_json(info) for info in page.schedules], "cursor": cursor})
        elif page.schedules:
            print_rich(table(_TITLES, [_row(info, session.now) for info in page.schedules]))
        if not (paging.all and cursor):
            break
    if cursor and not as_json:
        print_note(f"more: --cursor {cursor}, or --all")
    elif is_empty and not as_json:
        print_note(f"no schedules in {queue}" + (" with this label or prefix" if chosen.given else ""))


@schedules.command("show", short_help="Show one schedule.")
@of_queue
@name_argument
@reveal_option
@json_option
@click.pass_obj
def show_(session: Session, queue: str, name: str, *, reveal: bool, as_json: bool) -> None:
    """Show the schedule NAME of QUEUE.

    JSON: like one schedule of `delayq schedules list --json`.
    """
    opened = session.existing_queue(queue, reveal=reveal)
    info = opened.schedules.get(name)
    if info is None:
        raise not_found(opened, name)
    if as_json:
        print_json(_json(info))
    else:
        print_details(_details(info, session.now))


@schedules.command("add", short_help="Add or change a schedule.")
@of_queue
@name_argument
@click.argument("payload", required=False, default="null")
@rule_options(new=True)
@codec_option
@click.option("--message-name", metavar="NAME", help="Name its messages, such as after the task that they call.")
@header_option
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="Add a label, such as user:42; repeatable.")
@click.pass_obj
def add(
    session: Session,
    /,
    queue: str,
    name: str,
    payload: str,
    *,
    codec: str,
    message_name: str | None,
    header: Any,
    misfire: str,
    **options: Any,
) -> None:
    """Add the schedule NAME to QUEUE: send PAYLOAD (JSON, by default null) by --cron, --every or --rrule.

    If NAME exists, it is changed; an identical schedule stays as it is.
    """
    opened: DelayQueue[Any] = session.queue(queue, codec=codec)
    parsed = payload_parser(codec)(os.fsencode("" if codec != "json" and payload == "null" else payload), "PAYLOAD")
    message = parsed if message_name is None else NewMessage(parsed, name=message_name)
    policy: Any = int(misfire) if misfire.isdecimal() else misfire
    outcome = opened.schedules.add(name, payload=message, headers=header or None, misfire=policy, **options)
    info = opened.schedules.get(name)
    print_line(f"{name}  {outcome}")
    if info is not None:
        following = exact_time(info.next, datetime.now(UTC))
        print_note(f"next {following}" if following else f"no next occurrence: {name} is {info.state}")


for action in ACTIONS:
    schedules.add_command(action.command())


@schedules.command("next", short_help="Show when schedules fire next.")
@of_queue
@click.argument("name", required=False)
@chosen_options
@click.option("-n", "--number", type=_NUMBER, metavar="N", default=5, help="Show N occurrences.")
@json_option
@click.pass_obj
def next_(session: Session, queue: str, name: str | None, *, chosen: Chosen, number: int, as_json: bool) -> None:
    """Show the next occurrences of the schedule NAME of QUEUE; none if it is paused or has ended.

    The times are in the zone of --tz, by default in that of the schedule.

    With --label or --prefix: those of all these schedules together, with their names.

    JSON: {"name", "next": [TIME, …]}, or {"next": [{"name", "time": TIME}, …]}, in UTC.
    """
    if (name is None) is not chosen.given:
        raise click.UsageError("select schedules: give a name, or --label, --prefix or both")
    opened = session.existing_queue(queue)
    if name is None:
        _print_upcoming(session, opened.schedules.upcoming(number, **chosen._asdict()), as_json=as_json)
        return
    times = of_one(lambda queue, name: queue.schedules.next(name, number))(opened, name)
    if as_json:
        print_json({"name": name, "next": [iso(time) for time in times]})
        return
    for time in times:
        print_line(f"{own_iso(time)}  {relative_time(time, session.now)}")
    if not times:
        print_note(f"no next occurrence: {name} is paused or has ended")


def _print_upcoming(session: Session, found: list[Occurrence], *, as_json: bool) -> None:
    if as_json:
        print_json({"next": [{"name": name, "time": iso(time)} for name, time in found]})
        return
    for name, time in found:
        print_line(f"{own_iso(time)}  {relative_time(time, session.now)}  {name}")
    if not found:
        print_note("no next occurrence of schedules with this label or prefix")


@schedules.command(short_help="Work out the next times anew.")
@of_queue
@json_option
@click.pass_obj
def replan(session: Session, queue: str, *, as_json: bool) -> None:
    """Work out anew when each schedule of QUEUE occurs next, after new time zone data; print those that moved.

    Workers with newer data do this by themselves, a minute after they start.

    JSON: {"moved": [{"name", "before": TIME, "after": TIME}, …], "zones", "zones_before"}; a TIME is null if there is
    no occurrence, and "zones" are releases of the time zone data such as "2026a", null if not known.
    """
    done = session.existing_queue(queue).schedules.replan()
    zones, before = done.zones or None, done.zones_before or None
    if as_json:
        moved = [{"name": name, "before": iso(a), "after": iso(b)} for name, (a, b) in done.moved.items()]
        print_json({"moved": moved, "zones": zones, "zones_before": before})
        return
    for name, times in done.moved.items():
        print_line(f"{name}  {' → '.join(zoned_iso(time) if time else 'none' for time in times)}")
    release = f"time zone data {zones or 'unknown'}, before {before or 'unknown'}"
    print_note(f"{pluralize(len(done.moved), 'schedule')} moved; {release}")


@schedules.command(short_help="Make schedules those of a file.")
@of_queue
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--owner", metavar="NAME", help="Find the schedules again by this name.  [default: the name of FILE]")
@click.option("--prune", is_flag=True, help="Remove those of the owner that FILE has no more.")
@dry_run_option
@json_option
@click.pass_obj
def sync(
    session: Session, queue: str, file: str, *, owner: str | None, prune: bool, dry_run: bool, as_json: bool
) -> None:
    """Add and change schedules of QUEUE so that they are those of FILE: TOML with a table [schedules.NAME] for each.

    Its keys are the options of `add`: cron, every or rrule, tz, payload, message_name and so on (`delayq docs
    schedules`). All are checked before anything is changed. The schedules get the label sync:OWNER.

    JSON: {"schedules": {NAME: "new", "changed" or "unchanged"}, "removed": [NAME, …], "dry_run"}.
    """
    found = read_schedules(file)
    opened: DelayQueue[Any] = session.queue(queue)
    owner = owner or re.sub(r"[^A-Za-z0-9._-]", "-", Path(file).stem)[:64]
    done = opened.schedules.sync(found, owner=owner, prune=prune, dry_run=dry_run)
    if as_json:
        print_json({"schedules": done.outcomes, "removed": done.removed, "dry_run": dry_run})
        return
    for name, outcome in done.outcomes.items():
        print_line(f"{name}  {outcome}")
    for name in done.removed:
        print_line(f"{name}  removed")
    if dry_run:
        print_note("nothing was changed")


def _json(info: ScheduleInfo) -> dict[str, Any]:
    payload, encoding, _ = decode_payload(info.payload, len(info.payload))
    changes = [{"occurrence": iso(time), "due": iso(due)} for time, due in info.changes.items()]
    fields = {name.removesuffix("_"): value for name, value in json_fields(info).items()}
    return fields | {"payload": payload, "encoding": encoding, "changes": changes}


def _row(info: ScheduleInfo, now: datetime) -> list[str | int]:
    following, last = relative_time(info.next, now), relative_time(info.last, now)
    return [info.name, rule_text(info), following, last, info.fired, info.state]


def _details(info: ScheduleInfo, now: datetime) -> dict[str, str]:
    return {
        "name": info.name,
        "state": str(info.state),
        "paused until": exact_time(info.paused_until, now),
        "occurs": rule_text(info),
        "next": exact_time(info.next, now),
        "last": exact_time(info.last, now),
        "fired": pluralize(info.fired, "message") + (f" of {info.count:,}" if info.count else ""),
        "start": exact_time(info.start, now),
        "end": exact_time(info.end, now),
        "misfire": f"{info.misfire}, after {format_duration(info.late_after.total_seconds())}",
        "except": " ".join(info.except_),
        "jitter": format_duration(info.jitter.total_seconds()) if info.jitter else "",
        "overlap": "" if info.overlap == "allow" else info.overlap,
        "hours": info.hours or "",
        "message name": info.message_name or "",
        "retries": str(info.retries),
        "labels": " ".join(info.labels),
        **{f"occurrence {zoned_iso(time)}": exact_time(due, now) or "skipped" for time, due in info.changes.items()},
        "declared": "in code" if info.declared else "",
        **{f"header {name}": value for name, value in info.headers.items()},
        "payload": preview(info.payload, len(info.payload)),
    }
