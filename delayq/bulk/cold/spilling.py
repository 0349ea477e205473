"""Moves messages from Redis to files: written first, then taken out of the queue, then divided by day.

Redis says at each step who owns a message. A kill leaves a file that `recover` completes, or gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from delayq.broker.batches import BATCH_BYTES, byte_slices
from delayq.broker.calls import Calls
from delayq.broker.foreign import read_number, shown_id
from delayq.broker.keys import check_id
from delayq.broker.message.ids import new_id
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.executor import Executor
from delayq.bulk.cold.cold_calls import REFUSED, ColdRow, file_spilled_call, forget_calls, give_up_call, spill_call
from delayq.bulk.cold.cold_folder import ColdFolder, files_by_day
from delayq.errors import ColdTierError, InvalidValueError
from delayq.queue.inspecting.cold_tier import DAY, VOID, ColdFile, ColdTier, read_cold
from delayq.queue.sweeps.stored_messages import PAGE_BYTES, SnapshotReply, snapshot_call
from delayq.values.text import pluralize

FILE_ROWS = 10_000
"""Messages that are written to a file at a time, at most."""
FILE_BYTES = 16 << 20
"""Bytes of these, and then those of one more page."""


class Moving(NamedTuple):
    """What a pass works with."""

    calls: Calls
    executor: Executor
    folder: ColdFolder


class _Page(NamedTuple):
    rows: list[ColdRow]
    read: int
    """When it was read (ms)."""
    cursor: bytes
    score: bytes


def spill(moving: Moving, later: int) -> int:
    """Move what is due at a time (ms) or after it to files; returns how many messages."""
    run, spilled = new_id(), 0
    cursor, score = b"", b"%d" % later
    for number in count():
        rows, oldest = list[ColdRow](), 0
        while len(rows) < FILE_ROWS and sum(len(row.payload) for row in rows) < FILE_BYTES:
            page = _read(moving, cursor, score)
            oldest = oldest or page.read
            rows += page.rows
            cursor, score = page.cursor, page.score
            if not cursor:
                break
        if rows:
            spilled += _move(moving, f"{run}-{number}", rows, oldest)
        if not cursor:
            return spilled
    return spilled


def _read(moving: Moving, cursor: bytes, score: bytes) -> _Page:
    call = snapshot_call(moving.calls, "", limit=MAX_IDS, cursor=cursor, score=score, byte_limit=PAGE_BYTES)
    page = moving.executor.call(call)
    return _Page(_rows(page), page.now, page.cursor, page.score)


def _rows(page: SnapshotReply) -> list[ColdRow]:
    """Return the messages of a page that have never been delivered; the script looks at all else."""
    rows, none = [], [None] * len(page.ids)
    cells = (page.records, page.retries, page.payloads, page.headers, page.attributes)
    columns = (page.ids, page.times, *(column or none for column in cells))
    for id, due, record, retries, payload, headers, attributes in zip(*columns, strict=True):
        left = read_number(retries or b"0")
        if payload is None or record or left is None:
            continue
        try:
            rows.append(ColdRow(check_id(shown_id(id)), int(due), left, payload, headers or b"", attributes or b""))
        except (ValueError, InvalidValueError):  # another program's
            continue
    return rows


def _move(moving: Moving, name: str, rows: list[ColdRow], oldest: int) -> int:
    """Write messages, take them out of the queue, and divide them by day; returns how many were moved."""
    calls, executor, folder = moving
    folder.write_spilled(name, rows)
    moved = ""
    while len(moved) < len(rows):
        part = rows[len(moved) : len(moved) + MAX_IDS]
        part = part[next(byte_slices([len(row.text) for row in part], BATCH_BYTES))]
        statuses = executor.call(spill_call(calls, folder.id, name, part, first=len(moved), oldest=oldest))
        if statuses == REFUSED:  # another pass has given the file up, or completes it
            break
        moved += statuses
    return _complete(moving, name, rows)


def recover(moving: Moving, tier: ColdTier) -> None:
    """Complete what earlier passes have begun.

    Raises `ColdTierError` if files of messages that were taken are gone or cannot be read, or the disk is full: when
    all else is done.
    """
    moving.folder.clean()
    problems = _take_back(moving, tier)
    there = moving.folder.spilled()
    for name in there:
        try:
            _complete(moving, name)
        except ColdTierError as error:
            problems.append(str(error))
    gone = [name for name, moved in tier.moved.items() if name not in there and "1" in moved]
    left = moving.executor.call(read_cold(moving.calls)).moved if gone else {}
    lost = [name for name in gone if "1" in left.get(name, "") and not _note_again(moving, name, left[name])]
    if lost:
        problems.append(f"{pluralize(len(lost), 'file')} of the cold tier gone: _moved/{lost[0]}.parquet, …")
    now = moving.executor.call(moving.calls.time())
    old = [name for name, at in tier.void.items() if now - at > DAY]
    for call in forget_calls(moving.calls, "moved", old):
        moving.executor.call(call)
    for file in tier.back:
        try:
            put_away(moving, file)
        except ColdTierError as error:
            problems.append(str(error))
    raise_if_any(problems)


def raise_if_any(problems: Sequence[str]) -> None:
    """Raise `ColdTierError` with the first of what a step went wrong with, once it has done all else."""
    if problems:
        raise ColdTierError("; ".join(problems[:5]))


def _take_back(moving: Moving, tier: ColdTier) -> list[str]:
    """Take back files that count and were put away, since Redis has lost what it knew of that; says which are gone."""
    folder, there = moving.folder, set(moving.folder.spilled())
    away = {file.name for file in tier.files if not folder.has(file.name)}
    spilled = {name for name, moved in tier.moved.items() if "1" in moved and name not in there}
    if not away and not spilled:
        return []
    now = moving.executor.call(read_cold(moving.calls))  # else another pass has put them away meanwhile
    for name in spilled & now.moved.keys():
        folder.take_spilled_back(name)
    gone = [file for file in now.files if file.name in away and not folder.take_back(file.name)]
    return [gone_text(gone)] if gone else []


def gone_text(gone: Sequence[ColdFile]) -> str:
    """Say that files are gone whose messages count."""
    days = ", ".join(sorted({file.day.isoformat() for file in gone})[:5])
    missing = sum(file.rows - file.back for file in gone)
    return f"{missing:,} messages cannot come back, since their files are gone: due on {days}"


def _note_again(moving: Moving, name: str, moved: str) -> bool:
    """Note the files by day that a spilled file was divided into, if Redis has lost that; return if all are there."""
    days = moving.folder.find(_divided(name, moved))
    if sum(days.values()) != moved.count("1"):
        return False
    return moving.executor.call(file_spilled_call(moving.calls, name, moved, days)) in (moved, REFUSED)


def put_away(moving: Moving, file: str) -> None:
    """Put a file away whose messages are back."""
    moving.folder.put_away(file)
    for call in forget_calls(moving.calls, "back", [file]):
        moving.executor.call(call)


def _complete(moving: Moving, name: str, written: list[ColdRow] | None = None) -> int:
    """Divide a spilled file by day, or give it up if no message was moved to it; returns how many were.

    Reads the file, unless what was `written` to it is known.
    """
    calls, executor, folder = moving
    moved, rows, days = REFUSED, list[ColdRow](), dict[str, list[ColdRow]]()
    found = executor.call(give_up_call(calls, name))
    while found not in (REFUSED, moved) and not _is_void(found):
        moved = found
        try:
            every = folder.read_spilled(name) if written is None else written
        except FileNotFoundError:  # another pass has completed it
            return 0
        rows = [row for row, status in zip(every, moved, strict=False) if status == "1"]
        days = files_by_day(_divided(name, moved), rows)
        for file, part in days.items():
            folder.write_day(file, part)
        folder.sync()
        found = executor.call(file_spilled_call(calls, name, moved, {file: len(part) for file, part in days.items()}))
    if found != moved or found == REFUSED:  # another pass was first: what it has brought back must not stay
        known = {file.name for file in executor.call(read_cold(calls)).files}
        for file in days.keys() - known:
            folder.remove(file)
    folder.remove_spilled(name)
    return len(rows)


def _divided(name: str, moved: str) -> str:
    """Return the name of the files by day of a spilled one, by how many of its messages were asked for.

    A slow pass that knows fewer of them must not write to the files of one that has completed it.
    """
    return f"{name}-{len(moved)}"


def _is_void(moved: str) -> bool:
    return moved.startswith(VOID)
