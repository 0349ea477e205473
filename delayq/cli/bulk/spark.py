"""`delayq spark …`: the commands of the bulk data pipelines; each calls a function of `delayq.spark`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.bulk.audit import audit, demo
from delayq.cli.bulk.engine_choice import SPARK
from delayq.cli.bulk.loading import LoadCommand, load_options
from delayq.cli.bulk.planning import PlanCommand, plan_options
from delayq.cli.bulk.spark_session import SparkGroup, open_spark, spark_options, where
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import DURATION, SERVER_WHEN, WHEN, json_option, queue_with
from delayq.cli.support.output import print_json, print_note, print_rich
from delayq.cli.support.progress import catch_stop_signals, spinner
from delayq.cli.support.session import Session
from delayq.cli.support.zones import zoned_iso
from delayq.errors import DelayqError
from delayq.queue.placing.layout import refuse_partitions
from delayq.values.text import format_duration, pluralize
from delayq.values.times import from_millis, timestamp

if TYPE_CHECKING:
    from delayq.queue.inspecting.counts import Stats
    from delayq.spark.pipelines.archiving.archive_run import ArchiveResult


_MARGIN = 30.0
"""Seconds in which Spark starts and a load begins."""


@click.command(short_help="Compress a plan in time, to try it.")
@click.argument("plan", metavar="PLAN")
@click.argument("out", metavar="LAPSE", type=click.Path(path_type=str))
@click.option("--duration", type=DURATION, default="1m", help="Let the due times, from first to last, take this long.")
@click.option("--from", "start", type=WHEN, help="Set the first due time.  [default: when LAPSE can be loaded]")
@json_option
def lapse(*, plan: str, out: str, duration: timedelta, start: datetime | None, as_json: bool) -> None:
    """Write the reminders of PLAN to LAPSE in time lapse: a plan of a year is due within a minute.

    Load LAPSE into a queue of its own and let your workers deliver it; then archive, report and audit as usual. Ids and
    payloads are those of PLAN. Cancels are left out.

    JSON: {"plan", "reminders", "first", "last", "factor"}.
    """
    if Path(plan).absolute() == Path(out).absolute():
        raise click.UsageError(f"{out} is also the plan: write the lapse to another path")
    spark = open_spark()
    from delayq.spark.pipelines.input_tables import read_table
    from delayq.spark.pipelines.time_lapse import extent_of
    from delayq.spark.pipelines.time_lapse import lapse as make_lapse

    with spinner(f"compressing {plan}"):
        table = read_table(spark, plan)
        extent = extent_of(table)
        first = start or extent.start(datetime.now(UTC), margin=_MARGIN)
        make_lapse(table, duration, start=first, extent=extent).write.mode("overwrite").parquet(out)
    last, factor = first + duration, extent.factor(duration)
    if as_json:
        print_json(
            {"plan": out, "reminders": extent.reminders, "first": first.isoformat(), "last": last.isoformat()}
            | {"factor": factor}
        )
        return
    span = format_duration((extent.last - extent.first).total_seconds())
    print_note(
        f"{out}: {pluralize(extent.reminders, 'reminder')} of {span} within"
        f" {format_duration(duration.total_seconds())}, {factor:,.0f} times as fast, from {zoned_iso(first)};"
        " load it into a queue of its own"
    )


_CONF_HELP = "Set a setting of Spark, such as spark.driver.memory=4g; repeatable."


def _settings(ctx: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return settings by name; raise a usage error for one without a name or a value."""
    for text in texts:
        if not re.fullmatch(r"spark\.[^\s=]+=.*", text, re.DOTALL):
            raise click.UsageError(f"--conf must look like spark.driver.memory=4g, not {text!r:.60}", ctx)
    return dict(text.split("=", 1) for text in texts)


@click.group(cls=SparkGroup, no_args_is_help=False)
@click.option("--master", metavar="URL", help="local[4], spark://…, sc://… (Connect).  [default: local[*]]")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", callback=_settings, help=_CONF_HELP)
@click.option(
    "--packages", metavar="GROUP:NAME:VERSION,…", help="Add Java packages from Maven, with their dependencies."
)
def spark(**_: Any) -> None:
    """Plan, load, archive, report and audit whole tables on Spark (pip install 'delayq[spark]').

    TABLE is a file, a folder or a URL, or table:NAME for a table of the catalog. The format is Parquet unless the name
    ends in .csv, .json or .orc.
    """


_schema_option = click.option("--schema", metavar="DDL", help="The columns of a CSV file: 'id STRING, due TIMESTAMP'.")


@spark.command(short_help="Plan reminders for the rows of a table.")
@click.argument("things", metavar="TABLE")
@click.argument("out", metavar="PLAN")
@plan_options
@_schema_option
def plan(*, schema: str | None, **options: Any) -> None:
    """Plan reminders for the rows of TABLE (columns id, time and zone), and write them to PLAN as Parquet.

    Small files are planned without Spark, which takes long to start: the plan is the same. With --previous, reminders
    that are no longer wanted stay in PLAN as cancels until they are past.

    JSON: {"plan", "new", "keep", "cancel", "refused"}.
    """
    PlanCommand(schema=schema, **options).make(SPARK, {"--schema": schema, **spark_options()})


