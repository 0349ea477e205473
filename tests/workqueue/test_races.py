"""Interleavings driven one by one: something happens between any two commands of something else."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from itertools import product
from typing import Any

import pytest
import redis

from delayq.operation import Pause
from delayq.script import script
from delayq.workqueue import Item, WorkQueue
from delayq.workqueue.calls import Run
from tests.workqueue.peer import Peer, finish, stopped


class Interrupted:
    """A client that lets something happen before each command it is given: `happens(n)` for the n-th."""

    def __init__(self, db: redis.Redis, happens: Any) -> None:
        self.db, self.happens, self.commands = db, happens, 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.happens(self.commands)
        self.commands += 1
        return self.db.execute_command(*args, **options)


def at(place, do):
    """Have something happen before the command of a number."""
    return lambda n: do() if n == place else None


def count(db, operation):
    """Return how many commands an operation takes."""
    client = Interrupted(db, lambda n: None)
    operation(client)
    return client.commands


@pytest.fixture
def db(redis_client):
    for path in files("delayq.workqueue").joinpath("lua").iterdir():  # one that is not known costs a second command
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
def test_a_cleaner_between_any_two_commands_of_our_lease_hands_nothing_out_twice(db, ours, other, clean, block):
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
def test_a_waiting_lease_takes_nothing_before_it_has_leased_it(db, ours, clean):
    """At whatever command it dies, the item is in the queue, or leased."""
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


def drive(queue, db, *, deep, while_waiting=lambda: None, before_holding=lambda: None):
    """Carry a clean of ours out, and let something happen between its looks; returns its waits and its answer."""
    work, answer, waits = queue._clean(1, deep=deep), None, 0
    try:
        while True:
            step = work.send(answer)
            answer = None
            if isinstance(step, Pause):
                waits += 1
                while_waiting()
                continue
            if isinstance(step, Run) and step.script.name == "workqueue/hold":
                before_holding()
            answer = step.parse(db.execute_command(*(step.whole if isinstance(step, Run) else step.args)))
    except StopIteration as end:
        return waits, end.value


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
@pytest.mark.parametrize("commands", [1, 2])
def test_a_peer_between_taking_and_leasing_is_given_time(db, ours, other, deep, commands):
    finish(Peer(db).add_item("a", b"x"))
    leasing = stopped(Peer(db).lease(60), commands)
    assert drive(ours, db, deep=deep, while_waiting=lambda: finish(leasing)) == (1, 0)
    assert other.lease(db, 60, False) is None
    assert (ids(db, "queue"), ids(db, "processing")) == ([], ["a"])


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
def test_a_peer_between_the_commands_of_an_add_is_given_time(db, ours, deep):
    adding = stopped(Peer(db).add_item("a", b"x"), 1)
    assert drive(ours, db, deep=deep, while_waiting=lambda: finish(adding)) == (1, 0)
    assert ids(db, "queue") == ["a"]


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
def test_a_peer_that_has_died_between_two_commands_is_not_waited_for(db, ours, deep):
    finish(Peer(db).add_item("a", b"x"))
    stopped(Peer(db).lease(60), 2)
    stopped(Peer(db).add_item("b", b"y"), 1)
    assert drive(ours, db, deep=deep) == (1, 2)
    assert sorted(ids(db, "queue")) == ["a", "b"]


def test_a_worker_that_leases_before_the_cleaner_holds_is_not_waited_for(db, ours):
    finish(Peer(db).add_item("a", b"x"))
    leasing = stopped(Peer(db).lease(60), 2)
    assert drive(ours, db, deep=False, before_holding=lambda: finish(leasing)) == (0, 0)
    assert db.get("jobs:lease:a") == b"a-peer"


def test_an_item_that_was_restored_and_taken_again_before_it_is_held_has_its_full_grace(db, ours, other):
    finish(Peer(db).add_item("a", b"x"))
    stopped(Peer(db).lease(60), 2)
    leasing = []
    waits, restored = drive(
        ours,
        db,
        deep=False,
        before_holding=lambda: other.light_clean(db, grace=0),
        while_waiting=lambda: leasing.append(stopped(Peer(db).lease(60), 2)),
    )
    assert (waits, restored) == (1, 0)
    assert finish(*leasing) == ("a", b"x")
    assert (ids(db, "queue"), ids(db, "processing")) == ([], ["a"])


def test_a_peer_that_leases_late_keeps_what_a_cleaner_has_put_back_meanwhile(db, ours):
    """Nobody of ours is handed an item under a lease, wherever it stands."""
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
def test_two_cleaners_of_ours_put_an_item_back_once(db, ours, other, one, two):
    scene(db)
    commands = count(db, lambda client: CLEANS[one](ours, client, grace=0))
    for place in range(commands + 1):
        scene(db)
        CLEANS[one](ours, Interrupted(db, at(place, lambda: CLEANS[two](other, db, grace=0))), grace=0)
        assert everything(db) == ["leased", "lost", "orphan", "queued"], place
        assert ids(db, "processing") == ["leased"]


@pytest.mark.parametrize("deep", [False, True], ids=["light", "deep"])
def test_a_worker_between_any_two_commands_of_our_cleaner_keeps_what_it_gets(db, ours, other, deep):
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
def test_a_completion_between_any_two_commands_of_our_cleaner_is_final(db, ours, other, deep, id):
    clean = WorkQueue.deep_clean if deep else WorkQueue.light_clean
    scene(db)
    commands = count(db, lambda client: clean(ours, client, grace=0))
    for place in range(commands + 1):
        scene(db)
        answers = []
        done = lambda answers=answers: answers.append(other.complete(db, Item("", id=id)))  # noqa: E731
        clean(ours, Interrupted(db, at(place, done)), grace=0)
        if place < commands:
            assert answers == [True]
            assert everything(db) == sorted({"leased", "lost", "orphan", "queued"} - {id})


@each_cleaner
def test_a_peer_that_dies_at_any_command_loses_nothing(db, ours, clean):
    """A deep clean brings back what any of its operations has left behind."""
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


def test_a_claim_is_not_misled_by_others_who_empty_the_queue_meanwhile(db, ours, other):
    for n in range(100):
        ours.add_item(db, Item("x", id=f"{n:02d}"))
    taken = []

    def others(n):
        if n < 4:  # more than were seen, each time
            taken.extend(other.lease(db, 60, False).id() for _ in range(20))

    taken.append(ours.lease(Interrupted(db, others), 60, False).id())
    assert taken == [f"{n:02d}" for n in range(len(taken))]
    assert len(taken) == 81


def test_a_lease_after_a_lease_needs_no_look_and_bears_that_others_were_faster(db, ours, other):
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
