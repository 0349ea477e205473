"""Brings messages back from the files of the cold tier, each once: Redis counts how many of a file are back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from delayq.broker.batches import BATCH_BYTES, batched, byte_slices
from delayq.broker.scripts import MAX_IDS, MAX_MOVED
from delayq.bulk.cold.cold_calls import BACK, ColdRow, drop_changes_call, read_changes, restore_call
from delayq.bulk.cold.spilling import Moving, gone_text, put_away, raise_if_any
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
        problems.insert(0, gone_text(gone))
    raise_if_any(problems)


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

    Reads the ids of all files, if anything was noted. Forgets nothing unless all could be read; raises `ColdTierError`
    when all else is done.
    """
    changes = moving.executor.perform(read_changes(moving.calls))
    if not changes:
        return
    early = {id for id, change in changes.items() if change.due is not None and change.due <= until}
    tier, found = moving.executor.call(read_cold(moving.calls)), set[str]()
    spilled = {*moving.folder.spilled(), *(name for name, moved in tier.moved.items() if "1" in moved)}

    def look_in(name: str) -> None:
        found.update(changes.keys() & set(moving.folder.read_spilled_ids(name)))

    def look_in_day(file: ColdFile) -> None:
        ids = moving.folder.read_ids(file.name)[file.back :]
        found.update(changes.keys() & set(ids))
        if not early.isdisjoint(ids):
            _bring_back_early(moving, file, early, counts)

    looks = [*(partial(look_in, name) for name in spilled), *(partial(look_in_day, file) for file in tier.files)]
    if not _do_all(looks):  # another pass moves files, or one is gone: what was noted stays until the next pass
        return
    latest = max(change.at for change in changes.values())
    for part in batched(changes.keys() - found, MAX_IDS):
        moving.executor.call(drop_changes_call(moving.calls, latest, part))


def _do_all(looks: Iterable[Callable[[], None]]) -> bool:
    """Look into files; returns whether all were there, and raises `ColdTierError` at the end if one cannot be read."""
    problems, missing = list[str](), False
    for look in looks:
        try:
            look()
        except FileNotFoundError:
            missing = True
        except ColdTierError as error:
            problems.append(str(error))
    raise_if_any(problems)
    return not missing


def _bring_back_early(moving: Moving, file: ColdFile, early: set[str], counts: Counter[str]) -> None:
    for rows in moving.folder.read(file.name, file.back):
        for part in _parts([row for row in rows if row.id in early]):
            statuses = moving.executor.call(restore_call(moving.calls, "", part, first=0))
            counts[BACK] += statuses.count(BACK)
