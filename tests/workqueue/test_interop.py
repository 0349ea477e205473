"""Clients of other languages share a queue with ours, in both directions."""

from __future__ import annotations

import threading

import pytest

from delayq.workqueue import Item, WorkQueue
from tests.support.waiting import wait_until
from tests.workqueue.peer import Peer, finish


@pytest.fixture
def peer(redis_client):
    return Peer(redis_client)


def expire(db, id):
    assert db.delete(f"jobs:lease:{id}") == 1


def test_a_peer_works_on_what_we_add(jobs, peer, redis_client):
    jobs.add_item(Item(b"\xff\x00", id="a"))
    jobs.add_unique_item(Item(b"two", id="b"))
    assert finish(peer.lease(10)) == ("a", b"\xff\x00")
    assert finish(peer.lease(10, timeout=1)) == ("b", b"two")
    assert finish(peer.lease(10)) is None
    assert jobs.counts() == (0, 2)
    assert finish(peer.complete("a"))
    assert finish(peer.complete("b"))
    assert redis_client.keys() == []


def test_we_work_on_what_a_peer_adds(jobs, peer, redis_client):
    assert finish(peer.add_item("a", b"one"))
    finish(peer.add_unique_item("b", b"two"))
    items = [jobs.lease(10, False), jobs.lease(10, timeout=1)]
    assert [(item.id(), item.data()) for item in items] == [("a", b"one"), ("b", b"two")]
    assert finish(peer.lease(10)) is None
    assert [jobs.complete(item) for item in items] == [True, True]
    assert redis_client.keys() == []


def test_an_id_is_the_same_for_all_clients(jobs, peer):
    assert finish(peer.add_item("a", b"theirs"))
    assert not jobs.add_item(Item("ours", id="a"))
    assert jobs.add_item(Item("ours", id="b"))
    assert not finish(peer.add_item("b", b"theirs"))
    assert jobs.counts() == (2, 0)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_an_item_is_completed_by_one_of_two_clients(jobs, peer, redis_client, first):
    jobs.add_item(Item("x", id="a"))
    item = jobs.lease(10)
    expire(redis_client, "a")
    finish(peer.light_clean())
    assert finish(peer.lease(10)) == ("a", b"x")
    replies = {"ours": lambda: jobs.complete(item), "theirs": lambda: finish(peer.complete("a"))}
    assert replies.pop(first)() is True
    assert next(iter(replies.values()))() is False
    assert redis_client.keys() == []


def test_a_peers_cleaner_requeues_our_items_only_after_their_leases_expired(jobs, peer, redis_client):
    jobs.add_item(Item("x", id="a"))
    jobs.lease(10)
    finish(peer.light_clean())
    finish(peer.deep_clean())
    assert jobs.counts() == (0, 1)
    expire(redis_client, "a")
    finish(peer.light_clean())
    assert finish(peer.lease(10)) == ("a", b"x")


def test_our_cleaner_requeues_a_peers_items_only_after_their_leases_expired(jobs, peer, redis_client):
    finish(peer.add_item("a", b"x"))
    finish(peer.lease(10))
    assert jobs.light_clean() == jobs.deep_clean() == 0
    expire(redis_client, "a")
    assert jobs.light_clean() == 1
    assert jobs.lease(10, False).data() == b"x"


def test_each_waiting_worker_gets_one_item(start_redis):
    """Six of our workers and six peers wait; of twelve items each worker gets one."""
    got, server = [], start_redis()

    def ours():
        with server.client() as db:
            got.append(WorkQueue("jobs").lease(db, 60, timeout=20).id())

    def theirs():
        with server.client() as db:
            got.append(finish(Peer(db).lease(60, timeout=20))[0])

    threads = [threading.Thread(target=run) for run in [ours, theirs] * 6]
    for thread in threads:
        thread.start()
    with server.client() as db:
        wait_until(lambda: db.info("clients")["blocked_clients"] == 12)
        for n in range(12):
            WorkQueue("jobs").add_item(db, Item("x", id=str(n)))
        for thread in threads:
            thread.join(20)
        assert sorted(got, key=int) == [str(n) for n in range(12)]
        assert WorkQueue("jobs").counts(db) == (0, 12)
        assert all(db.ttl(f"jobs:lease:{n}") > 0 for n in range(12))
