"""Cleaning: items that nobody holds go back into the queue.

A client of another language takes an item and leases it by two commands; a cleaner that comes between them sees what
it would see of a worker that has died. So nothing is restored at first sight. The cleaner leases what it finds to
itself, for a moment: such a worker overwrites that lease, and other cleaners leave the item alone. What the cleaner
still holds after a `grace` is restored, by a script that looks once more. An id that is in neither list is looked at
twice as well: its add may be under way, or cut off between its two commands.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from delayq.operation import Pause
from delayq.workqueue.calls import SHORT, Work, counts, hold, leases, length, members, restore, scan
from delayq.workqueue.keys import Keys

SCANS_OF_A_LIGHT_CLEAN = 10
"""Each of a thousand keys: a few milliseconds of the server's time, in as many calls."""
PAGE = 10_000
"""Ids of a list that are read at a time."""
BATCH = 1000
"""Ids that are restored at a time."""
SEARCHED = 1_000_000
"""Ids that a script may go through, searching long lists for those that seem to be in neither: ten milliseconds."""
ABANDONED = 5.0
"""Seconds after its grace that what a cleaner holds is free again, should the cleaner have died."""


class Walk:
    """How far the light cleans of one queue have looked through the database."""

    cursor = 0


def clean(keys: Keys, walk: Walk, *, deep: bool, grace: float) -> Work[int]:
    """Restore what nobody holds; returns how many items."""
    seen: list[bytes] = yield members(keys.processing, 0, -1)
    suspects = Counter(reversed(seen))  # the oldest first, as they were leased
    found: set[bytes] = set()
    if deep:
        found = yield from _items(keys, Walk(), None)
    elif (yield length(keys.queue)) <= SHORT:
        found = yield from _items(keys, walk, SCANS_OF_A_LIGHT_CLEAN)
    found -= suspects.keys()
    first = 0
    while found:  # read from the left, where ids are added: one that moves meanwhile is met twice rather than never
        page = yield members(keys.queue, first, first + PAGE - 1)
        if not page:
            break
        found.difference_update(page)
        first += len(page)
    for id in found:
        suspects[id] = 0
    return (yield from _restore(keys, suspects, grace))


def _items(keys: Keys, walk: Walk, most: int | None) -> Work[set[bytes]]:
    """Look at the next keys of the database, or at all; returns the ids of items."""
    found: set[bytes] = set()
    while most is None or most > 0:
        walk.cursor, ids = yield scan(keys, walk.cursor)
        found.update(ids)
        if walk.cursor == 0:
            break
        most = None if most is None else most - 1
    return found


def _restore(keys: Keys, suspects: Counter[bytes], grace: float) -> Work[int]:
    free: list[bytes] = []
    for ids in _batches(suspects, BATCH):
        holders = yield leases(keys, ids)
        free += [id for id, holder in zip(ids, holders, strict=True) if holder is None]
    cleaner = ""
    if free and grace:
        cleaner = uuid.uuid4().hex
        free = yield from _hold(keys, free, suspects, cleaner, grace)
    listed = [id for id in free if suspects[id]]
    orphans = [id for id in free if not suspects[id]]
    size = BATCH
    if orphans:
        long = max((yield counts(keys)))
        size = BATCH if long <= SHORT else max(1, min(BATCH, SEARCHED // long))
    restored = 0
    for ids in chain(_batches(listed, BATCH), _batches(orphans, size)):
        back, _ = yield restore(keys, {id: suspects[id] for id in ids}, cleaner)
        restored += back
    return restored


def _hold(keys: Keys, free: list[bytes], suspects: Counter[bytes], cleaner: str, grace: float) -> Work[list[bytes]]:
    """Hold those in processing for a grace; returns whom nobody else has leased meanwhile.

    Where they are is read anew once they are held: an item that was restored and taken again before that has its full
    grace from then on.
    """
    held = [id for id in free if not suspects[id]]
    for ids in _batches([id for id in free if suspects[id]], BATCH):
        answers = yield hold(keys, ids, cleaner, round(1000 * (grace + ABANDONED)))
        held += [id for id, ours in zip(ids, answers, strict=True) if ours]
    again: Counter[bytes] = Counter((yield members(keys.processing, 0, -1)))
    for id in held:
        suspects[id] = again[id]
    if held:
        yield Pause(grace)
    return held


def _batches(ids: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    left = iter(ids)
    while batch := list(islice(left, size)):
        yield batch
