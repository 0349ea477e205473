"""Merges the small files of a day, so that a tier that gets a few messages often has few files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from delayq.broker.message.ids import new_id
from delayq.bulk.cold.cold_calls import merge_files_call
from delayq.bulk.cold.spilling import Moving, put_away
from delayq.errors import ColdTierError
from delayq.queue.inspecting.cold_tier import ColdFile, read_cold
from delayq.safe_log import SafeLog

log = SafeLog("delayq.cold")
MIN_FILES = 8
"""Small files of a day that are merged, at least."""
SMALL = 50_000
"""Messages that a small file has at most."""
MAX_ROWS, MAX_BYTES = 200_000, 128 << 20
"""Messages, and bytes of the files, that are merged at a time."""


def merge_small(moving: Moving) -> None:
    """Merge the small files of each day that has many.

    The queue lets the new file count in place of the old ones in one step. If it refuses, as another pass has brought
    some back, the new file is deleted.
    """
    for files in _chosen(moving, moving.executor.call(read_cold(moving.calls)).files):
        _merge(moving, files)


def _chosen(moving: Moving, files: Sequence[ColdFile]) -> Iterator[list[ColdFile]]:
    small = [file for file in files if file.rows <= SMALL and not file.back]
    for _, day in groupby(small, lambda file: file.day):
        taken, rows, size = list[ColdFile](), 0, 0
        for file in sorted(day, key=lambda file: file.rows):
            rows, size = rows + file.rows, size + moving.folder.size(file.name)
            if rows > MAX_ROWS or size > MAX_BYTES:
                break
            taken.append(file)
        if len(taken) >= MIN_FILES:
            yield taken


def _merge(moving: Moving, files: Sequence[ColdFile]) -> None:
    calls, executor, folder = moving
    names = [file.name for file in files]
    new = f"{names[0].partition('/')[0]}/{new_id()}.parquet"
    try:
        rows = [row for name in names for batch in folder.read(name, 0) for row in batch]
    except FileNotFoundError:  # another pass has it, or it is gone: bringing it back will tell
        return
    except ColdTierError as error:
        log.warning("the files of %s are not merged: %s", names[0].partition("/")[0], error)
        return
    folder.write_day(new, sorted(rows, key=lambda row: (row.due, row.id)))
    if executor.call(merge_files_call(calls, new, len(rows), names)):
        for name in names:
            put_away(moving, name)
    elif new not in {file.name for file in executor.call(read_cold(calls)).files}:
        folder.remove(new)
