"""Views of an archive for `spark.sql`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from delayq.archive.views import lateness, lives
from delayq.spark.pipelines.archive_reader import read_archive
from delayq.spark.spark_sql import SparkSql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    events, engine = read_archive(spark, path, start=start, until=until), SparkSql(spark)
    views = {"events": events, "lives": lives(engine, events), "lateness": lateness(engine, events)}
    for name, view in views.items():
        view.createOrReplaceTempView(f"{prefix}{name}")
    return tuple(f"{prefix}{name}" for name in views)
