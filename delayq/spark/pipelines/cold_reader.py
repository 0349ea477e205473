"""Reads the folder of a cold tier as a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from delayq.bulk.cold.cold_folder import FACTS, VERSION
from delayq.errors import ColdTierError
from delayq.spark.pipelines.archive_reader import if_exists

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLD = "id STRING, due TIMESTAMP, retries BIGINT, payload BINARY, headers BINARY, attributes BINARY, day DATE"
"""Messages as they are stored, and the day (UTC) on which they are due."""


def read_cold(spark: SparkSession, path: str) -> DataFrame:
    """Return the messages in the folder of a cold tier: id, due, retries, payload, headers, attributes and day.

    Payload, headers and attributes are as they are stored. A condition on `day` reads the files of these days only.
    Messages that are being moved are not in it. It has those of all files by day, also if the queue's Redis does not
    count them, or has some of them back: what is cold by Redis tells `delayq.bulk.cold_messages`. Files that are
    brought back while the result is computed may be left out.

    Raises `ColdTierError` if the path is no folder of a cold tier, or a newer delayq made it.
    """
    path = path.rstrip("/") or path
    line = if_exists(lambda: spark.read.text(f"{path}/{FACTS}", wholetext=True).head())
    if line is None:
        raise ColdTierError(f"{path!r} is no folder of a cold tier")
    try:
        version = json.loads(line[0])["version"]
    except (ValueError, LookupError, TypeError) as error:
        raise ColdTierError(f"folder {path!r} of the cold tier cannot be used: {FACTS} is broken") from error
    if version > VERSION:
        raise ColdTierError(f"{path!r} has version {version}, but this delayq knows only {VERSION}: upgrade delayq")
    return spark.read.schema(COLD).option("ignoreMissingFiles", "true").parquet(path)
