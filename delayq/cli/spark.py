"""`delayq spark …`: the bulk data pipelines, each a function of `delayq.spark` and a command."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from delayq.cli.audit import audit, demo
from delayq.cli.engines import delay_queue
from delayq.cli.failure import Exit, Failure
from delayq.cli.options import json_option
from delayq.cli.output import put_json, say, show
from delayq.cli.progress import progress
from delayq.cli.session import Session
from delayq.cli.spark_session import SparkGroup, open_spark, where
from delayq.queue import DelayQueue


@click.group(cls=SparkGroup, no_args_is_help=False)
@click.option("--master", metavar="URL", help="local[4], spark://…, sc://… (Connect).  [default: local[*]]")
def spark(master: str | None) -> None:
    """Plan, load, archive, report and audit whole tables on Spark (pip install 'delayq[spark]').

    A TABLE is a file or folder of Parquet, or of what its ending says (.csv, .json, .orc), a URL of one, or table:NAME
    of the catalogue.
    """


_schema_option = click.option("--schema", metavar="DDL", help="The columns of a CSV file: 'id STRING, due TIMESTAMP'.")


@spark.command(short_help="Plan the reminders of a table of things.")
@click.argument("things", metavar="TABLE")
@click.argument("out", metavar="PLAN", type=click.Path(path_type=str))
@click.option("--rules", required=True, type=click.Path(exists=True, dir_okay=False), help="A TOML file.")
@click.option("--previous", metavar="TABLE", help="The plan before; only what is new or has changed is then new.")
@_schema_option
@json_option
@click.pass_context
def plan(
    ctx: click.Context,
    *,
    things: str,
    out: str,
    rules: str,
    previous: str | None,
    schema: str | None,
    as_json: bool,
) -> None:
    """Plan the reminders of the things in TABLE (columns id, time and zone), and write them to PLAN as Parquet.

    With the plan before, reminders that are no longer wanted are in PLAN as cancels until they are past.

    JSON: {"plan", "new", "keep", "cancel"}.
    """
    from delayq.spark import read_rules

    known = read_rules(rules)
    if previous is not None and Path(previous).absolute() == Path(out).absolute():
        raise click.UsageError(f"{out} is the plan before: write the new one elsewhere")
    spark = open_spark(ctx)
    from delayq.spark import plan as make_plan
    from delayq.spark.inputs import read_table

    with progress("planning"):
        before = None if previous is None else read_table(spark, previous)
        planned = make_plan(read_table(spark, things, schema), known, previous=before, since=datetime.now(UTC))
        planned.write.mode("overwrite").parquet(out)
        counted = spark.read.parquet(out).groupBy("action").count().collect()
    counts = {"new": 0, "keep": 0, "cancel": 0} | {row["action"]: row["count"] for row in counted}
    if as_json:
        put_json({"plan": out, **counts})
    else:
        say(f"planned {out}: " + ", ".join(f"{number:,} {action}" for action, number in counts.items()))


@spark.command(short_help="Load a table of messages or a plan into a queue.")
@click.argument("messages", metavar="TABLE")
@delay_queue("bulk load")
@click.option("--from", "start", default="now", show_default=True, metavar="WHEN", help="Due from then on.")
@click.option("--until", metavar="WHEN", help="Due before then: a time with its zone, or +1d from --from.")
@click.option("--run", metavar="NAME", help="The name in the ledger (`delayq runs`); a new one by default.")
@click.option(
    "--on-conflict",
    type=click.Choice(["skip", "replace", "fail"]),
    default="skip",
    show_default=True,
    help="What becomes of a message whose id waits already.",
)
@click.option(
    "--on-error", type=click.Choice(["fail", "collect"]), default="fail", show_default=True, help="A bad row."
)
@click.option("--max-rows-per-second", type=click.FloatRange(min=0, min_open=True), help="At most, of each task.")
@_schema_option
@json_option
@click.pass_context
def load(
    ctx: click.Context,
    *,
    messages: str,
    queue: str,
    start: str,
    until: str | None,
    run: str | None,
    on_conflict: str,
    on_error: str,
    max_rows_per_second: float | None,
    schema: str | None,
    as_json: bool,
) -> None:
    """Load the messages in TABLE that are due within a horizon into QUEUE; the next run adds only what is missing.

    TABLE has the columns id, due and payload, and may have retries and headers; or it is a plan, whose cancels are
    carried out.

    JSON: {"run", "state", "new", "exists", "replaced", "running", "settled", "refused", "past", "cancelled"}.
    """
    session: Session = ctx.obj
    spark = open_spark(ctx)
    from delayq.spark import load as load_table
    from delayq.spark.inputs import read_table
    from delayq.spark.load import new_run

    name = run or new_run()
    ledger: DelayQueue[Any] = session.queue(queue)
    with progress(f"loading {messages}", lambda: _loaded(ledger, name)):
        info = load_table(
            read_table(spark, messages, schema),
            queue,
            **where(session),
            start=start,
            until=until,
            run=name,
            on_conflict=on_conflict,
            on_error=on_error,
            max_rows_per_second=max_rows_per_second,
        )
    if as_json:
        put_json(info.facts())
    else:
        say(info.told())


def _loaded(ledger: DelayQueue[Any], run: str) -> str:
    info = next((info for info in ledger.runs() if info.run == run), None)
    return f"{info.sent:,} rows" if info else ""


@spark.command(short_help="Archive the event log of a queue as Parquet.")
@delay_queue("event log")
@click.argument("archive", metavar="ARCHIVE")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--trim", is_flag=True, help="Delete from the log what every archive of the queue has.")
@click.option("--forget", is_flag=True, help="Keep the log no longer for ARCHIVE, which is given up; its files stay.")
@json_option
@click.pass_context
def archive(
    ctx: click.Context, *, queue: str, archive: str, follow: bool, trim: bool, forget: bool, as_json: bool
) -> None:
    """Bring ARCHIVE, a folder of Parquet files, up to date with the event log of QUEUE: each event once.

    JSON: {"archive", "first", "last", "entries", "events", "trimmed"}.
    """
    session: Session = ctx.obj
    session.known(queue)
    if forget:
        _forget(session, queue, archive)
        return
    spark = open_spark(ctx)
    from delayq.spark import archive as make_archive

    told = [""]
    with progress(f"archiving {queue}:", lambda: told[-1]):
        result = make_archive(
            spark,
            queue,
            archive,
            **where(session),
            once=not follow,
            trim=trim,
            on_progress=lambda so_far: told.append(f"{so_far.events:,} events"),
        )
    if as_json:
        put_json(result.facts())
    else:
        say(result.told())


def _forget(session: Session, queue: str, archive: str) -> None:
    from delayq.spark import forget_archive

    if not forget_archive(queue, archive, **where(session)):
        raise Failure(f"the log of {queue} is kept for no archive at {archive}", Exit.NOT_FOUND)
    say(f"the log of {queue} is no longer kept for {archive}")


@spark.command(short_help="Report on an archive: tables, a page with plots, a summary.")
@click.argument("archive", metavar="ARCHIVE")
@click.argument("out", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--html/--no-html", default=True, help="Also a page with plots, FOLDER/report.html.")
@click.option("--queue", metavar="NAME", default="", help="The queue, for the title of the page.")
@click.pass_context
def report(ctx: click.Context, *, archive: str, out: Path, html: bool, queue: str) -> None:
    """Report on ARCHIVE: lateness, rates, retries, errors, deaths and duplicates, as Parquet and CSV in FOLDER."""
    spark = open_spark(ctx)
    from delayq.spark import read_archive
    from delayq.spark import report as make_report
    from delayq.spark.report import PAGE
    from delayq.spark.summary import summary

    done: list[str] = []
    with progress(f"reporting on {archive}:", lambda: ", ".join(done[-1:])):
        made = make_report(read_archive(spark, archive), out, queue=queue, html=html, told=done.append)
    show(summary(made))
    say(f"written to {out}" + (f"; look at {out / PAGE}" if html else ""))


spark.add_command(audit)
spark.add_command(demo)
