"""Writes messages to a queue: the tasks send their rows, the driver ends the run when all tasks are done.

Spark may run a task again, completely or in part: see `MessageSender`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, MapType, StructType

from delayq.broker.message.ids import new_id
from delayq.bulk.connection import connect, context_of, open_queue
from delayq.bulk.message_batches import check_columns
from delayq.errors import ConfigurationError
from delayq.queue.sweeps.bulk_runs import MAX_REFUSALS, end_run
from delayq.spark.datasource.compat import DataSourceStreamArrowWriter
from delayq.spark.datasource.source_options import WriteOptions
from delayq.spark.datasource.task_sender import send_rows

_ADVICE = {
    "id": "cast it to STRING",
    "due": "a text needs its zone, as to_timestamp_ltz(due || ' Europe/Berlin')",
    "due date": "a date has no time of day: add one and its zone, as to_timestamp_ltz(due || ' 09:00 Europe/Berlin')",
    **dict.fromkeys(("due integer", "due long"), "convert it with timestamp_millis(due), or timestamp_seconds(due)"),
    "payload": "convert it with to_json(payload)",
}
"""How to convert columns that have another type than that of messages."""


@dataclass
class TaskResult(WriterCommitMessage):
    """What a task reports to the driver: rows sent and refused, and id and reason of the first refusals."""

    rows: int = 0
    refused: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list)


def check_schema(schema: StructType) -> None:
    """Check that a table has the columns of messages, in any case; raises `ConfigurationError`."""
    columns = [
        (one.name.lower(), _type_name(one.dataType), one.dataType.simpleString().upper()) for one in schema.fields
    ]
    check_columns(columns, _ADVICE, "to_timestamp_ltz(due || ' Europe/Berlin')")


def _type_name(kind: DataType) -> str:
    if isinstance(kind, MapType):
        return f"map<{kind.keyType.typeName()},{kind.valueType.typeName()}>"
    return kind.typeName()


class _QueueWriter:
    """Base of the batch writer and the stream writer."""

    def __init__(self, options: WriteOptions, schema: StructType, run: str) -> None:
        check_schema(schema)
        self.options = options
        self.run = run

    def opened(self) -> Self:
        """Check on the driver that Redis is reachable, register the queue and set its dedupe window."""
        open_queue(self.options.target, self.options.dedupe_window)
        return self

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Send the rows of a task; returns when all are stored."""
        sender = send_rows(self.options, self.run, iterator)
        return TaskResult(sender.rows, sender.refused, sender.refusals)

    def _end(self, messages: list[Any], *, epoch: int = -1) -> None:
        results = [message for message in messages if isinstance(message, TaskResult)]
        self._end_run(
            refusals=[refusal for result in results for refusal in result.refusals][:MAX_REFUSALS],
            refused=sum(result.refused for result in results),
            epoch=epoch,
        )

    def _end_run(self, **counts: Any) -> None:
        target = self.options.target
        connect(target).perform(end_run(context_of(target), self.run, **counts))


class BatchWriter(_QueueWriter, DataSourceArrowWriter):  # type: ignore[misc]  # narrowed like Spark's own class
    """Writes a table to a queue as one run."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check the columns; nothing is sent to Redis yet."""
        super().__init__(options, schema, options.run or new_id())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Mark the run committed, and store its refusals."""
        self._end(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - the ledger has all
        """Mark the run aborted; messages already sent stay."""
        self._end_run(aborted=True)


class StreamWriter(_QueueWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]  # the same
    """Writes a stream to a queue as one run, which continues when the query is restarted.

    The run's name is the option `runId`, or derived from the checkpoint location. Use a name with one checkpoint only:
    micro-batches are numbered, and a number that was counted is not counted again.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check the columns and determine the run's name; nothing is sent to Redis yet."""
        super().__init__(options, schema, options.run or _run_of(options.checkpoint))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Mark the run committed up to this micro-batch; each is counted once, even if committed again."""
        self._end(messages, epoch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Mark the run aborted; messages already sent stay."""
        self._end_run(aborted=True)


def _run_of(checkpoint: str | None) -> str:
    """Return the name of a stream's run: derived from the checkpoint, so it survives restarts."""
    if not checkpoint:
        raise ConfigurationError(
            "a stream needs a run name that survives restarts: set the option runId or checkpointLocation"
        )
    return f"stream-{hashlib.sha256(checkpoint.rstrip('/').encode()).hexdigest()[:16]}"
