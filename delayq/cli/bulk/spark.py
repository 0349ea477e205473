"""`delayq spark …`: the commands of the bulk data pipelines; each calls a function of `delayq.spark`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from delayq.cli.bulk.audit import demo, spark_audit
from delayq.cli.bulk.engine_choice import SPARK
from delayq.cli.bulk.loading import LoadCommand, load_options
from delayq.cli.bulk.planning import PlanCommand, plan_options
from delayq.cli.bulk.reporting import spark_report
from delayq.cli.bulk.spark_session import SparkGroup, open_spark, spark_options
from delayq.cli.support.options import DURATION, WHEN, json_option
from delayq.cli.support.output import print_json, print_note
from delayq.cli.support.progress import spinner
from delayq.cli.support.session import Session
from delayq.cli.support.zones import zoned_iso
from delayq.values.text import format_duration, pluralize

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
    """Plan, load, report and audit whole tables on Spark (pip install 'delayq[spark]').

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


spark.add_command(spark_report)
spark.add_command(spark_audit)
spark.add_command(lapse)
spark.add_command(demo)
