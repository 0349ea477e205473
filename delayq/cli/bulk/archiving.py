"""`delayq archive`: the event log of a queue as Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.bulk.spark_session import where
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.logs import configure_logging
from delayq.cli.support.options import json_option, queue_with
from delayq.cli.support.output import print_json, print_note
from delayq.cli.support.progress import catch_stop_signals, spinner
from delayq.cli.support.session import Session
from delayq.queue.placing.layout import refuse_partitions

if TYPE_CHECKING:
    from delayq.archive.archive_run import ArchiveResult


@click.command(short_help="Archive the event log of a queue as Parquet.")
@queue_with(Feature.EVENTS)
@click.argument("archive", metavar="ARCHIVE")
@click.option("--follow", is_flag=True, help="Continue with new events until Ctrl-C or SIGTERM.")
@click.option("--trim", is_flag=True, help="Delete entries from the log that all archives of the queue have.")
@click.option("--forget", is_flag=True, help="Stop keeping log entries for ARCHIVE; its files stay.")
@click.option("--allow-loss", is_flag=True, help="Continue without entries that were deleted before being read.")
@click.option("--compact", is_flag=True, help="Only merge the small files of ARCHIVE; also beside a --follow.")
@click.option("--retain", metavar="DURATION", help="Delete days of ARCHIVE that are older, such as 90d.")
@json_option
@click.pass_obj
def archive(
    session: Session,
    *,
    queue: str,
    archive: str,
    follow: bool,
    trim: bool,
    forget: bool,
    allow_loss: bool,
    compact: bool,
    retain: str | None,
    as_json: bool,
) -> int:
    """Add new events of QUEUE to ARCHIVE, a folder of Parquet files; it contains each event once.

    SIGTERM or SIGINT (Ctrl-C) stops it after the batch in progress; with --follow that is its regular end.

    What Redis has lost in a crash after it was archived is moved to the subfolder _undone, and told.

    Once an hour its small files are merged into one a day; --compact does it now.

    JSON: {"archive", "first", "last", "entries", "events", "trimmed", "lost": [[FIRST, LAST], …],
    "undone": [[FIRST, LAST, EVENTS], …]}; with --compact {"merged", "files", "events", "days"}.
    """
    session.check_queue_exists(queue)
    if compact:
        from delayq.archive import compact_archive

        with spinner(f"compacting {archive}"):
            done = compact_archive(archive, retain=retain)
        _print(done.told(), done.facts(), as_json=as_json)
        return Exit.OK
    refuse_partitions(queue, session.partitions(queue), "archive each of them, to a folder of its own")
    if forget:
        from delayq.archive import forget_archive

        if not forget_archive(queue, archive, **where(session)):
            raise CommandError(f"queue {queue} has no archive at {archive}", Exit.NOT_FOUND)
        print_note(f"forgot the archive {archive} of queue {queue}")
        return Exit.OK
    from delayq.archive import archive as make_archive

    if follow:
        configure_logging("warning", as_json=False)
    progress = [""]

    def tell(so_far: ArchiveResult) -> None:
        progress.append(f"{so_far.events:,} events")

    with catch_stop_signals() as stop, spinner(f"archiving {queue}:", lambda: progress[-1]):
        result = make_archive(
            queue,
            archive,
            **where(session),
            once=not follow,
            trim=trim,
            retain=retain,
            fail_on_data_loss=not allow_loss,
            on_progress=tell,
            stop=stop.event,
        )
    if stop.number and not follow:
        print_note(f"stopped after {progress[-1] or 'no events'}: the next run archives the rest")
        return stop.exit_code(right=False)
    _print(result.told(), result.facts(), as_json=as_json)
    return Exit.OK


def _print(text: str, facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        print_note(text)
