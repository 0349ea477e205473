"""Leasing: reads the ids at the end of the queue, then claims one of them.

A script may access only the keys in its arguments. Here they depend on the ids in the queue, so the ids are read first.
Waiting only reads, too. An item leaves the queue only by the script that leases it: no crash, lost connection or
cleaner can find it taken but not leased.
"""

from __future__ import annotations

from collections.abc import Sequence

from delayq.broker.transport.operation import Operation
from delayq.times import monotonic
from delayq.workqueue.calls import ItemClaimReply, WorkQueueCalls
from delayq.workqueue.item import Item, id_bytes

MIN_PEEK = 8
MAX_PEEK = 256
"""Ids that a claim passes. Doubled each time that another client was faster, or that the ids were stale."""
MIN_WAIT = 0.002
"""Shortest wait of a blocking command, in seconds: Redis 6.2 treats a millisecond as 0, which means for ever."""


class LookAhead:
    """Ids that the last claim read but did not lease. If they are still queued, the next lease need not read."""

    ids: Sequence[bytes] = ()


def lease(
    calls: WorkQueueCalls,
    session: str,
    ahead: LookAhead,
    milliseconds: int,
    *,
    block: bool,
    timeout: float,
    longest: float,
) -> Operation[Item | None]:
    """Lease the next item; if there is none and `block`, wait `timeout` seconds (0: for ever), else return None.

    A single wait takes `longest` seconds at most.
    """
    deadline = monotonic() + timeout if timeout else float("inf")
    ids, peek = ahead.ids, MIN_PEEK
    while True:
        claimed: ItemClaimReply
        (claimed,) = yield [calls.claim(session, milliseconds, ids, peek)]
        if claimed.item is not None:
            ahead.ids = ids[: ids.index(id_bytes(claimed.item.id()))]
            return claimed.item
        ids = claimed.ids
        peek = min(2 * peek, MAX_PEEK)
        while not ids:
            remaining = deadline - monotonic()
            if not block or remaining <= 0:
                return None
            (waiting,) = yield [calls.await_item(max(MIN_WAIT, min(remaining, longest)))]
            ids, peek = [waiting] if waiting is not None else (), MIN_PEEK
