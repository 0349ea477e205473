"""Leasing: a look at the end of the queue, and a claim of what was seen there.

A script may touch only the keys it is given, and which they are depends on the ids in the queue; so the ids are read
first. Waiting is a look, too: an item never leaves the queue but by the script that leases it, so there is no moment at
which a crash, a lost connection or a cleaner could find it taken and not leased.
"""

from __future__ import annotations

from collections.abc import Sequence

from delayq.clock import monotonic
from delayq.workqueue.calls import Claimed, Work, await_one, claim
from delayq.workqueue.item import Item, id_bytes
from delayq.workqueue.keys import Keys

FIRST_LOOK = 8
LONGEST_LOOK = 256
"""Ids that a claim is made of: each time that others were faster, or that what was seen was stale, twice as many."""
SHORTEST_WAIT = 0.002
"""Seconds that a blocking command waits at least: Redis 6.2 takes a millisecond for none, which is for ever."""


class Seen:
    """What the last look of a queue has found and not leased: if it is still there, the next lease needs no look."""

    ids: Sequence[bytes] = ()


def lease(
    keys: Keys, session: str, seen: Seen, milliseconds: int, *, block: bool, timeout: float, longest: float
) -> Work[Item | None]:
    """Lease the next item; if there is none and `block`, wait `timeout` seconds (0: for ever), else return None.

    A single wait takes `longest` seconds at most.
    """
    deadline = monotonic() + timeout if timeout else float("inf")
    ids, look = seen.ids, FIRST_LOOK
    while True:
        claimed: Claimed = yield claim(keys, session, milliseconds, ids, look)
        if claimed.item is not None:
            seen.ids = ids[: ids.index(id_bytes(claimed.item.id()))]
            return claimed.item
        ids = claimed.ids
        look = min(2 * look, LONGEST_LOOK)
        while not ids:
            left = deadline - monotonic()
            if not block or left <= 0:
                return None
            waiting = yield await_one(keys, max(SHORTEST_WAIT, min(left, longest)))
            ids, look = [waiting] if waiting is not None else (), FIRST_LOOK
