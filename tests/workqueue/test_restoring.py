"""What the scripts of a cleaner do with an id, by its location, its lease, and what the cleaner has seen."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from delayq.broker.transport.operation import single
from delayq.workqueue import KeyPrefix
from delayq.workqueue.calls import WorkQueueCalls
from delayq.workqueue.client import perform
from delayq.workqueue.keys import WorkQueueKeys

KEYS = WorkQueueKeys(KeyPrefix("jobs"))
CALLS = WorkQueueCalls(KEYS)


class Place(NamedTuple):
    """The state of the id "a": how often it is in each list, who has leased it, whether it has data."""

    queued: int = 0
    processed: int = 0
    leased: str = ""
    alive: bool = True


def plant(db, place):
    if place.alive:
        db.set("jobs:item:a", b"x")
    if place.leased:
        db.set("jobs:lease:a", place.leased, px=60_000)
    for key, times in ((KEYS.queue, place.queued), (KEYS.processing, place.processed)):
        for _ in range(times):
            db.lpush(key, "a", "other")


def observe(db):
    lists = [db.lrange(key, 0, -1).count(b"a") for key in (KEYS.queue, KEYS.processing)]
    return Place(*lists, (db.get("jobs:lease:a") or b"").decode(), bool(db.exists("jobs:item:a")))


CASES = {
    # seen in processing, by a cleaner without a lease
    "lost": (Place(processed=1), 1, "", (1, 0), Place(queued=1)),
    "lost, twice there": (Place(processed=2), 2, "", (1, 0), Place(queued=1)),
    "leased meanwhile": (Place(processed=1, leased="w"), 1, "", (0, 0), Place(processed=1, leased="w")),
    "restored by another": (Place(queued=1), 1, "", (0, 0), Place(queued=1)),
    "completed": (Place(processed=2, alive=False), 2, "", (0, 1), Place(alive=False)),
    "completed and taken out": (Place(alive=False), 1, "", (0, 0), Place(alive=False)),
    # seen in processing, by a cleaner that leased it
    "held": (Place(processed=1, leased="c"), 1, "c", (1, 0), Place(queued=1)),
    "held, leased meanwhile": (Place(processed=1, leased="w"), 1, "c", (0, 0), Place(processed=1, leased="w")),
    "held too long": (Place(processed=1), 1, "c", (0, 0), Place(processed=1)),
    "held, completed": (Place(processed=1, leased="c", alive=False), 1, "c", (0, 1), Place(alive=False)),
    "held in the queue": (Place(queued=1, leased="c"), 0, "c", (0, 0), Place(queued=1)),
    "held in neither": (Place(leased="c"), 0, "c", (1, 0), Place(queued=1)),
    # seen in neither list
    "orphan": (Place(), 0, "", (1, 0), Place(queued=1)),
    "orphan, leased": (Place(leased="w"), 0, "", (0, 0), Place(leased="w")),
    "orphan, queued meanwhile": (Place(queued=1), 0, "", (0, 0), Place(queued=1)),
    "orphan, taken meanwhile": (Place(processed=1), 0, "c", (0, 0), Place(processed=1)),
    "orphan, completed": (Place(alive=False), 0, "", (0, 0), Place(alive=False)),
}


@pytest.mark.parametrize("max_scanned", [20_000, 0], ids=["short lists", "long lists"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_restore(redis_client, monkeypatch, max_scanned, case):
    before, copies, cleaner, reply, after = case
    monkeypatch.setattr("delayq.workqueue.calls.MAX_SCANNED", max_scanned)
    plant(redis_client, before)
    for expected in (reply, (0, 0)):  # the second run finds nothing to do
        restored, dropped = perform(redis_client, KEYS, single(CALLS.restore({b"a": copies}, cleaner)))
        assert (restored, dropped) == ([b"a"] * expected[0], expected[1])
        assert observe(redis_client) == after


def test_a_completed_item_does_not_block_the_restore_of_others(redis_client):
    plant(redis_client, Place(processed=1))
    redis_client.lpush(KEYS.processing, "gone")
    assert perform(redis_client, KEYS, single(CALLS.restore({b"gone": 1, b"a": 1}))) == ([b"a"], 1)
    assert observe(redis_client) == Place(queued=1)


def test_lease_suspects(redis_client):
    redis_client.set("jobs:lease:a", "w")
    for _ in range(2):  # the second run returns the same
        assert perform(redis_client, KEYS, single(CALLS.lease_suspects([b"a", b"b"], "c", 1000))) == [False, True]
    assert redis_client.get("jobs:lease:a") == b"w"
    assert redis_client.get("jobs:lease:b") == b"c"
    assert 0 < redis_client.pttl("jobs:lease:b") <= 1000
