"""`delayq report` and `delayq spark report`: tables, a page and a summary of an archive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from delayq.cli.bulk.engines import LocalTables, SparkTables, Tables, read_period
from delayq.cli.support.exit_codes import CommandError
from delayq.cli.support.options import SERVER_WHEN, F, add_options, json_option
from delayq.cli.support.output import print_json, print_note, print_rich
from delayq.cli.support.progress import spinner
from delayq.cli.support.session import Session
from delayq.errors import DelayqError
from delayq.queue.inspecting.counts import Stats
from delayq.values.times import timestamp

_OPTIONS = (
    click.argument("archive", metavar="ARCHIVE"),
    click.argument("out", metavar="FOLDER", type=click.Path(path_type=Path)),
    click.option("--html/--no-html", default=True, help="Write a page with plots, FOLDER/report.html."),
    click.option("--queue", metavar="NAME", help="Title the page with this queue, and tell what waits in it now."),
    click.option(
        "--from", "start", type=SERVER_WHEN, metavar="WHEN", help="Report on events from then on: a time, or -1d."
    ),
    click.option("--until", type=SERVER_WHEN, metavar="WHEN", help="Report on events before then."),
    json_option,
)


def report_options(function: F) -> F:
    """Add the arguments and options of a report by any engine."""
    return add_options(_OPTIONS, function)


@click.command(short_help="Report on an archive: tables, a page with plots, a summary.")
@report_options
@click.pass_obj
def report(session: Session, /, archive: str, out: Path, **options: Any) -> None:
    """Report on ARCHIVE: lateness, rates, retries, errors, deaths and duplicates, as Parquet and CSV in FOLDER.

    JSON: {"messages", "events", "entries", "missing", "first", "last", "first_offset", "last_offset", "kinds": {…},
    "lateness": {…}, "failures", "redeliveries": {…}, "unexplained", "acked_twice", "checks": [{"title", "passed",
    "text"}, …]}.
    """
    _report(session, LocalTables, archive, out, **options)


@click.command("report", short_help="Report on an archive: tables, a page with plots, a summary.")
@report_options
@click.pass_obj
def spark_report(session: Session, /, archive: str, out: Path, **options: Any) -> None:
    """Report on ARCHIVE, as `delayq report` does, on Spark: for archives of any size, where Spark reaches them.

    JSON: as of `delayq report`.
    """
    _report(session, SparkTables, archive, out, **options)


def _report(
    session: Session,
    tables_of: Callable[[Session], Tables],
    archive: str,
    out: Path,
    *,
    html: bool,
    queue: str | None,
    as_json: bool,
    **period: str | None,
) -> None:
    now = None if queue is None else _stats(session, queue)
    tables = tables_of(session)
    from delayq.report.overview import facts_of, now_of, overview_of
    from delayq.report.report import PAGE
    from delayq.report.report import report as make_report
    from delayq.report.summary import summary

    start, until = read_period(period["start"], period["until"], timestamp(datetime.now(UTC)))
    done: list[str] = []
    with spinner(f"reporting on {archive}:", lambda: ", ".join(done[-1:])):
        events = tables.events(archive, start=start, until=until)
        made = make_report(
            tables.engine, events.table, out, queue=queue or "", now=now, html=html, told=done.append
        ).tables()
    if as_json:
        print_json(facts_of(overview_of(made)))
    else:
        print_rich(summary(made))
        if now is not None:
            print_rich(f"\n{now_of(now)}")
    for one in events.undone:
        print_note(one.told())
    print_note(f"written to {out}" + (f"; open {out / PAGE}" if html else ""))


def _stats(session: Session, queue: str) -> Stats | None:
    """Return what is in a queue now; None if it is elsewhere, because a report needs only the archive."""
    try:
        return session.existing_queue(queue).stats()
    except (CommandError, DelayqError) as error:
        print_note(f"the report does not tell what waits now: {error}")
        return None
