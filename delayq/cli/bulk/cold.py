"""`delayq cold`: what is due far ahead waits in files, and comes back in time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.bulk.spark_session import where
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.logs import configure_logging
from delayq.cli.support.options import DURATION, STORED_ID, json_option, queue_with
from delayq.cli.support.output import json_fields, print_details, print_json, print_note, print_rich, table
from delayq.cli.support.progress import catch_stop_signals, spinner
from delayq.cli.support.session import Session
from delayq.cli.support.zones import exact_time
from delayq.values.text import format_duration, pluralize

if TYPE_CHECKING:
    from delayq.bulk import ColdMessage, ColdMoved, ColdStatus


@click.command(short_help="Keep what is due far ahead in files.")
@queue_with(Feature.COLD)
@click.argument("folder", metavar="[FOLDER]", required=False, default="")
@click.option("--keep", type=DURATION, default="7d", show_default=True, help="Keep what is due before that in Redis.")
@click.option("--every", type=DURATION, default="1h", show_default=True, help="At least so often it is run.")
@click.option("--follow", is_flag=True, help="Run it so often, until Ctrl-C or SIGTERM.")
@click.option("--status", is_flag=True, help="Only tell what is cold, by day; exit with 4 if some of it is late.")
@click.option("--find", metavar="ID", type=STORED_ID, help="Only find a message in the files.")
@json_option
@click.pass_obj
def cold(
    session: Session,
    *,
    queue: str,
    folder: str,
    keep: timedelta,
    every: timedelta,
    follow: bool,
    status: bool,
    find: str | None,
    as_json: bool,
) -> int:
    """Move what is due later than --keep and a day to files in FOLDER, and bring back what is due before --keep.

    The files are Parquet, by the day (UTC) on which their messages are due.

    Run it by cron at least as often as --every says, or with --follow as a service. FOLDER is by default where it was
    run last. It may be killed at any time, and run twice at a time.

    With --follow it also runs when 200,000 messages could be moved, such as beside a bulk load.

    JSON, with --follow one line a run: {"queue", "spilled", "restored", "exists", "settled", "withdrawn", "cold",
    "unknown": [FILE, …]}; with --status {"queue", "where", "cold", "days": {DAY: COUNT}, "late"}; with --find {"queue",
    "id", "file", "due", "retries", "size", "withdrawn"}.
    """
    if status + follow + (find is not None) > 1:
        raise click.UsageError("--follow, --status and --find do not go together")
    session.check_queue_exists(queue)
    from delayq.bulk import cold_status, find_cold, follow_cold, move_cold

    known = cold_status(queue, **where(session))
    if status:
        _print_status(known, as_json=as_json)
        return Exit.UNHEALTHY if known.late else Exit.OK
    if find is not None:
        found = find_cold(queue, find, folder, **where(session)) if known.where else None
        if found is None:
            raise CommandError(f"no message {find!r} in the cold tier of {queue}", Exit.NOT_FOUND)
        _print_message(session, queue, found, as_json=as_json)
        return Exit.OK
    place = folder or known.where
    if not place:
        raise click.UsageError(f"queue {queue} has no cold tier yet: give a FOLDER")
    options: dict[str, Any] = {"keep": keep, "every": every, **where(session)}
    with catch_stop_signals() as stop:
        if follow:
            configure_logging("warning", as_json=False)
            ahead = format_duration((keep + timedelta(days=1)).total_seconds())
            print_note(f"moving what is due in more than {ahead} to {place}; stop with Ctrl-C")
            follow_cold(queue, place, **options, stop=stop.event, on_pass=lambda moved: _print(moved, as_json=as_json))
            return Exit.OK
        with spinner(f"moving messages of {queue} to and from {place}"):
            moved = move_cold(queue, place, **options)
    _print(moved, as_json=as_json)
    return Exit.OK


def _print(moved: ColdMoved, *, as_json: bool) -> None:
    if as_json:
        print_json(moved.facts())
    else:
        print_note(moved.told())


def _print_status(found: ColdStatus, *, as_json: bool) -> None:
    if as_json:
        print_json(found.facts())
        return
    if not found.where:
        print_note(f"queue {found.queue} has no cold tier: delayq cold {found.queue} FOLDER makes one")
        return
    print_details({"folder": found.where, "cold": f"{found.cold:,}", "late": f"{found.late:,}" if found.late else ""})
    if found.days:
        print_rich(table(["due on (UTC)", "messages"], [[day.isoformat(), count] for day, count in found.days.items()]))
    if found.late:
        print_note(f"{pluralize(found.late, 'message')} should be back: run delayq cold {found.queue}")


def _print_message(session: Session, queue: str, found: ColdMessage, *, as_json: bool) -> None:
    if as_json:
        print_json({"queue": queue, **json_fields(found)})
        return
    print_details(
        {
            "id": found.id,
            "state": "cold, and withdrawn: it does not come back" if found.withdrawn else "cold",
            "due": exact_time(found.due, session.now),
            "retries": f"{found.retries:,}",
            "size": f"{found.size:,} bytes",
            "file": found.file,
        }
    )
