"""Rows of a snapshot on their way into Arrow: gathered as one list for each column, since rows are what costs."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from delayq.answers import Living, Row
from delayq.clock import timestamp
from delayq.inspector import Death
from delayq.spark.reading import INSTANT, ROWS, instants, texts
from delayq.states import State

MANY_BYTES = 8 << 20
"""Bytes of payloads in one Arrow batch, about."""

_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.string(),
    "state": pa.string(),
    "due": INSTANT,
    "deadline": INSTANT,
    "retries_left": pa.int32(),
    "attempt": pa.int32(),
    "token": pa.int64(),
    "holder": pa.string(),
    "reason": pa.string(),
    "error": pa.string(),
    "died": INSTANT,
    "payload_size": pa.int32(),
    "payload": pa.binary(),
    "headers": pa.map_(pa.string(), pa.string()),
}
SCHEMA = pa.schema(_COLUMNS)
"""SNAPSHOT, in Arrow's words."""

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_STATES = {"leased": State.ACTIVE}


class Rows:
    """Rows that wait to be handed over, a list a column."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.count = self._bytes = 0
        self._cells: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}

    @property
    def are_many(self) -> bool:
        """Whether they make a batch."""
        return self.count >= ROWS or self._bytes >= MANY_BYTES

    def add_pending(self, page: Living, dues: list[int], some: range) -> None:
        """Add some rows of a page of pending messages."""
        count = len(some)
        part = slice(some.start, some.stop)
        attempts, tokens, holders = [0] * count, [None] * count, [None] * count
        self._add(
            count,
            id=page.ids[part],
            state=[State.PENDING] * count,
            due=dues[part],
            retries_left=[int(left or 0) for left in page.retries[part]],
            attempt=attempts,
            token=tokens,
            holder=holders,
            error=page.errors[part],
            payload_size=page.sizes[part],
            payload=page.payloads[part],
            headers=_headers(page.headers[part]),
        )
        # A message that has been delivered before and was rescheduled has a record.
        for index, record in enumerate(page.records[part]):
            if record:
                _, _, attempt, _, token, holder = record.decode().split(" ", 5)
                at = index - count
                self._cells["attempt"][at], self._cells["token"][at] = int(attempt), int(token) or None
                self._cells["holder"][at] = None if holder == "-" else holder

    def add_promoted(self, page: Living, index: int, record: list[str]) -> None:
        """Add one row of a page of promoted messages, whose record is given in its parts."""
        word, due, attempt, _, token, holder = record
        here = slice(index, index + 1)
        self._add(
            1,
            id=page.ids[here],
            state=[_STATES.get(word) or State(word)],
            due=[int(due)],
            deadline=[int(page.times[index]) if page.times[index] else None],
            retries_left=[int(left or 0) for left in page.retries[here]],
            attempt=[int(attempt)],
            token=[int(token) or None],
            holder=[None if holder == "-" else holder],
            error=page.errors[here],
            payload_size=page.sizes[here],
            payload=page.payloads[here],
            headers=_headers(page.headers[here]),
        )

    def add_dead(self, row: Row, death: Death, *, with_payload: bool) -> None:
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

    def _add(self, count: int, **columns: list[Any]) -> None:
        """Add rows by columns; one that is missing or empty is null in all of them."""
        for name in self._cells:
            self._cells[name] += columns.get(name) or [None] * count
        self.count += count
        self._bytes += sum(map(len, filter(None, columns["payload"])))

    def taken(self) -> pa.RecordBatch:
        """Return all rows as a batch, and begin anew."""
        cells = self._cells
        made: dict[str, pa.Array[Any]] = {name: instants(cells[name]) for name in ("due", "deadline", "died")}
        made |= {name: texts(cells[name]) for name in ("id", "error")}
        arrays = [made.get(name) or pa.array(cells[name], SCHEMA.field(name).type) for name in SCHEMA.names]
        self._begin()
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _headers(stored: list[bytes | None]) -> list[Any]:
    """Return headers as Arrow takes a map: pairs."""
    return [list(_decode_headers(top).items()) if top else None for top in stored]
