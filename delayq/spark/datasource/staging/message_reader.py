"""Streams messages of a queue: each that is due is a row of one micro-batch, and is acknowledged when Spark commits.

A batch is claimed before Spark writes down where it ends, and stays readable until it is committed. So a batch that is
repeated after a crash has the same rows, and a sink that writes each batch once has each message once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import sleep
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from delayq.broker.message.attributes import Attributes
from delayq.broker.message.expiry import expiry_of
from delayq.broker.message.ids import new_id
from delayq.broker.staged import StagedMessages
from delayq.bulk.connection import check_queue, partitions_of
from delayq.bulk.files.schemas import CLAIMED, arrow_schema, record_batch
from delayq.errors import ConfigurationError, MessagesLostError
from delayq.queue.placing.layout import refuse_partitions
from delayq.safe_log import SafeLog
from delayq.spark.datasource.compat import LIMITS_BATCHES, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from delayq.spark.datasource.source_options import MessageStreamOptions
from delayq.spark.datasource.staging.message_staging import MessageStaging, read_due, read_numbers
from delayq.values.codec import decode_headers
from delayq.values.text import pluralize

log = SafeLog("delayq.spark")

SCHEMA = arrow_schema(CLAIMED)
IDLE_WAIT = 0.1
"""Seconds to wait before an empty queue is looked at again: Spark asks a hundred times a second."""

Position = dict[str, Any]
"""A stream's progress, as Spark stores it: the queue, the reader of this checkpoint, and the last number read."""


@dataclass(frozen=True)
class NumberRange(InputPartition):
    """Numbers of a reader that one task reads; both ends are inclusive."""

    reader: str
    low: int
    high: int


def check_streaming() -> None:
    """Raise `ConfigurationError` where Spark asks for the end of a batch without telling where it starts."""
    if not LIMITS_BATCHES:
        raise ConfigurationError("read=messages needs PySpark 4.2 or later: pip install -U pyspark")


def batch_of(messages: StagedMessages) -> pa.RecordBatch:
    """Return what is stored under one number as rows of CLAIMED."""
    attributes = [Attributes.of(text) for text in messages.attributes]
    rows = zip(attributes, messages.dues, strict=True)
    cells: dict[str, list[Any]] = {
        "id": messages.ids,
        "name": [one.name.encode() or None for one in attributes],
        "due": messages.dues,
        "payload": messages.payloads,
        "headers": [list(decode_headers(text).items()) if text else None for text in messages.headers],
        "attempt": messages.attempts,
        "retries_left": messages.retries,
        "expires": [expiry_of(one, due) for one, due in rows],
        "token": messages.tokens,
    }
    return record_batch(cells, SCHEMA)


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams the messages of a queue with the columns of CLAIMED, each once per batch that succeeds.

    `latestOffset` claims up to `maxMessagesPerBatch` due messages, and stores them in the same script. They are leased
    until the batch is committed, when those that are still leased are acknowledged. A message whose lease has expired
    before comes again, in a batch of this query or to another consumer, and costs a retry.

    `Trigger.AvailableNow` reads as many messages as are due when the query starts.
    """

    def __init__(self, options: MessageStreamOptions) -> None:
        """Prepare the stream; nothing is sent to Redis yet."""
        self._options = options
        self._initial: Position | None = None
        self._staging: MessageStaging | None = None
        self._position: Position = {}
        self._left: int | None = None
        """How many messages a query with the trigger AvailableNow may still claim."""
        self._was_idle = False

    def initialOffset(self) -> Position:
        """Return where a query without a checkpoint starts; its reader is new."""
        if self._initial is None:
            self._check_queue()
            self._initial = {"queue": self._options.target.queue, "reader": new_id(), "offset": 0}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of messages in a batch."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end once it has claimed as many messages as are due now."""
        self._check_queue()
        self._left = read_due(self._options.target).waiting

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """Claim the messages of the next batch, and return where it ends; all up to `start` is committed."""
        staging, after = self._begun(start), int(start["offset"])
        staging.commit(after)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_messages
        if self._left is not None:
            most = min(most, self._left)
        elif self._was_idle:
            sleep(IDLE_WAIT)
        claimed = staging.stage(after, most)
        if self._left is not None:
            self._left -= claimed.messages
        self._was_idle = claimed.number == after
        self._position = start | {"offset": claimed.number}
        return self._position

    def reportLatestOffset(self) -> Position | None:
        """Return, for the progress report, how many messages wait, and when the oldest was due (ms since 1970)."""
        if self._staging is None:
            return None
        due = read_due(self._options.target)
        return self._position | {"waiting": due.waiting, "oldest_due": due.oldest}

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """Divide a batch; the leases of one that is repeated are renewed."""
        low, high = int(start["offset"]) + 1, int(end["offset"])
        self._begun(end).renew(low, high)
        parts = max(min(self._options.partitions, high - low + 1), 0)
        ends = [low - 1 + (high - low + 1) * part // parts for part in range(parts + 1)] if parts else []
        return [NumberRange(str(end["reader"]), before + 1, last) for before, last in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch; raises `MessagesLostError` if it is gone, unless failOnDataLoss is false."""
        if not isinstance(partition, NumberRange):  # Spark's stand-in for an empty list
            return
        found = 0
        for page in read_numbers(self._options.target, partition.reader, partition.low, partition.high):
            for messages in page:
                found += 1
                yield batch_of(messages)
        self._report_loss(partition.high - partition.low + 1 - found)

    def commit(self, end: Position) -> None:
        """Acknowledge what the query has read up to here, if it is still leased."""
        self._begun(end).commit(int(end["offset"]))

    def _report_loss(self, lost: int) -> None:
        if not lost:
            return
        text = (
            f"Redis has lost {pluralize(lost, 'claim')} of a batch of queue {self._options.target.queue!r}: its last"
            " second, or the query was stopped for a week; messages that were not acknowledged come again"
        )
        if self._options.fail_on_data_loss:
            raise MessagesLostError(f"{text}; continue without the claims by failOnDataLoss=false")
        log.warning("%s; continuing without the claims", text)

    def _check_queue(self) -> None:
        target = self._options.target
        check_queue(target)
        refuse_partitions(target.queue, [one.queue for one in partitions_of(target)], "consume each with a query")

    def _begun(self, position: Position) -> MessageStaging:
        """Return the claims of this run, which begins with the first call."""
        if self._staging is None:
            queue, name = position["queue"], self._options.target.queue
            if queue != name or "reader" not in position:
                belongs = f"queue {queue!r}" if queue != name else "a stream of events"
                raise ConfigurationError(
                    f"the checkpoint belongs to {belongs}, not to the messages of {name!r}: use another"
                )
            self._check_queue()
            self._staging = MessageStaging(self._options.target, str(position["reader"]), lease=self._options.lease)
            self._staging.begin()
        return self._staging
