"""Reads what is cold of a queue, message by message, to compare it with the event log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from delayq.bulk.cold.cold_calls import ColdChange, ColdRow, read_changes
from delayq.bulk.cold.cold_folder import ColdFolder
from delayq.bulk.connection import calls_of, check_queue, connect, target_of
from delayq.errors import ColdTierError
from delayq.queue.inspecting.cold_tier import ColdTier, read_cold
from delayq.values.times import Duration

COLD, WITHDRAWN = "cold", "withdrawn"
"""The states of cold messages."""
_arrow: Any = pa
SCHEMA = _arrow.schema(
    [
        pa.field("id", pa.string()),
        pa.field("state", pa.string()),
        pa.field("due", pa.timestamp("us", tz="UTC")),
        pa.field("retries_left", pa.int32()),
        pa.field("digest", pa.string()),
    ]
)


def cold_messages(
    queue: str,
    folder: str | Path,
    *,
    url: str | None = None,
    prefix: str = "delayq",
    deadline: Duration | None = None,
) -> pa.Table:
    """Return the messages of the files that the queue's Redis counts, with a SHA-256 digest of each payload.

    The columns are id, state (`cold`, or `withdrawn` if it does not come back), due, retries_left and digest. Messages
    of files that are gone are left out, and so are those that are back. Takes about 100 bytes of memory per message.
    A pass may work at the same time: the result is what was cold at some time during the call.

    Raises `ColdTierError` if the folder is not that of the queue's cold tier, or a file cannot be read, and
    `ConfigurationError` if there is no such queue.
    """
    target = target_of(queue, url, prefix, deadline)
    check_queue(target)
    calls, executor, place = calls_of(target), connect(target), Path(folder).absolute()
    if not ColdFolder.is_at(place):
        raise ColdTierError(f"{str(place)!r} is no folder of a cold tier")
    while True:
        tier = executor.call(read_cold(calls))
        opened = ColdFolder.open(place, queue, prefix, tier.folder)
        changes = executor.perform(read_changes(calls))
        batches = list[Any]()
        gone = [name for name, rows in _files(opened, tier) if not _read(opened, name, rows, changes, batches)]
        if not gone or executor.call(read_cold(calls)) == tier:  # else a pass has moved some: begin again
            found: pa.Table = _arrow.Table.from_batches(batches, schema=SCHEMA)
            return found


def _files(folder: ColdFolder, tier: ColdTier) -> Iterator[tuple[str, Iterable[list[ColdRow]]]]:
    """Yield the files that count, and their messages that count."""
    for file in tier.files:
        # Redis may have lost its last seconds, and with them that a file is back: the next pass takes it back, too.
        read = folder.read if folder.has(file.name) else folder.read_done
        yield file.name, read(file.name, file.back)
    for name, moved in tier.moved.items():
        yield name, _moved(folder, name, moved)


def _moved(folder: ColdFolder, name: str, moved: str) -> Iterator[list[ColdRow]]:
    yield [row for row, status in zip(folder.read_spilled(name), moved, strict=False) if status == "1"]


def _read(
    folder: ColdFolder, name: str, rows: Iterable[list[ColdRow]], changes: Mapping[str, ColdChange], batches: list[Any]
) -> bool:
    """Add the messages of a file; return False if it is gone."""
    found = list[Any]()
    try:
        for part in rows:
            found.append(_batch(part, changes))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ColdTierError(f"{name} of the cold tier in {str(folder.path)!r} cannot be read: {error}") from error
    batches += found
    return True


def _batch(rows: list[ColdRow], changes: Mapping[str, ColdChange]) -> Any:
    cells = list[tuple[Any, ...]]()
    for row in rows:
        change = changes.get(row.id)
        if change is not None and change.is_done:
            continue
        state = COLD if change is None or change.due is not None else WITHDRAWN
        cells.append((row.id, state, row.due, row.retries, hashlib.sha256(row.payload).hexdigest()))
    columns = list(zip(*cells, strict=True)) or [()] * len(SCHEMA)
    millis = pa.timestamp("ms", tz="UTC")
    arrays = [
        pa.array(list(column), millis).cast(field.type) if field.name == "due" else pa.array(list(column), field.type)
        for field, column in zip(SCHEMA, columns, strict=True)
    ]
    return _arrow.RecordBatch.from_arrays(arrays, schema=SCHEMA)
