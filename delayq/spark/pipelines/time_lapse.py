"""Time lapse: a plan whose due times are compressed, to try it with real workers in a minute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delayq.bulk.files.schemas import PLAN, check_schema, columns_of
from delayq.errors import ConfigurationError
from delayq.values.times import Duration, from_millis, timestamp, to_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOADED_PER_SECOND = 10_000
"""Messages loaded a second on a slow machine: the first of them are due only when all are loaded."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The reminders of a plan that are to be sent: their number, and their first and last due time."""

    reminders: int
    first: datetime
    last: datetime

    def start(self, now: datetime, *, margin: float) -> datetime:
        """Return the first due time of a lapse: the plan can be loaded before, and `margin` seconds are left."""
        return now + timedelta(seconds=margin + self.reminders / LOADED_PER_SECOND)

    def factor(self, took: Duration) -> float:
        """Return how many times faster a lapse of this duration is."""
        return max((self.last - self.first).total_seconds(), 1) * 1000 / to_millis(took, "duration", min=1)


def extent_of(plan: DataFrame) -> Extent:
    """Return the extent of a plan, in one job; raises `ConfigurationError` if it has nothing to send."""
    check_schema(plan, columns_of(PLAN), "this is not a plan")
    micros = F.unix_micros("due")
    counted = (F.count("*").alias("number"), F.min(micros).alias("first"), F.max(micros).alias("last"))
    row = _to_send(plan).agg(*counted).collect()[0]
    if not row.number:
        raise ConfigurationError("the plan has no reminders to send")
    return Extent(row.number, from_millis(row.first // 1000), from_millis(row.last // 1000))


def lapse(plan: DataFrame, duration: Duration, *, start: datetime, extent: Extent | None = None) -> DataFrame:
    """Return a plan in time lapse: its due times, from first to last, take `duration` from `start`.

    Everything else stays: ids, payloads (with the planned due time) and retries. So load it into a queue of its own: in
    the queue of the plan itself its ids would be taken. Cancels are left out. `extent` saves a job if it is known.
    """
    found = extent or extent_of(plan)
    begin, factor = timestamp(start, "start") * 1000, found.factor(duration)
    offset = F.unix_micros("due") - timestamp(found.first, "first") * 1000
    due = F.timestamp_micros(F.lit(begin) + (offset / factor).cast("bigint"))
    return _to_send(plan).withColumn("due", due)


def _to_send(plan: DataFrame) -> DataFrame:
    return plan.where("action <> 'cancel'")
