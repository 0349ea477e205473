"""Measures work queues: adding, leasing and completing compared with bare commands, and the duration of a clean.

The bare commands are those of the protocol's description, sent one after another by the same client.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from delayq.workqueue import Item, WorkQueue
from measure.bench_server import BenchServer, rate_of, seconds_of
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_least, at_most
from measure.raw import PAYLOAD

ITEMS = 5000
"""Items that are added and processed one by one."""
LARGE = 20_000
"""Items in the database of a clean."""
PREFIX = "measured"
LISTS = {"queued": "queue", "orphans": None, "abandoned": "processing"}
"""The kinds of items to clean, and the list that contains their ids."""


def working(server: BenchServer) -> Iterator[Reading]:
    """Items per second added, and leased and completed."""
    n, db, queue = server.many(ITEMS), server.client, WorkQueue(PREFIX)
    server.empty()
    items = [Item(PAYLOAD) for _ in range(n)]
    added, bare_added = server.compare(
        lambda: rate_of(n, lambda: [queue.add_item(db, item) for item in items]),
        lambda: rate_of(n, lambda: [_bare_add(server) for _ in range(n)]),
    )
    yield Reading("workqueue_add", added, bare_added)
    worked, bare_worked = server.compare(
        lambda: rate_of(n, lambda: [_lease_and_complete(server, queue) for _ in range(n)]),
        lambda: rate_of(n, lambda: [_bare_lease_and_complete(server) for _ in range(n)]),
    )
    yield Reading("workqueue_lease", worked, bare_worked)
    if keys := db.keys(f"{PREFIX}:*"):
        raise RuntimeError(f"{len(keys)} keys were left after all items were completed")


def cleaning(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds that a deep clean takes, including its grace, by kind of items."""
    n, db, queue = server.many(LARGE), server.client, WorkQueue(PREFIX)
    for kind, key in LISTS.items():
        server.empty()
        with db.pipeline(transaction=False) as pipe:
            for _ in range(n):
                id = uuid.uuid4().hex
                pipe.set(f"{PREFIX}:item:{id}", PAYLOAD)
                if key is not None:
                    pipe.lpush(f"{PREFIX}:{key}", id)
            pipe.execute()
        seconds = seconds_of(lambda: queue.deep_clean(db))
        if queue.counts(db) != (n, 0):
            raise RuntimeError(f"the clean left {queue.counts(db)} items queued and processing, not {(n, 0)}")
        yield Reading(f"workqueue_clean_{kind}", seconds * 1000)


def _lease_and_complete(server: BenchServer, queue: WorkQueue) -> None:
    item = queue.lease(server.client, 60)
    if item is None or not queue.complete(server.client, item):
        raise RuntimeError("no item to lease, or another worker completed it")


def _bare_add(server: BenchServer) -> None:
    id = uuid.uuid4().hex
    server.client.set(f"{PREFIX}:item:{id}", PAYLOAD, nx=True)
    server.client.lpush(f"{PREFIX}:queue", id)


def _bare_lease_and_complete(server: BenchServer) -> None:
    db = server.client
    id = db.blmove(f"{PREFIX}:queue", f"{PREFIX}:processing", 0, "RIGHT", "LEFT").decode()
    db.get(f"{PREFIX}:item:{id}")
    db.set(f"{PREFIX}:lease:{id}", "a session", ex=60)
    with db.pipeline() as pipe:
        pipe.delete(f"{PREFIX}:item:{id}").lrem(f"{PREFIX}:processing", 0, id).delete(f"{PREFIX}:lease:{id}").execute()


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    within = at_most(300, MILLISECONDS)
    return [
        Measurement(
            "workqueue",
            working,
            [
                Figure(
                    "workqueue_add", "work queue: add an item", at_least(0.8, "commands"), reference_name="commands"
                ),
                Figure(
                    "workqueue_lease",
                    "work queue: lease and complete",
                    at_least(0.8, "commands"),
                    reference_name="commands",
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
