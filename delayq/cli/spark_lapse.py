"""`delayq spark lapse`: compresses the due times of a plan, to try it with real workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from delayq.cli.options import DURATION, WHEN, json_option
from delayq.cli.output import print_json, print_note
from delayq.cli.progress import spinner
from delayq.cli.spark_session import open_spark
from delayq.cli.zones import zoned_iso
from delayq.text import format_duration, pluralize

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
