"""Cleaning: items that nobody holds go back into the queue.

A client of another language takes an item and leases it by two commands; a cleaner that comes between them sees what
it would see of a worker that has died. So nothing is restored at first sight: what is seen without a lease is looked
at again after a `grace`, and restored by a script that looks once more. An id that is in neither list is treated the
same: its add may be under way, or cut off between its two commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from delayq.operation import Pause
from delayq.workqueue.calls import SHORT, Work, leases, length, members, restore, scan
from delayq.workqueue.keys import Keys

SCANS_OF_A_LIGHT_CLEAN = 10
"""Each of a thousand keys: a few milliseconds of the server's time, in as many calls."""
PAGE = 10_000
"""Ids of a list that are read at a time."""
BATCH = 1000
"""Ids that are restored at a time, unless the queue is so long that a search in it takes its time."""
SEARCHED = 1_000_000
"""Ids that a script may search, one by one, for those of a batch: some ten milliseconds."""


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
    free: dict[bytes, int] = {}
    for ids in _batches(suspects, BATCH):
        holders = yield leases(keys, ids)
        free |= {id: suspects[id] for id, holder in zip(ids, holders, strict=True) if holder is None}
    if not free:
        return 0
    if grace:
        yield Pause(grace)
    queued = yield length(keys.queue)
    restored = 0
    size = BATCH if queued <= SHORT else max(1, min(BATCH, SEARCHED // queued))
    for ids in _batches(free, size):
        back, _ = yield restore(keys, {id: free[id] for id in ids})
        restored += back
    return restored


def _batches(ids: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    left = iter(ids)
    while batch := list(islice(left, size)):
        yield batch
