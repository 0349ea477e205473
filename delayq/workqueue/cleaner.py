"""Cleaning: requeues items that nobody has leased.

A client of another language takes an item and leases it by two commands. A cleaner that runs between them sees the same
as after the death of a worker. So no item is restored at first sight. The cleaner leases what it finds to itself for a
moment: such a worker overwrites that lease, and other cleaners leave the item alone. After a `grace`, a script checks
again and restores what the cleaner still has leased. An id that is in neither list is checked twice as well: its add
may be under way, or may have been cut off between its two commands.
"""

from __future__ import annotations

import uuid
from collections import Counter
from itertools import chain, count

from delayq.broker.batches import batched
from delayq.broker.transport.operation import Operation, Wait
from delayq.safe_log import SafeLog
from delayq.workqueue.calls import MAX_SCANNED, WorkQueueCalls

log = SafeLog("delayq.workqueue")

LIGHT_SCANS = 10
"""SCANs of a light clean, each of a thousand keys: a few milliseconds of the server's time in as many calls."""
PAGE = 10_000
"""Ids of a list that one command reads."""
BATCH = 1000
"""Ids that one script restores."""
MAX_SEARCHED = 1_000_000
"""Ids that one script may search in long lists for items in neither: ten milliseconds of the server's time."""
ABANDONED_AFTER = 5.0
"""Seconds that the lease of a cleaner lasts beyond its grace, in case the cleaner has died."""


class ScanPosition:
    """How far the light cleans of one queue have scanned the database."""

    cursor = 0


def clean(calls: WorkQueueCalls, position: ScanPosition, *, deep: bool, grace: float) -> Operation[int]:
    """Restore items that nobody has leased; returns how many."""
    (processing,) = yield [calls.ids(calls.keys.processing)]
    suspects = Counter[bytes](reversed(processing))  # the oldest first
    found: set[bytes] = set()
    if deep:
        found = yield from _scan(calls, ScanPosition(), None)
    else:
        (length,) = yield [calls.length(calls.keys.queue)]
        if length <= MAX_SCANNED:
            found = yield from _scan(calls, position, LIGHT_SCANS)
    found -= suspects.keys()
    first = 0
    while found:  # from the left, where ids are added: an id that moves meanwhile is read twice rather than never
        (page,) = yield [calls.ids(calls.keys.queue, first, first + PAGE - 1)]
        if not page:
            break
        found.difference_update(page)
        first += len(page)
    for id in found:
        suspects[id] = 0
    return (yield from _restore(calls, suspects, grace))


def _scan(calls: WorkQueueCalls, position: ScanPosition, max_scans: int | None) -> Operation[set[bytes]]:
    """Return the ids of items among the next keys of the database, or among all keys."""
    found: set[bytes] = set()
    for _ in count() if max_scans is None else range(max_scans):
        ((position.cursor, ids),) = yield [calls.scan(position.cursor)]
        found.update(ids)
        if position.cursor == 0:
            break
    return found


def _restore(calls: WorkQueueCalls, suspects: Counter[bytes], grace: float) -> Operation[int]:
    free: list[bytes] = []
    for ids in batched(suspects, BATCH):
        (consumers,) = yield [calls.consumers(ids)]
        free += [id for id, consumer in zip(ids, consumers, strict=True) if consumer is None]
    cleaner = ""
    if free and grace:
        cleaner = uuid.uuid4().hex
        free = yield from _lease_suspects(calls, free, suspects, cleaner, grace)
    listed = [id for id in free if suspects[id]]
    orphans = [id for id in free if not suspects[id]]
    size = BATCH
    if orphans:
        (lengths,) = yield [calls.counts()]
        longest = max(lengths)
        size = BATCH if longest <= MAX_SCANNED else max(1, min(BATCH, MAX_SEARCHED // longest))
    total = 0
    for ids in chain(batched(listed, BATCH), batched(orphans, size)):
        ((restored, _),) = yield [calls.restore({id: suspects[id] for id in ids}, cleaner)]
        total += len(restored)
        for id in restored:
            _log_restored(id, calls.keys.prefix, was_leased=suspects[id] > 0)
    return total


def _lease_suspects(
    calls: WorkQueueCalls, free: list[bytes], suspects: Counter[bytes], cleaner: str, grace: float
) -> Operation[list[bytes]]:
    """Lease ids to the cleaner for a grace; returns those that nobody else has leased meanwhile.

    Their locations are read again once they are leased: an item that was restored and taken again before that gets
    its full grace from then on.
    """
    ours = [id for id in free if not suspects[id]]
    for ids in batched([id for id in free if suspects[id]], BATCH):
        (replies,) = yield [calls.lease_suspects(ids, cleaner, round(1000 * (grace + ABANDONED_AFTER)))]
        ours += [id for id, is_ours in zip(ids, replies, strict=True) if is_ours]
    (processing,) = yield [calls.ids(calls.keys.processing)]
    copies = Counter[bytes](processing)
    for id in ours:
        suspects[id] = copies[id]
    if ours:
        yield Wait(grace)
    return ours


def _log_restored(id: bytes, queue: str, *, was_leased: bool) -> None:
    """Log that an item is queued again. Who had leased it is not known any more: that has expired with the lease."""
    why = "its lease expired, as its worker was lost" if was_leased else "it was in no list, as its add was cut off"
    shown = id.decode("utf-8", "backslashreplace")
    log.warning("%s: item %s is queued again: %s", queue, shown, why, extra={"queue": queue, "id": shown})
