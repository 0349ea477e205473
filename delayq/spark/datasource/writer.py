"""Writing messages to a queue: what a task does with its rows, and what the driver does when all tasks are through.

A task sends its rows in batches, each stored as a whole or not at all. It may be run again, wholly or in part, at any
time: an id is stored once while its message lives and within the queue's dedupe window, and the run ledger in Redis
counts what became of every row that was sent.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from delayq.clock import HORIZON, monotonic
from delayq.config import QueueOptions, read_settings
from delayq.errors import ConfigurationError, DelayqError
from delayq.ids import new_id
from delayq.message import Tools
from delayq.producer import SLICE_BYTES, SPENT, send_again
from delayq.runs import MOST_REFUSALS
from delayq.spark.columns import Refusal, check_columns, to_messages
from delayq.spark.connection import calls_of, connect
from delayq.spark.ledger import RunLedger, ledger_of
from delayq.spark.options import WriteOptions
from delayq.values import Outgoing, OutgoingTable

ROUND = 50
"""Calls of one round trip: the server is at work on the first while the last are packed."""


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver: how many rows it sent and refused, and of the first refused ones id and reason."""

    rows: int = 0
    refused: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list)


class Pace:
    """Holds a task back to so many rows a second, counted from its first row."""

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Let `rate` rows through a second, by a clock that does not jump."""
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def wait(self, rows: int) -> None:
        """Return when so many rows may be sent."""
        now = self._clock()
        if now < self._free_at:
            self._sleep(self._free_at - now)
        # Time that went by without rows is not made up for: the server would feel it as a burst.
        self._free_at = max(now, self._free_at) + rows / self._rate


class Sending:
    """The rows of one task on their way into the queue."""

    def __init__(self, options: WriteOptions, run: str) -> None:
        """Send under the name of a run."""
        # Spent ids in the way are moved to the dead letter; how much that keeps is for the queue's workers to say.
        settings = read_settings(QueueOptions(dead_max=1 << 40, dead_ttl=HORIZON / 1000))
        self._options = options
        self._run = run
        self._tools = Tools(calls_of(options.target), settings, bytes)
        self._executor = connect(options.target)
        rate = options.max_rows_per_second
        self._pace = Pace(rate) if rate else None
        self._most = min(options.batch_size, max(1, int(rate))) if rate else options.batch_size
        self._seen = 0
        self.written = Written()

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch; all are checked before the first is sent."""
        messages, refusals = to_messages(batch, self._options)
        if refusals:
            self._refuse(refusals)
        self._seen += batch.num_rows
        slices = _slices(messages, self._most)
        while part := list(islice(slices, 1 if self._pace else ROUND)):
            if self._pace:
                self._pace.wait(len(part[0].ids))
            self._carry_out(part)

    def _refuse(self, refusals: list[Refusal]) -> None:
        if self._options.on_error == "fail":
            first, more = refusals[0], len(refusals) - 1
            id = f" (id {first.id!r:.140})" if first.id else ""
            others = f"; of its batch {more} more" if more else ""
            raise type(first.error)(
                f"row {self._seen + first.row + 1} of the task{id}: {first.error}{others}; nothing of this batch was"
                " sent, and with onError=collect the other rows would be"
            )
        self.written.refused += len(refusals)
        room = MOST_REFUSALS - len(self.written.refusals)
        self.written.refusals += [(one.id, str(one.error)) for one in refusals[:room]]

    def _carry_out(self, parts: list[OutgoingTable]) -> None:
        replace, run = self._options.on_conflict == "replace", self._run
        calls = (self._tools.calls.send(part, replace=replace, max_length=None, run=run) for part in parts)
        for part, answer in zip(parts, self._executor.run(calls), strict=True):
            if isinstance(answer, DelayqError):
                raise answer
            digits = answer
            if SPENT in digits:
                rows = zip(zip(*part, strict=True), digits, strict=True)
                spent = [Outgoing(*row) for row, digit in rows if digit == SPENT]
                again = iter(self._executor.perform(send_again(self._tools, spent, replace=replace, run=run)))
                digits = "".join(next(again) if digit == SPENT else digit for digit in digits)
            if self._options.on_conflict == "fail":
                _expect_new(part.ids, digits, self._options)
            self.written.rows += len(digits)


def _slices(messages: OutgoingTable, most: int) -> Iterator[OutgoingTable]:
    """Cut messages into batches of at most so many, and of so many bytes that they do not hold the server up."""
    sizes = list(map(len, messages.payloads))
    first = 0
    while first < len(sizes):
        end = min(first + most, len(sizes))
        while end > first + 1 and sum(sizes[first:end]) > SLICE_BYTES:
            end = (first + end) // 2
        yield OutgoingTable._make(column[first:end] for column in messages)
        first = end


def _expect_new(ids: Sequence[str], digits: str, options: WriteOptions) -> None:
    met = [(id, digit) for id, digit in zip(ids, digits, strict=True) if digit != "1"]
    if met:
        id, digit = met[0]
        state = "was settled within its dedupe window" if digit == "5" else "is in it already"
        raise DelayqError(
            f"queue {options.target.queue} is to get new ids only (onConflict=fail), but {id!r} {state};"
            " what was stored before stays, and writing the table again with onConflict=skip adds only the rest"
        )


class _Writer:
    """What the batch writer and the stream writer have in common."""

    def __init__(self, options: WriteOptions, schema: StructType, run: str) -> None:
        check_columns(schema)
        self.options = options
        self.run = run

    def open(self) -> None:
        """See on the driver that Redis is there, make the queue known and see to its dedupe window."""
        self._ledger.open()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task; returns when all are stored."""
        sending = Sending(self.options, self.run)
        for batch in iterator:
            sending.send(batch)
        return sending.written

    @property
    def _ledger(self) -> RunLedger:
        return ledger_of(self.options.target, dedupe_window=self.options.dedupe_window)

    def _end(self, messages: list[Any], *, epoch: int = -1) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        self._ledger.end_run(
            self.run,
            refusals=[refusal for one in written for refusal in one.refusals][:MOST_REFUSALS],
            refused=sum(one.refused for one in written),
            epoch=epoch,
        )

    def _abort(self) -> None:
        self._ledger.end_run(self.run, aborted=True)


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]  # narrowed as Spark's own class does
    """Writes a table to a queue as one run."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check the columns; nothing is sent to Redis."""
        super().__init__(options, schema, options.run or new_id())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Mark the run committed, with what was refused."""
        self._end(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - what tasks sent is in the ledger
        """Mark the run aborted; what was sent stays sent."""
        self._abort()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]  # the same
    """Writes a stream to a queue as one run, which goes on when the query is started again.

    The run is named by the option `runId`, else made of the checkpoint location. A name goes with one checkpoint: its
    micro-batches are numbered, and one that was counted is not counted again.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check the columns and find the name of the run; nothing is sent to Redis."""
        super().__init__(options, schema, options.run or _run_of(options.checkpoint))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Mark the run committed up to this micro-batch, which is counted once however often it is committed."""
        self._end(messages, epoch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Mark the run aborted; what was sent stays sent."""
        self._abort()


def _run_of(checkpoint: str | None) -> str:
    """Return the name of a stream's run: made of what stays the same when the query is started again."""
    if not checkpoint:
        raise ConfigurationError(
            "a stream keeps one run over its restarts: give it a name as option runId, or option checkpointLocation"
        )
    return f"stream-{hashlib.sha256(checkpoint.rstrip('/').encode()).hexdigest()[:16]}"
