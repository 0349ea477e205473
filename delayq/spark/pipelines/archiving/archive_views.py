"""Views of an archive for SQL: its events, the lives of messages, and the lateness of deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from delayq.spark.datasource.schemas import IMPORTED, LIFE_STARTS, NOTES, OF_ENTRIES
from delayq.spark.pipelines.archiving.archive_reader import read_archive
from delayq.spark.pipelines.message_lives import DEATHS, SETTLED, STEP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LATENESS = "(unix_micros(event_at) - unix_micros(due)) / 1000"


def create_views(
    spark: SparkSession, path: str, *, prefix: str = "", start: datetime | None = None, until: datetime | None = None
) -> tuple[str, ...]:
    """Create temporary views of an archive, for `spark.sql`; returns their names.

    * `events`: the archive, one row per message and event.
    * `lives`: one row per life of a message. A send, a replacement and a redrive each begin one.
    * `lateness`: one row per delivery.

    Their names begin with `prefix`; views of these names are replaced. They have the events that the archive has now,
    or those of a period, and can be used for an hour: call it again for newer ones. Raises as `read_archive` does.
    """
    events = read_archive(spark, path, start=start, until=until)
    views = {"events": events, "lives": lives(events), "lateness": lateness(events)}
    for name, view in views.items():
        view.createOrReplaceTempView(f"{prefix}{name}")
    return tuple(f"{prefix}{name}" for name in views)


def lives(events: DataFrame) -> DataFrame:
    """Return one row for each life of a message, by the events that it has.

    `life` counts from 1 for each id; 0 is one that began before the first event, so `begun_by` and `begun_at` are null.
    `due` is the last one set. `outcome` is acked, discarded, dead, cancelled, purged or replaced, and null while the
    life goes on. `lateness_ms` is that of the first delivery. `error` is the last one.
    """
    order, place = ("log_offset", "entry_index"), "struct(log_offset, entry_index)"
    starts = f"kind IN {LIFE_STARTS}"
    of_id = Window.partitionBy("id")
    steps = events.where(f"id IS NOT NULL AND kind NOT IN {(*OF_ENTRIES, IMPORTED, *NOTES)}").select(
        *("id", *order, "event_at", "kind", "due", "attempt", "run", "reason", "error"),
        F.expr(f"{STEP} AS step"),
        F.count_if(F.expr(starts)).over(of_id.orderBy(*order)).alias("life"),
    )
    columns = (
        f"first(kind) FILTER (WHERE {starts}) AS begun_by",
        f"min(event_at) FILTER (WHERE {starts}) AS begun_at",
        f"max_by(run, {place}) FILTER (WHERE {starts}) AS run",
        f"max_by(due, {place}) FILTER (WHERE due IS NOT NULL) AS due",
        f"min_by(event_at, {place}) FILTER (WHERE kind = 'delivered') AS first_delivered_at",
        f"min_by({LATENESS}, {place}) FILTER (WHERE kind = 'delivered') AS lateness_ms",
        "count_if(kind = 'delivered') AS deliveries",
        "max(attempt) AS attempts",
        f"max_by(reason, {place}) FILTER (WHERE kind = 'dead') AS reason",
        f"max_by(error, {place}) FILTER (WHERE error IS NOT NULL) AS error",
        f"max_by(step, {place}) AS last",
        f"max_by(event_at, {place}) AS last_event_at",
        "max(log_offset) AS last_offset",
    )
    each = steps.groupBy("id", "life").agg(*map(F.expr, columns))
    purge = events.where("kind = 'purged'").agg(
        F.max("log_offset").alias("purge_offset"), F.max("event_at").alias("purged_at")
    )
    following = of_id.orderBy("life")
    judged = each.crossJoin(F.broadcast(purge)).withColumns(
        {
            "next_begun_by": F.lead("begun_by").over(following),
            "next_begun_at": F.lead("begun_at").over(following),
            "by_itself": F.expr(
                f"""CASE WHEN last IN {SETTLED} OR last = 'cancelled' THEN last
                WHEN last IN {DEATHS} THEN 'dead' END"""
            ),
        }
    )
    outcome = """CASE WHEN by_itself IS NOT NULL THEN by_itself WHEN next_begun_by = 'replaced' THEN 'replaced'
        WHEN last_offset < purge_offset THEN 'purged' END"""
    return judged.withColumn("outcome", F.expr(outcome)).selectExpr(
        *("id", "life", "begun_by", "begun_at", "due", "run", "deliveries", "attempts"),
        *("first_delivered_at", "lateness_ms", "outcome"),
        """CASE outcome WHEN 'replaced' THEN next_begun_at WHEN 'purged' THEN purged_at ELSE
            if(outcome IS NULL, NULL, last_event_at) END AS ended_at""",
        *("reason", "error"),
    )


def lateness(events: DataFrame) -> DataFrame:
    """Return one row for each delivery; later attempts than the first wait for a nack delay or an expired lease."""
    return events.where("kind = 'delivered'").selectExpr(
        *("id", "attempt", "due", "event_at AS delivered_at", f"{LATENESS} AS lateness_ms", "holder")
    )
