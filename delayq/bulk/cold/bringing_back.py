"""Brings messages back from the files of the cold tier, each once: Redis counts how many of a file are back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from delayq.broker.batches import BATCH_BYTES, batched, byte_slices
from delayq.broker.scripts import MAX_IDS, MAX_MOVED
from delayq.bulk.cold.cold_calls import BACK, ColdRow, drop_changes_call, read_changes, restore_call
from delayq.bulk.cold.spilling import Moving, put_away
from delayq.errors import ColdTierError
from delayq.queue.inspecting.cold_tier import ColdFile, day_of, read_cold


def bring_back(moving: Moving, until: int, counts: Counter[str]) -> None:
    """Bring back the files of all days until that of a time (ms); adds up what became of their messages.

    Raises `ColdTierError` if some are gone or cannot be read, when all others are back.
    """
    tier = moving.executor.call(read_cold(moving.calls))
    gone, problems = list[ColdFile](), list[str]()
    for file in tier.files:
        if file.day <= day_of(until):
            try:
                if not _bring_back(moving, file, counts):
                    gone.append(file)
            except ColdTierError as error:
                problems.append(str(error))
    if gone:
        days = ", ".join(sorted({file.day.isoformat() for file in gone})[:5])
        missing = sum(file.rows - file.back for file in gone)
        problems.insert(0, f"{missing:,} messages cannot come back, since their files are gone: due on {days}")
    if problems:
        raise ColdTierError("; ".join(problems[:5]))


def _bring_back(moving: Moving, file: ColdFile, counts: Counter[str]) -> bool:
    """Bring back a file; returns False if it is gone."""
    first = file.back
    while True:
        try:
            first = _restore(moving, file, first, counts)
        except FileNotFoundError:
            known = moving.executor.call(read_cold(moving.calls)).files
            if file.name not in {one.name for one in known}:  # another pass has brought it back
                return True
            if not moving.folder.take_back(file.name):  # Redis has lost what it knew of the end
                return False
        if first < file.rows:
            continue
        put_away(moving, file.name)
        return True


def _restore(moving: Moving, file: ColdFile, first: int, counts: Counter[str]) -> int:
    """Bring back the messages of a file from one on; returns how many are back."""
    for rows in moving.folder.read(file.name, first):
        for part in _parts(rows):
            statuses = moving.executor.call(restore_call(moving.calls, file.name, part, first=first))
            if statuses.startswith("@"):  # another pass brings it back, too
                return int(statuses[1:] or file.rows)
            counts.update(statuses)
            first += len(part)
    if first < file.rows:
        raise ColdTierError(f"{file.name} of the cold tier has {first:,} messages, and {file.rows:,} were moved to it")
    return first


def _parts(rows: Sequence[ColdRow]) -> Iterator[Sequence[ColdRow]]:
    sizes = [len(row.payload) + len(row.headers) + len(row.attributes) for row in rows]
    for part in byte_slices(sizes, BATCH_BYTES, MAX_MOVED):
        yield rows[part]


def settle_changes(moving: Moving, until: int, counts: Counter[str]) -> None:
    """Bring back what was rescheduled to a time before another (ms), and forget what was noted of others.

    Reads the ids of all files, if anything was noted.
    """
    changes = moving.executor.perform(read_changes(moving.calls))
    if not changes:
        return
    early = {id for id, change in changes.items() if change[0] != "-" and int(change.split(" ")[0]) <= until}
    found = set[str]()
    try:
        for name in moving.folder.spilled():
            found.update(moving.folder.read_spilled_ids(name))
        for file in moving.executor.call(read_cold(moving.calls)).files:
            ids = moving.folder.read_ids(file.name)[file.back :]
            found.update(changes.keys() & set(ids))
            if not early.isdisjoint(ids):
                _bring_back_early(moving, file, early, counts)
    except FileNotFoundError:  # another pass moves files, or one is gone: what was noted stays until the next pass
        return
    latest = max(int(change.split(" ")[1]) for change in changes.values())
    for part in batched(changes.keys() - found, MAX_IDS):
        moving.executor.call(drop_changes_call(moving.calls, latest, part))


def _bring_back_early(moving: Moving, file: ColdFile, early: set[str], counts: Counter[str]) -> None:
    for rows in moving.folder.read(file.name, file.back):
        for part in _parts([row for row in rows if row.id in early]):
            statuses = moving.executor.call(restore_call(moving.calls, "", part, first=0))
            counts[BACK] += statuses.count(BACK)