@spark.command(short_help="Load a table of messages or a plan into a queue.")
@click.argument("table", metavar="TABLE")
@load_options
@_schema_option
@click.pass_obj
def load(
    session: Session,
    /,
    table: str,
    queue: str,
    *,
    engine: str,
    run: str | None,
    schema: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Load the messages of TABLE that are due in a period into QUEUE; repeat it to add only what is missing.

    TABLE has the columns id, due and payload, and optionally retries, headers and options of a send, such as name. Or
    it is a plan: then its cancels are carried out as well. Small files are loaded without Spark, which takes long to
    start.

    JSON: {"run", "state", "new", "exists", "replaced", "running", "settled", "refused", "past", "cancelled"}.
    """
    command = LoadCommand(session, table, queue, run, options, schema)
    command.make(engine, SPARK, {"--schema": schema, **spark_options()}, as_json=as_json)


def _print(text: str, facts: dict[str, Any], *, as_json: bool) -> None:
    """Print the outcome as JSON, or as a note: the result is a table elsewhere."""
    if as_json:
        print_json(facts)
    else:
        print_note(text)


@spark.command(short_help="Archive the event log of a queue as Parquet.")
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

    Once an hour its small files are merged into one a day; --compact does it now, without Spark.

    JSON: {"archive", "first", "last", "entries", "events", "trimmed", "lost": [[FIRST, LAST], …],
    "undone": [[FIRST, LAST, EVENTS], …]}; with --compact {"merged", "files", "events", "days"}.
    """
    session.check_queue_exists(queue)
    if compact:
        from delayq.spark import compact_archive

        with spinner(f"compacting {archive}"):
            done = compact_archive(archive, retain=retain)
        _print(done.told(), done.facts(), as_json=as_json)
        return Exit.OK
    refuse_partitions(queue, session.partitions(queue), "archive each of them, to a folder of its own")
    if forget:
        from delayq.spark import forget_archive

        if not forget_archive(queue, archive, **where(session)):
            raise CommandError(f"queue {queue} has no archive at {archive}", Exit.NOT_FOUND)
        print_note(f"forgot the archive {archive} of queue {queue}")
        return Exit.OK
    spark = open_spark(short=not follow)
    from delayq.spark import archive as make_archive

    progress, asked = [""], list[bool]()

    def on_progress(so_far: ArchiveResult) -> None:
        progress.append(f"{so_far.events:,} events")
        if stop.number and not asked:
            asked.append(True)
            raise KeyboardInterrupt  # here, because the handler interrupts a call to Java

    options = {**where(session), "once": not follow, "trim": trim, "retain": retain, "on_progress": on_progress}
    try:
        with catch_stop_signals() as stop, spinner(f"archiving {queue}:", lambda: progress[-1]):
            result = make_archive(spark, queue, archive, **options, fail_on_data_loss=not allow_loss)
    except KeyboardInterrupt:
        print_note(f"stopped after {progress[-1] or 'no events'}: the next run archives the rest")
        return stop.exit_code(right=False)
    _print(result.told(), result.facts(), as_json=as_json)
    return Exit.OK


@spark.command(short_help="Report on an archive: tables, a page with plots, a summary.")
@click.argument("archive", metavar="ARCHIVE")
@click.argument("out", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--html/--no-html", default=True, help="Write a page with plots, FOLDER/report.html.")
@click.option("--queue", metavar="NAME", help="Title the page with this queue, and tell what waits in it now.")
@click.option(
    "--from", "start", type=SERVER_WHEN, metavar="WHEN", help="Report on events from then on: a time, or -1d."
)
@click.option("--until", type=SERVER_WHEN, metavar="WHEN", help="Report on events before then.")
@json_option
@click.pass_obj
def report(
    session: Session, /, archive: str, out: Path, *, html: bool, queue: str | None, as_json: bool, **period: str | None
) -> None:
    """Report on ARCHIVE: lateness, rates, retries, errors, deaths and duplicates, as Parquet and CSV in FOLDER.

    JSON: {"messages", "events", "entries", "missing", "first", "last", "first_offset", "last_offset", "kinds": {…},
    "lateness": {…}, "failures", "redeliveries": {…}, "unexplained", "acked_twice", "checks": [{"title", "passed",
    "text"}, …]}.
    """
    now = None if queue is None else _stats(session, queue)
    spark = open_spark()
    from delayq.bulk.load_run import resolve
    from delayq.spark import read_archive
    from delayq.spark import report as make_report
    from delayq.spark.pipelines.archiving.rollback import undone
    from delayq.spark.report.overview import facts_of, now_of, overview_of
    from delayq.spark.report.report import PAGE
    from delayq.spark.report.summary import summary

    clock = timestamp(datetime.now(UTC))
    start, until = (
        None if period[name] is None else from_millis(resolve(str(period[name]), option, clock))
        for name, option in (("start", "--from"), ("until", "--until"))
    )
    done: list[str] = []
    with spinner(f"reporting on {archive}:", lambda: ", ".join(done[-1:])):
        events = read_archive(spark, archive, start=start, until=until)
        made = make_report(events, out, queue=queue or "", now=now, html=html, told=done.append)
    if as_json:
        print_json(facts_of(overview_of(made.tables())))
    else:
        print_rich(summary(made.tables()))
        if now is not None:
            print_rich(f"\n{now_of(now)}")
    for one in undone(spark, archive):
        print_note(one.told())
    print_note(f"written to {out}" + (f"; open {out / PAGE}" if html else ""))


def _stats(session: Session, queue: str) -> Stats | None:
    """Return what is in a queue now; None if it is elsewhere, because a report needs only the archive."""
    try:
        return session.existing_queue(queue).stats()
    except (CommandError, DelayqError) as error:
        print_note(f"the report does not tell what waits now: {error}")
        return None


spark.add_command(audit)
spark.add_command(lapse)
spark.add_command(demo)
