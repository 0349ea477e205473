"""The data source `delayq` for PySpark's `format("delayq")`: messages in, the queue and its event log out.

Spark makes a source anew for every query, on the driver; readers and writers go from there to the executors, pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from delayq.errors import ConfigurationError
from delayq.spark.options import event_options, snapshot_options, what_to_read, write_options
from delayq.spark.schemas import EVENTS, SNAPSHOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delayq.spark.events import EventsReader, EventStreamReader
    from delayq.spark.snapshot import SnapshotReader
    from delayq.spark.writer import BatchWriter, StreamWriter


def register(spark: SparkSession) -> None:
    """Make `format("delayq")` known to a session, for `spark.read`, `readStream`, `df.write` and `writeStream`.

    Done once more it changes nothing. delayq must be installed on every executor.
    """
    spark.dataSource.register(DelayqSource)


class DelayqSource(DataSource):
    """A queue as a table: `df.write.format("delayq").mode("append").save("reminders")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "delayq"

    def schema(self) -> str:
        """Return the columns of what is read: the queue, or its event log."""
        return SNAPSHOT if what_to_read(self.options) == "snapshot" else EVENTS

    def reader(self, schema: StructType) -> SnapshotReader | EventsReader:  # noqa: ARG002 - always the same
        """Read the queue as it is, or a part of its event log."""
        if what_to_read(self.options) == "snapshot":
            from delayq.spark.snapshot import SnapshotReader

            return SnapshotReader(snapshot_options(self.options))
        from delayq.spark.events import EventsReader

        return EventsReader(event_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> EventStreamReader:  # noqa: ARG002 - always the same
        """Follow the event log of a queue."""
        # Spark asks for the columns without telling that it is for a stream, so the option has to.
        if what_to_read(self.options) != "events":
            raise ConfigurationError('a stream is of events: read it with .option("read", "events")')
        from delayq.spark.events import EventStreamReader

        return EventStreamReader(event_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's
        """Write a table of messages; what can be known before data moves is checked here."""
        from delayq.spark.writer import BatchWriter

        if overwrite:
            raise ConfigurationError(
                'a queue is added to, not overwritten: write with .mode("append"); DelayQueue.purge() empties a queue'
            )
        writer = BatchWriter(write_options(self.options), schema)
        writer.open()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001 - Spark's
        """Write a stream of messages, micro-batch by micro-batch."""
        from delayq.spark.writer import StreamWriter

        if overwrite:
            raise ConfigurationError(
                'a queue is added to, not overwritten: write the stream with .outputMode("append"), not "complete"'
            )
        writer = StreamWriter(write_options(self.options), schema)
        writer.open()
        return writer
