"""Sends the rows of a task of Spark; without PySpark, which its worker processes load only in part."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from delayq.bulk.message_batches import MessageSender
from delayq.spark.datasource.source_options import WriteOptions


def send_rows(options: WriteOptions, run: str, batches: Iterable[pa.RecordBatch]) -> MessageSender:
    """Send the rows of a task as part of a run; returns when all are stored, with their numbers and refusals."""
    sender = MessageSender(options.target, options, run, _row_of_task)
    for batch in batches:
        # Spark compares names of columns in any case.
        sender.send(batch.rename_columns([name.lower() for name in batch.schema.names]))
    return sender


def _row_of_task(number: int) -> str:
    return f"row {number + 1} of the task"
