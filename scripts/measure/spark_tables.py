"""Tables for the measurements on Spark: messages to write, and the log of their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delayq.bulk.files.schemas import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
"""Parts of the table of messages."""
PAYLOAD = '"' + "x" * 62 + '"'


def messages(spark: SparkSession, n: int) -> DataFrame:
    """Generate messages that are due in a day."""
    return spark.range(0, n, 1, PARTITIONS).select(
        F.format_string("%022d", "id").alias("id"),
        F.timestamp_millis(F.unix_millis(F.current_timestamp()) + 86_400_000 + F.col("id")).alias("due"),
        F.lit(PAYLOAD).alias("payload"),
    )


def flat_log(spark: SparkSession, n: int) -> DataFrame:
    """Generate a log: each message is sent, promoted, delivered and acked; one in a hundred is nacked instead."""
    begin = F.lit(1_700_000_000_000_000)
    entry = F.col("id")
    message = (entry / 4).cast("bigint")
    kinds = F.array(*map(F.lit, ("sent", "promoted", "delivered", "acked")))
    kind = kinds[(entry % 4).cast("int")]
    due = F.timestamp_micros(begin + message * 40_000)
    late = F.pmod(F.hash(message), F.lit(20_000))
    frame = spark.range(0, n, 1, 8).select(
        (entry + 1).alias("log_offset"),
        F.lit(0).alias("entry_index"),
        F.timestamp_micros(begin + message * 40_000 + late + entry % 4).alias("event_at"),
        F.when((kind == "acked") & (message % 100 == 0), "nacked").otherwise(kind).alias("kind"),
        F.format_string("%022d", message).alias("id"),
        F.when(kind != "acked", due).alias("due"),
        F.when(kind == "delivered", F.lit(1)).alias("attempt"),
        F.when(kind.isin("delivered", "acked"), message + 1).alias("token"),
        F.lit(3).alias("retries_left"),
        F.lit("worker").alias("holder"),
        F.lit(None).cast("string").alias("run"),
        F.lit(None).cast("string").alias("reason"),
        F.when((kind == "acked") & (message % 100 == 0), "no such gate").alias("error"),
    )
    return frame.to(spark.createDataFrame([], EVENTS).schema)
