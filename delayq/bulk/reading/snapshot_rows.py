"""Rows of a snapshot: messages of a queue, collected by columns for Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from delayq.broker.foreign import record_fields
from delayq.broker.replies import MessageRow
from delayq.bulk.files.schemas import BATCH_ROWS, SNAPSHOT, arrow_schema, record_batch
from delayq.queue.inspecting.deaths import Death
from delayq.queue.inspecting.inspector import RECORDED_STATES
from delayq.queue.sweeps.stored_messages import SnapshotReply
from delayq.values.codec import decode_headers
from delayq.values.states import State, state_at
from delayq.values.times import timestamp

BATCH_BYTES = 8 << 20
"""Approximate bytes of payloads in one Arrow batch."""
SCHEMA = arrow_schema(SNAPSHOT)


class SnapshotRows:
    """Rows collected for the next Arrow batch."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.count = self._bytes = 0
        self._cells: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}

    @property
    def is_full(self) -> bool:
        """Whether there are enough rows for a batch."""
        return self.count >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add_pending(self, page: SnapshotReply, dues: list[int], selected: range) -> None:
        """Add the selected rows of a page of pending messages."""
        count = len(selected)
        part = slice(selected.start, selected.stop)
        states = [state_at(State.PENDING, due, page.now) for due in dues[part]]
        self._add_page(page, part, state=states, due=dues[part], attempt=[0] * count)
        # A message that was delivered before and then rescheduled has a record.
        for index, record in enumerate(page.records[part]):
            if record:
                _, _, attempt, _, token, holder = record_fields(record.decode("utf-8", "replace"))
                at = index - count
                self._cells["attempt"][at], self._cells["token"][at] = int(attempt), int(token) or None
                self._cells["holder"][at] = None if holder == "-" else holder

    def add_promoted(self, page: SnapshotReply, index: int, record: list[str]) -> None:
        """Add one row of a page of promoted messages; `record` is its record, split."""
        word, due, attempt, _, token, holder = record
        self._add_page(
            page,
            slice(index, index + 1),
            state=[RECORDED_STATES[word]],
            due=[int(due)],
            deadline=[int(page.times[index]) if page.times[index] else None],
            attempt=[int(attempt)],
            token=[int(token) or None],
            holder=[None if holder == "-" else holder],
        )

    def add_dead(self, row: MessageRow, death: Death, *, with_payload: bool) -> None:
        """Add a message of the dead letter."""
        id, _, token = row.id.rpartition(":")
        self._add(
            1,
            id=[id.encode()],
            state=[State.DEAD],
            due=[timestamp(death.due)],
            retries_left=[0],
            attempt=[death.attempts],
            token=[int(token)],
            reason=[death.reason],
            error=[death.error.encode() or None],
            died=[timestamp(death.died)],
            payload_size=[row.size - len(row.payload) + len(death.payload)],
            payload=[death.payload] if with_payload else [],
            headers=_headers([death.headers]),
        )

    def _add_page(self, page: SnapshotReply, part: slice, **columns: list[Any]) -> None:
        """Add a part of a page; `columns` are those that depend on the state."""
        ids = page.ids[part]
        self._add(
            len(ids),
            id=ids,
            retries_left=[int(left or 0) for left in page.retries[part]],
            error=page.errors[part],
            payload_size=page.sizes[part],
            payload=page.payloads[part],
            headers=_headers(page.headers[part]),
            **columns,
        )

    def _add(self, count: int, **columns: list[Any]) -> None:
        """Add rows by columns; a missing or empty column is null in all of them."""
        for name in self._cells:
            self._cells[name] += columns.get(name) or [None] * count
        self.count += count
        self._bytes += sum(map(len, filter(None, columns["payload"])))

    def take(self) -> pa.RecordBatch:
        """Return all rows as a batch, and start a new one."""
        batch = record_batch(self._cells, SCHEMA)
        self._reset()
        return batch


def _headers(stored: list[bytes | None]) -> list[Any]:
    """Return headers as pairs, which Arrow takes as a map."""
    return [list(decode_headers(headers).items()) if headers else None for headers in stored]
