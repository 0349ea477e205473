"""Writes messages to a queue: the tasks send their rows, the driver ends the run when all tasks are done.

A task sends its rows in batches, each stored as a whole or not at all. Spark may run a task again, completely or in
part: an id is stored once while its message lives and within the queue's dedupe window, and the run ledger in Redis
counts the outcome of every row sent.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from delayq.broker.batches import batched, byte_slices
from delayq.broker.ids import new_id
from delayq.broker.requests import Outgoing, OutgoingTable
from delayq.errors import ConfigurationError, DelayqError
from delayq.queue.bulk_runs import MAX_REFUSALS, end_run
from delayq.queue.producer import BATCH_BYTES, SPENT, send_spent
from delayq.spark.datasource.connection import connect, context_of, open_queue
from delayq.spark.datasource.message_batches import Refusal, check_columns, to_messages
from delayq.spark.datasource.source_options import WriteOptions
from delayq.times import monotonic

CALLS_PER_ROUND_TRIP = 50
"""The server works on the first calls while the last are being packed."""


@dataclass
class TaskResult(WriterCommitMessage):
    """What a task reports to the driver: rows sent and refused, and id and reason of the first refusals."""

    rows: int = 0
    refused: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list)


class RateLimiter:
    """Limits a task to a number of rows per second, counted from its first row."""

    def __init__(
        self, rate: float, *, clock: Callable[[], float] = monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Allow `rate` rows per second; `clock` must be monotonic."""
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def wait(self, rows: int) -> None:
        """Wait until `rows` rows may be sent."""
        now = self._clock()
        if now < self._free_at:
            self._sleep(self._free_at - now)
        # Idle time is not made up for: that would send a burst to the server.
        self._free_at = max(now, self._free_at) + rows / self._rate


class TaskSender:
    """Sends the rows of one task."""

    def __init__(self, options: WriteOptions, run: str) -> None:
        """Send as part of a run."""
        self._options = options
        self._run = run
        self._context = context_of(options.target)
        self._executor = connect(options.target)
        rate = options.max_rows_per_second
        self._limiter = RateLimiter(rate) if rate else None
        self._batch_size = min(options.batch_size, max(1, int(rate))) if rate else options.batch_size
        self._rows_before = 0
        self.result = TaskResult()

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch; all are validated before the first is sent."""
        messages, refusals = to_messages(batch, self._options)
        if refusals:
            self._refuse(refusals)
        self._rows_before += batch.num_rows
        slices = byte_slices(list(map(len, messages.payloads)), BATCH_BYTES, self._batch_size)
        parts = (OutgoingTable._make(column[part] for column in messages) for part in slices)
        for together in batched(parts, 1 if self._limiter else CALLS_PER_ROUND_TRIP):
            if self._limiter:
                self._limiter.wait(len(together[0].ids))
            self._send_together(together)

    def _refuse(self, refusals: list[Refusal]) -> None:
        if self._options.on_error == "fail":
            first, more = refusals[0], len(refusals) - 1
            id = f" (id {first.id!r:.140})" if first.id else ""
            others = f"; {more} more in its batch" if more else ""
            raise type(first.error)(
                f"row {self._rows_before + first.row + 1} of the task{id}: {first.error}{others};"
                " no row of this batch was sent: set onError=collect to send the valid ones"
            )
        self.result.refused += len(refusals)
        free = MAX_REFUSALS - len(self.result.refusals)
        self.result.refusals += [(one.id, str(one.error)) for one in refusals[:free]]

    def _send_together(self, parts: list[OutgoingTable]) -> None:
        replace, run = self._options.on_conflict == "replace", self._run
        calls = (self._context.calls.send(part, replace=replace, max_length=None, run=run) for part in parts)
        for part, reply in zip(parts, self._executor.run(calls), strict=True):
            if isinstance(reply, DelayqError):
                raise reply
            statuses = reply
            if SPENT in statuses:
                rows = list(map(Outgoing._make, zip(*part, strict=True)))
                statuses, _ = self._executor.perform(
                    send_spent(self._context, rows, statuses, [0] * len(rows), replace=replace, run=run)
                )
            if self._options.on_conflict == "fail":
                _expect_new(part.ids, statuses, self._options)
            self.result.rows += len(statuses)


def _expect_new(ids: Sequence[str], statuses: str, options: WriteOptions) -> None:
    existing = [(id, status) for id, status in zip(ids, statuses, strict=True) if status != "1"]
    if existing:
        id, status = existing[0]
        state = "was settled within the dedupe window of" if status == "5" else "already exists in"
        raise DelayqError(
            f"id {id!r} {state} queue {options.target.queue}, which onConflict=fail does not allow;"
            " messages stored so far stay; write the table again with onConflict=skip to add only the rest"
        )


class _QueueWriter:
    """Base of the batch writer and the stream writer."""

    def __init__(self, options: WriteOptions, schema: StructType, run: str) -> None:
        check_columns(schema)
        self.options = options
        self.run = run

    def opened(self) -> Self:
        """Check on the driver that Redis is reachable, register the queue and set its dedupe window."""
        open_queue(self.options.target, self.options.dedupe_window)
        return self

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Send the rows of a task; returns when all are stored."""
        sender = TaskSender(self.options, self.run)
        for batch in iterator:
            sender.send(batch)
        return sender.result

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
