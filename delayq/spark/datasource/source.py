"""The PySpark data source `format("delayq")`: writes messages, reads the queue and its event log, consumes messages.

Spark creates a source per query, in a Python process of its own; its readers and writers are pickled and sent to the
processes that plan, execute and commit. Each imports what it uses alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from delayq.bulk.files.schemas import CLAIMED, EVENTS, SNAPSHOT, columns_of
from delayq.bulk.reading.snapshot import STATES
from delayq.errors import ConfigurationError
from delayq.spark.datasource.source_options import (
    as_options,
    event_options,
    message_options,
    snapshot_options,
    table_to_read,
    write_options,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delayq.spark.datasource.event_reader import EventsReader, EventStreamReader
    from delayq.spark.datasource.snapshot_reader import SnapshotReader
    from delayq.spark.datasource.staging.message_reader import MessageStreamReader
    from delayq.spark.datasource.writer import BatchWriter, StreamWriter


def register(spark: SparkSession) -> None:
    """Register `format("delayq")` with a session, for `spark.read`, `readStream`, `df.write` and `writeStream`.

    Calling it again changes nothing. delayq must be installed on every executor.
    """
    try:
        spark.dataSource.register(DelayqSource)
    except AnalysisException as error:
        # PySpark 4.0 refuses a source that it has found itself, in a module pyspark_*; later ones replace it.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def read_messages(
    spark: SparkSession,
    queue: str,
    *,
    url: str | None = None,
    url_env: str | None = None,
    prefix: str = "delayq",
    states: Iterable[str] = STATES,
    due_from: datetime | None = None,
    due_to: datetime | None = None,
    partitions: int = 4,
    include_payload: bool = False,
) -> DataFrame:
    """Return a DataFrame of the queue's messages, with the columns of `schemas.SNAPSHOT`.

    The queue is read each time the DataFrame is computed; `persist()` keeps one result. It contains messages in the
    given states that are due from `due_from` (inclusive) to `due_to` (exclusive), both aware datetimes. The payload is
    null unless `include_payload` is set. `SnapshotReader` documents which messages may be missed.

    Raises `ConfigurationError` for an invalid option; a missing queue is reported when the DataFrame is computed.
    """
    options = as_options(
        queue=queue,
        url=url,
        urlEnv=url_env,
        prefix=prefix,
        states=",".join(states),
        dueFrom=due_from,
        dueTo=due_to,
        partitions=partitions,
        includePayload=include_payload,
    )
    snapshot_options(options)
    register(spark)
    return spark.read.format("delayq").options(**options).load()


class DelayqSource(DataSource):
    """Data source of queues: `df.write.format("delayq").mode("append").save("reminders")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name used in `format(…)`."""
        return "delayq"

    def schema(self) -> str:
        """Return the columns of the table to read: the queue, its event log, or the messages that a stream consumes."""
        return {"snapshot": SNAPSHOT, "events": EVENTS, "messages": CLAIMED}[table_to_read(self.options)]

    def reader(self, schema: StructType) -> SnapshotReader | EventsReader:
        """Return a reader of the queue's current state, or of its event log."""
        if [name.lower() for name in schema.fieldNames()] != list(columns_of(self.schema())):
            raise ConfigurationError("a view with its own columns is for INSERT only; to read, create one without them")
        if table_to_read(self.options) == "snapshot":
            from delayq.spark.datasource.snapshot_reader import SnapshotReader

            return SnapshotReader(snapshot_options(self.options))
        if table_to_read(self.options) == "messages":
            raise ConfigurationError("messages are consumed by a stream only: use spark.readStream")
        from delayq.spark.datasource.event_reader import EventsReader

        return EventsReader(event_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> EventStreamReader | MessageStreamReader:  # noqa: ARG002 - the same
        """Return a reader that streams the event log, or one that consumes messages."""
        # Spark does not tell `schema()` that it is for a stream, so the option must.
        if table_to_read(self.options) == "messages":
            from delayq.spark.datasource.staging.message_reader import MessageStreamReader, check_streaming

            check_streaming()
            return MessageStreamReader(message_options(self.options))
        if table_to_read(self.options) != "events":
            raise ConfigurationError(
                'only the event log and messages can be streamed: add .option("read", "events"), or "messages"'
            )
        from delayq.spark.datasource.event_reader import EventStreamReader

        return EventStreamReader(event_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's
        """Return a writer of messages; options, columns and Redis are checked here, before data moves."""
        if overwrite:
            advice = 'write with .mode("append"); DelayQueue.purge() empties a queue'
            raise ConfigurationError(f"a queue cannot be overwritten: {advice}")
        from delayq.spark.datasource.writer import BatchWriter

        return BatchWriter(write_options(self.options), schema).opened()

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001 - Spark's
        """Return a writer of a stream of messages, one micro-batch at a time."""
        if overwrite:
            advice = 'write the stream with .outputMode("append"), not "complete"'
            raise ConfigurationError(f"a queue cannot be overwritten: {advice}")
        from delayq.spark.datasource.writer import StreamWriter

        return StreamWriter(write_options(self.options), schema).opened()
