"""The work queue: adding, leasing and completing beside the bare commands of the protocol, and how long a clean takes.

Beside stands what the protocol's description says a client does, one command after another by the same client.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from delayq.workqueue import Item, WorkQueue
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_least, at_most
from measure.raw import PAYLOAD
from measure.stand import Stand, rate_of, seconds_of

ITEMS = 5000
"""Items that are added and worked on, one by one."""
LARGE = 20_000
"""Items of a database that is cleaned."""
PREFIX = "measured"
LISTS = {"queued": "queue", "orphans": None, "abandoned": "processing"}
"""Where the items of a database are, and in which list."""


def working(stand: Stand) -> Iterator[Reading]:
    """Items a second added, and leased and completed."""
    n, db, queue = stand.many(ITEMS), stand.client, WorkQueue(PREFIX)
    stand.empty()
    items = [Item(PAYLOAD) for _ in range(n)]
    added, bare_added = stand.beside(
        lambda: rate_of(n, lambda: [queue.add_item(db, item) for item in items]),
        lambda: rate_of(n, lambda: [_bare_add(stand) for _ in range(n)]),
    )
    yield Reading("workqueue_add", added, bare_added)
    worked, bare_worked = stand.beside(
        lambda: rate_of(n, lambda: [_lease_and_complete(stand, queue) for _ in range(n)]),
        lambda: rate_of(n, lambda: [_bare_lease_and_complete(stand) for _ in range(n)]),
    )
    yield Reading("workqueue_lease", worked, bare_worked)
    if db.keys(f"{PREFIX}:*"):
        raise RuntimeError("something was left")


def cleaning(stand: Stand) -> Iterator[Reading]:
    """Milliseconds that a deep clean takes, its grace included, by where the items are."""
    n, db, queue = stand.many(LARGE), stand.client, WorkQueue(PREFIX)
    for kind, key in LISTS.items():
        stand.empty()
        with db.pipeline(transaction=False) as pipe:
            for _ in range(n):
                id = uuid.uuid4().hex
                pipe.set(f"{PREFIX}:item:{id}", PAYLOAD)
                if key is not None:
                    pipe.lpush(f"{PREFIX}:{key}", id)
            pipe.execute()
        seconds = seconds_of(lambda: queue.deep_clean(db))
        if queue.counts(db) != (n, 0):
            raise RuntimeError("something was not put back")
        yield Reading(f"workqueue_clean_{kind}", seconds * 1000)


def _lease_and_complete(stand: Stand, queue: WorkQueue) -> None:
    item = queue.lease(stand.client, 60)
    if item is None or not queue.complete(stand.client, item):
        raise RuntimeError("there was nothing to lease")


def _bare_add(stand: Stand) -> None:
    id = uuid.uuid4().hex
    stand.client.set(f"{PREFIX}:item:{id}", PAYLOAD, nx=True)
    stand.client.lpush(f"{PREFIX}:queue", id)


def _bare_lease_and_complete(stand: Stand) -> None:
    db = stand.client
    id = db.blmove(f"{PREFIX}:queue", f"{PREFIX}:processing", 0, "RIGHT", "LEFT").decode()
    db.get(f"{PREFIX}:item:{id}")
    db.set(f"{PREFIX}:lease:{id}", "a session", ex=60)
    with db.pipeline() as pipe:
        pipe.delete(f"{PREFIX}:item:{id}").lrem(f"{PREFIX}:processing", 0, id).delete(f"{PREFIX}:lease:{id}").execute()


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    within = at_most(300, MILLISECONDS)
    return [
        Measurement(
            "workqueue",
            working,
            [
                Figure("workqueue_add", "work queue: add an item", at_least(0.8, "commands"), beside="commands"),
                Figure(
                    "workqueue_lease", "work queue: lease and complete", at_least(0.8, "commands"), beside="commands"
                ),
            ],
        ),
        Measurement(
            "workqueue_clean",
            cleaning,
            [
                Figure(f"workqueue_clean_{kind}", f"work queue: deep clean of 20,000, {kind}", within, MILLISECONDS)
                for kind in LISTS
            ],
        ),
    ]
