"""Sends the rows of Arrow batches as messages of a run."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from delayq.bulk.connection import TargetQueue
from delayq.bulk.load_options import LoadOptions
from delayq.bulk.loading.message_batches import to_messages
from delayq.bulk.loading.table_sender import TableSender


class MessageSender(TableSender):
    """Sends the rows of a table, or of one task of Spark."""

    def __init__(self, target: TargetQueue, options: LoadOptions, run: str, name_row: Callable[[int], str]) -> None:
        """Send as part of a run. `name_row` returns what errors call a row, from its place among all rows sent."""
        super().__init__(target, options, run)
        self._name_row = name_row
        self._rows_before = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch; all are validated before the first is sent."""
        messages, refusals = to_messages(batch, self._options)
        if refusals:
            self.refuse(refusals, lambda row: self._name_row(self._rows_before + row))
        self._rows_before += batch.num_rows
        self.send_tables([messages])
