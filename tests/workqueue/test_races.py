"""Interleavings, one by one: an operation runs between any two commands of another."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from itertools import product
from typing import Any

import pytest
import redis

from delayq.broker.requests import ScriptCall
from delayq.broker.scripts import script
from delayq.broker.transport.operation import Wait
from delayq.workqueue import Item, WorkQueue
from tests.workqueue.peer import Peer, finish, run_call, stopped


class Interrupted:
    """A client that calls `happens(n)` before its n-th command."""

    def __init__(self, db: redis.Redis, happens: Any) -> None:
        self.db, self.happens, self.commands = db, happens, 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.happens(self.commands)
        self.commands += 1
        return self.db.execute_command(*args, **options)


def at(place, do):
    """Call a function before the n-th command."""
    return lambda n: do() if n == place else None


def count(db, operation):
    """Return how many commands an operation takes."""
    client = Interrupted(db, lambda n: None)
    operation(client)
    return client.commands


@pytest.fixture
def db(redis_client):
    for path in (
        files("delayq.workqueue").joinpath("lua").iterdir()
    ):  # a script that is not loaded costs a second command
        redis_client.script_load(script(f"workqueue/{path.name.removesuffix('.lua')}").text)
    return redis_client


@pytest.fixture
def ours():
    return WorkQueue("jobs")


@pytest.fixture
def other():
    return WorkQueue("jobs")


def ids(db, key):
    return [id.decode() for id in db.lrange(f"jobs:{key}", 0, -1)]


def everything(db):
    """The ids of both lists."""
    return sorted(ids(db, "queue") + ids(db, "processing"))


CLEANERS = {
    "our light clean": lambda db: WorkQueue("jobs").light_clean(db, grace=0),
    "our deep clean": lambda db: WorkQueue("jobs").deep_clean(db, grace=0),
    "a peer's light clean": lambda db: finish(Peer(db).light_clean()),
    "a peer's deep clean": lambda db: finish(Peer(db).deep_clean()),
}
each_cleaner = pytest.mark.parametrize("clean", CLEANERS.values(), ids=CLEANERS)
each_wait = pytest.mark.parametrize("block", [True, False], ids=["blocking", "at once"])


@each_cleaner
@each_wait
def test_a_cleaner_between_two_commands_of_our_lease_causes_no_second_delivery(db, ours, other, clean, block):
    for place in range(4):
        db.flushall()
        ours.add_item(db, Item("x", id="a"))
        seconds = []

        def between(seconds=seconds):
            clean(db)
            seconds.append(other.lease(db, 60, False))
            clean(db)

        first = ours.lease(Interrupted(db, at(place, between)), 60, block, timeout=0.01)
        leased = [item for item in [first, *seconds] if item is not None]
        assert [item.id() for item in leased] == ["a"]
        clean(db)
        assert (ids(db, "queue"), ids(db, "processing")) == ([], ["a"])


@each_cleaner
def test_a_waiting_lease_takes_no_item_before_it_has_leased_it(db, ours, clean):
    """Whichever command it dies at, the item is queued or leased."""
    for place in range(5):
        db.flushall()

        def dies(n, place=place):
            if n == 1:
                ours.add_item(db, Item("x", id="a"))
            if n == place:
                raise ConnectionResetError

        with suppress(ConnectionResetError):
            ours.lease(Interrupted(db, dies), 60, timeout=0.01)
        if db.exists("jobs:item:a"):
            assert everything(db) == ["a"]
            assert db.exists("jobs:lease:a") == db.llen("jobs:processing")
        clean(db)
        assert everything(db) == (["a"] if db.exists("jobs:item:a") else [])


def drive(queue, db, *, deep, while_waiting=lambda: None, before_leasing=lambda: None):
    """Run one of our cleans, and call functions between its checks; returns its waits and its result."""
    operation, replies, waits = queue._clean(1, deep=deep), None, 0
    try:
        while True:
            step = operation.send(replies)
            replies = None
            if isinstance(step, Wait):
                waits += 1
                while_waiting()
                continue
            (call,) = step
            if isinstance(call, ScriptCall) and call.script.name == "workqueue/lease_suspects":
                before_leasing()
            replies = [run_call(db, call)]
    except StopIteration as end:
        return waits, end.value


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
@pytest.mark.parametrize("commands", [1, 2])
def test_a_peer_has_time_between_taking_and_leasing(db, ours, other, deep, commands):
    finish(Peer(db).add_item("a", b"x"))
    leasing = stopped(Peer(db).lease(60), commands)
    assert drive(ours, db, deep=deep, while_waiting=lambda: finish(leasing)) == (1, 0)
    assert other.lease(db, 60, False) is None
    assert (ids(db, "queue"), ids(db, "processing")) == ([], ["a"])


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
def test_a_peer_has_time_between_the_commands_of_an_add(db, ours, deep):
    adding = stopped(Peer(db).add_item("a", b"x"), 1)
    assert drive(ours, db, deep=deep, while_waiting=lambda: finish(adding)) == (1, 0)
    assert ids(db, "queue") == ["a"]


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
def test_items_of_a_dead_peer_are_requeued_after_one_grace(db, ours, deep):
    finish(Peer(db).add_item("a", b"x"))
    stopped(Peer(db).lease(60), 2)
    stopped(Peer(db).add_item("b", b"y"), 1)
    assert drive(ours, db, deep=deep) == (1, 2)
    assert sorted(ids(db, "queue")) == ["a", "b"]


def test_a_clean_does_not_wait_for_a_worker_that_leases_first(db, ours):
    finish(Peer(db).add_item("a", b"x"))
    leasing = stopped(Peer(db).lease(60), 2)
    assert drive(ours, db, deep=False, before_leasing=lambda: finish(leasing)) == (0, 0)
    assert db.get("jobs:lease:a") == b"a-peer"


def test_an_item_restored_and_taken_again_gets_its_full_grace(db, ours, other):
    finish(Peer(db).add_item("a", b"x"))
    stopped(Peer(db).lease(60), 2)
    leasing = []
    waits, restored = drive(
        ours,
        db,
        deep=False,
        before_leasing=lambda: other.light_clean(db, grace=0),
        while_waiting=lambda: leasing.append(stopped(Peer(db).lease(60), 2)),
    )
    assert (waits, restored) == (1, 0)
    assert finish(*leasing) == ("a", b"x")
    assert (ids(db, "queue"), ids(db, "processing")) == ([], ["a"])


def test_a_peer_that_leases_late_keeps_an_item_requeued_meanwhile(db, ours):
    """None of our workers gets a leased item, whichever list has it."""
    finish(Peer(db).add_item("a", b"x"))
    leasing = stopped(Peer(db).lease(60), 2)
    assert ours.light_clean(db, grace=0) == 1
    assert finish(leasing) == ("a", b"x")
    assert ours.lease(db, 60, False) is None
    assert (ids(db, "queue"), ids(db, "processing")) == ([], ["a"])
    assert finish(Peer(db).complete("a"))
    assert db.keys() == []


def scene(db):
    """One item of each kind: queued, leased, abandoned, abandoned without data, orphaned."""
    db.flushall()
    for id in ("queued", "leased", "lost", "orphan"):
        db.set(f"jobs:item:{id}", b"x")
    db.lpush("jobs:queue", "queued")
    db.lpush("jobs:processing", "leased", "lost", "gone")
    db.set("jobs:lease:leased", "another", px=60_000)


CLEANS = {"light": WorkQueue.light_clean, "deep": WorkQueue.deep_clean}


@pytest.mark.parametrize(("one", "two"), list(product(CLEANS, CLEANS)))
def test_two_of_our_cleaners_requeue_an_item_once(db, ours, other, one, two):
    scene(db)
    commands = count(db, lambda client: CLEANS[one](ours, client, grace=0))
    for place in range(commands + 1):
        scene(db)
        CLEANS[one](ours, Interrupted(db, at(place, lambda: CLEANS[two](other, db, grace=0))), grace=0)
        assert everything(db) == ["leased", "lost", "orphan", "queued"], place
        assert ids(db, "processing") == ["leased"]


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
def test_a_worker_between_two_commands_of_our_cleaner_keeps_its_item(db, ours, other, deep):
    clean = WorkQueue.deep_clean if deep else WorkQueue.light_clean
    scene(db)
    commands = count(db, lambda client: clean(ours, client, grace=0))
    for place in range(commands):
        scene(db)
        got = []
        clean(ours, Interrupted(db, at(place, lambda got=got: got.append(other.lease(db, 60, False)))), grace=0)
        assert got[0] is not None
        assert got[0].id() in ids(db, "processing")
        assert everything(db) == ["leased", "lost", "orphan", "queued"], place


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
@pytest.mark.parametrize("id", ["leased", "lost", "queued", "orphan"])
def test_a_completion_between_two_commands_of_our_cleaner_is_final(db, ours, other, deep, id):
    clean = WorkQueue.deep_clean if deep else WorkQueue.light_clean
    scene(db)
    commands = count(db, lambda client: clean(ours, client, grace=0))
    for place in range(commands + 1):
        scene(db)
        replies = []
        done = lambda replies=replies: replies.append(other.complete(db, Item("", id=id)))  # noqa: E731
        clean(ours, Interrupted(db, at(place, done)), grace=0)
        if place < commands:
            assert replies == [True]
            assert everything(db) == sorted({"leased", "lost", "orphan", "queued"} - {id})


@each_cleaner
def test_a_peer_that_dies_at_any_command_loses_nothing(db, ours, clean):
    """A deep clean requeues what any operation of a dead peer has left behind."""
    operations = {
        "add": (lambda peer: peer.add_item("b", b"x"), ["a", "b"], 2),
        "lease": (lambda peer: peer.lease(60), ["a"], 3),
        "complete": (lambda peer: peer.complete("a"), [], 3),
        "light clean": (lambda peer: peer.light_clean(), ["a"], 5),
    }
    for name, (operate, remaining, commands) in operations.items():
        for place in range(1, commands):
            db.flushall()
            ours.add_item(db, Item("x", id="a"))
            if name in {"complete", "light clean"}:
                ours.lease(db, 60)
            if name == "light clean":
                db.delete("jobs:lease:a")
            stopped(operate(Peer(db)), place)
            clean(db)
            ours.deep_clean(db, grace=0)
            assert everything(db) == remaining or name == "complete", (name, place)
            got = list(iter(lambda: ours.lease(db, 60, False), None))
            assert sorted(item.id() for item in got) == remaining
            for item in got:
                assert ours.complete(db, item)
            for key in db.keys("jobs:lease:*"):
                db.delete(key)
            ours.light_clean(db, grace=0)
            assert db.keys() == []


def test_a_claim_works_while_others_empty_the_queue(db, ours, other):
    for n in range(100):
        ours.add_item(db, Item("x", id=f"{n:02d}"))
    taken = []

    def others(n):
        if n < 4:  # more than were read, each time
            taken.extend(other.lease(db, 60, False).id() for _ in range(20))

    taken.append(ours.lease(Interrupted(db, others), 60, False).id())
    assert taken == [f"{n:02d}" for n in range(len(taken))]
    assert len(taken) == 81


def test_a_second_lease_reads_no_ids_and_tolerates_faster_clients(db, ours, other):
    for n in range(20):
        ours.add_item(db, Item("x", id=f"{n:02d}"))
    assert count(db, lambda client: ours.lease(client, 60)) == 2
    assert count(db, lambda client: ours.lease(client, 60)) == 1
    taken = [other.lease(db, 60).id() for _ in range(10)]
    assert taken == [f"{n:02d}" for n in range(2, 12)]
    again = []
    assert count(db, lambda client: again.append(ours.lease(client, 60).id())) == 2
    assert again == ["12"]
    assert db.delete("jobs:queue") == 1
    assert ours.lease(db, 60, False) is None
