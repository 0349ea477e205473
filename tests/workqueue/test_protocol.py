"""What a work queue stores in the keys of the protocol, and what it returns; blocking and asyncio."""

from __future__ import annotations

import time
import uuid

import fakeredis
import pytest
import redis

from delayq.workqueue import Item, KeyPrefix, WorkQueue
from tests.support.waiting import wait_until

QUEUE, PROCESSING = "jobs:queue", "jobs:processing"


def keys(db):
    return {key.decode(errors="replace") for key in db.keys("*")}


def ids(db, key):
    return [id.decode() for id in db.lrange(key, 0, -1)]


def expire(db, *leased):
    """Expire a lease: delete its key."""
    assert db.delete(*(f"jobs:lease:{id}" for id in leased)) == len(leased)


# Adding


def test_an_item_is_its_data_and_an_id_at_the_left_of_the_queue(jobs, redis_client):
    assert jobs.add_item(Item(b"one", id="a")) is True
    assert jobs.add_item(Item(b"two", id="b")) is True
    assert keys(redis_client) == {QUEUE, "jobs:item:a", "jobs:item:b"}
    assert ids(redis_client, QUEUE) == ["b", "a"]
    assert redis_client.get("jobs:item:a") == b"one"


def test_an_id_is_added_once_until_it_is_completed(jobs, redis_client):
    assert jobs.add_item(Item("first", id="a"))
    assert not jobs.add_item(Item("second", id="a"))
    item = jobs.lease(10)
    assert not jobs.add_item(Item("third", id="a"))
    assert item.data() == b"first"
    assert jobs.complete(item)
    assert jobs.add_item(Item("fourth", id="a"))
    assert ids(redis_client, QUEUE) == ["a"]


def test_a_unique_item_is_added_without_a_check(jobs, redis_client):
    assert jobs.add_unique_item(Item("x", id="a")) is None
    assert (redis_client.get("jobs:item:a"), ids(redis_client, QUEUE)) == (b"x", ["a"])


def test_a_pipeline_adds_whole_items_and_returns_which_were_new(jobs, redis_client):
    names = ["add_item_to_pipeline", "add_item_to_pipeline", "add_unique_item_to_pipeline"]
    assert jobs.pipeline(*names, items=[Item("1", id="a"), Item("2", id="a"), Item("3", id="b")]) == [1, 0, 1]
    assert ids(redis_client, QUEUE) == ["b", "a"]
    assert redis_client.get("jobs:item:a") == b"1"


def test_no_item_is_added_if_the_queue_is_not_a_list(jobs, redis_client):
    redis_client.set(QUEUE, "a text")
    with pytest.raises(redis.ResponseError):
        jobs.add_item(Item("x", id="a"))
    assert keys(redis_client) == {QUEUE}


# Leasing


def test_items_are_leased_in_order_under_the_session(jobs, redis_client):
    for id in "abc":
        jobs.add_item(Item(id, id=id))
    item = jobs.lease(10)
    assert (item.id(), item.data(), type(item)) == ("a", b"a", Item)
    assert (ids(redis_client, QUEUE), ids(redis_client, PROCESSING)) == (["c", "b"], ["a"])
    assert redis_client.get("jobs:lease:a").decode() == jobs.queue._session
    assert 9_000 < redis_client.pttl("jobs:lease:a") <= 10_000
    assert jobs.lease(10).id() == "b"
    assert ids(redis_client, PROCESSING) == ["b", "a"]


@pytest.mark.parametrize("lease", [0.25, "250ms"])
def test_a_lease_may_be_shorter_than_a_second(jobs, redis_client, lease):
    jobs.add_item(Item("x", id="a"))
    jobs.lease(lease)
    assert 0 < redis_client.pttl("jobs:lease:a") <= 250


def test_an_empty_queue_leases_nothing(jobs, redis_client):
    assert jobs.lease(10, False) is None
    assert jobs.lease(10, block=False, timeout=5) is None
    assert keys(redis_client) == set()


def test_a_wait_ends_after_its_timeout(jobs, redis_client):
    began = time.monotonic()
    assert jobs.lease(10, timeout=0.2) is None
    assert 0.2 <= time.monotonic() - began < 10
    assert keys(redis_client) == set()


def test_any_number_of_ids_without_data_is_dropped(jobs, redis_client):
    redis_client.rpush(QUEUE, "work", *(f"stale-{n}" for n in range(1000)))
    redis_client.set("jobs:item:work", b"x")
    assert jobs.lease(10, False).id() == "work"
    assert keys(redis_client) == {PROCESSING, "jobs:item:work", "jobs:lease:work"}


def test_a_thousand_ids_without_data_cost_a_few_commands(jobs, redis_client):
    redis_client.rpush(QUEUE, *range(1000))
    redis_client.config_resetstat()
    assert jobs.lease(10, False) is None
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] <= 10


def test_an_id_whose_data_is_not_a_string_is_dropped(jobs, redis_client):
    redis_client.lpush("jobs:item:odd", "a list")
    redis_client.lpush(QUEUE, "odd")
    jobs.add_item(Item("x", id="a"))
    assert jobs.lease(10, False).id() == "a"
    assert ids(redis_client, QUEUE) == []


def test_a_lease_key_that_is_not_a_string_counts_as_a_lease(jobs, redis_client):
    redis_client.mset({"jobs:item:a": "x", "jobs:item:b": "x"})
    redis_client.lpush(PROCESSING, "a", "b")
    redis_client.lpush("jobs:lease:a", "a list")
    assert jobs.light_clean() == 1
    assert (ids(redis_client, QUEUE), ids(redis_client, PROCESSING)) == (["b"], ["a"])


def test_a_queue_of_ids_without_data_is_empty(jobs, redis_client):
    redis_client.rpush(QUEUE, *(f"stale-{n}" for n in range(20)))
    assert jobs.lease(10, False) is None
    assert keys(redis_client) == set()
    redis_client.rpush(QUEUE, *(f"stale-{n}" for n in range(20)))
    assert jobs.lease(10, timeout=0.05) is None
    assert keys(redis_client) == set()


def test_an_id_listed_twice_is_leased_once(jobs, redis_client):
    jobs.add_unique_item(Item("x", id="a"))
    jobs.add_unique_item(Item("y", id="a"))
    item = jobs.lease(10, False)
    assert item.data() == b"y"
    assert jobs.lease(10, False) is None
    assert ids(redis_client, PROCESSING) == ["a"]
    assert jobs.complete(item)
    assert keys(redis_client) == set()


def test_a_queued_item_with_a_lease_is_left_to_a_cleaner(jobs, redis_client):
    jobs.add_item(Item("x", id="a"))
    redis_client.set("jobs:lease:a", "another", ex=10)
    assert jobs.lease(10, False) is None
    assert ids(redis_client, PROCESSING) == ["a"]
    expire(redis_client, "a")
    assert jobs.light_clean(grace=0) == 1
    assert jobs.lease(10, False).id() == "a"


# Completing


def test_completing_leaves_no_keys(jobs, redis_client):
    jobs.add_item(Item("x", id="a"))
    item = jobs.lease(10)
    assert jobs.complete(item) is True
    assert keys(redis_client) == set()
    assert jobs.complete(item) is False


def test_a_late_completion_counts_and_removes_the_item_from_the_queue(jobs, redis_client):
    jobs.add_item(Item("x", id="a"))
    item = jobs.lease(10)
    expire(redis_client, "a")
    assert jobs.light_clean(grace=0) == 1
    assert ids(redis_client, QUEUE) == ["a"]
    assert jobs.complete(item) is True
    assert keys(redis_client) == set()


def test_one_of_two_consumers_completes_an_item(jobs, opened, redis_client):
    jobs.add_item(Item("x", id="a"))
    late = jobs.lease(10)
    expire(redis_client, "a")
    jobs.light_clean(grace=0)
    other = opened()
    current = other.lease(10)
    assert [jobs.complete(late), other.complete(current), jobs.complete(late)] == [True, False, False]
    assert keys(redis_client) == set()


def test_completing_removes_all_copies_from_processing(jobs, redis_client):
    redis_client.set("jobs:item:a", b"x")
    redis_client.rpush(PROCESSING, "a", "b", "a")
    assert jobs.complete(Item("", id="a"))
    assert ids(redis_client, PROCESSING) == ["b"]


def test_completing_searches_the_queue_only_if_the_id_is_not_in_processing(jobs, redis_client):
    redis_client.set("jobs:item:a", b"x")
    redis_client.rpush(PROCESSING, "a")
    redis_client.rpush(QUEUE, "a")
    assert jobs.complete(Item("", id="a"))
    assert ids(redis_client, QUEUE) == ["a"]
    assert jobs.lease(10, False) is None
    assert keys(redis_client) == set()


# Cleaning


def test_a_light_clean_requeues_only_items_without_a_lease(jobs, redis_client):
    for id in "abcd":
        jobs.add_item(Item(id, id=id))
    leased = [jobs.lease(10).id() for _ in range(3)]
    expire(redis_client, "a", "c")
    assert jobs.light_clean(grace=0) == 2
    assert leased == ["a", "b", "c"]
    assert (ids(redis_client, QUEUE), ids(redis_client, PROCESSING)) == (["c", "a", "d"], ["b"])
    assert jobs.light_clean(grace=0) == 0


def test_a_clean_logs_each_item_that_it_requeues(jobs, redis_client, caplog):
    for id in "ab":
        jobs.add_item(Item(id, id=id))
    jobs.lease(10)
    expire(redis_client, "a")
    redis_client.set("jobs:item:c", b"x")
    assert jobs.light_clean(grace=0) == 2
    lines = {record.id: record for record in caplog.records if record.name == "delayq.workqueue"}
    assert {(id, record.levelname, record.queue) for id, record in lines.items()} == {
        ("a", "WARNING", "jobs"),
        ("c", "WARNING", "jobs"),
    }
    assert lines["a"].getMessage() == "jobs: item a is queued again: its lease expired, as its worker was lost"
    assert "add was cut off" in lines["c"].getMessage()


def test_a_lease_expires(jobs, redis_client):
    jobs.add_item(Item("x", id="a"))
    jobs.lease(0.02)
    wait_until(lambda: not redis_client.exists("jobs:lease:a"))
    assert jobs.light_clean() == 1
    assert jobs.lease(10, False).id() == "a"


def test_a_clean_drops_ids_without_an_item_from_processing(jobs, redis_client):
    redis_client.rpush(PROCESSING, "gone", "gone", "leased")
    redis_client.set("jobs:lease:leased", "another")
    assert jobs.light_clean(grace=0) == 0
    assert ids(redis_client, PROCESSING) == ["leased"]


def test_an_item_twice_in_processing_is_requeued_once(jobs, redis_client):
    redis_client.set("jobs:item:a", b"x")
    redis_client.rpush(PROCESSING, "a", "a")
    assert jobs.light_clean(grace=0) == 1
    assert (ids(redis_client, QUEUE), ids(redis_client, PROCESSING)) == (["a"], [])


@pytest.mark.parametrize("clean", ["light_clean", "deep_clean"])
def test_a_clean_repairs_an_add_cut_off_between_its_two_commands(jobs, redis_client, clean):
    redis_client.set("jobs:item:a", b"x")
    assert getattr(jobs, clean)() == 1
    assert jobs.lease(10, False).data() == b"x"


def test_light_cleans_scan_a_large_database_step_by_step(jobs, redis_client):
    redis_client.mset({f"other:{n}": b"" for n in range(15_000)})
    redis_client.set("jobs:item:a", b"x")
    assert sum(jobs.light_clean(grace=0) for _ in range(3)) == 1
    assert ids(redis_client, QUEUE) == ["a"]


def test_only_a_deep_clean_searches_a_long_queue(jobs, redis_client):
    redis_client.rpush(QUEUE, *range(20_001))
    redis_client.set("jobs:item:a", b"x")
    assert jobs.light_clean(grace=0) == 0
    assert jobs.deep_clean(grace=0) == 1
    assert redis_client.lindex(QUEUE, 0) == b"a"


def test_a_clean_of_long_lists_searches_in_small_steps(jobs, redis_client, monkeypatch):
    monkeypatch.setattr("delayq.workqueue.cleaner.MAX_SEARCHED", 40_002)
    redis_client.rpush(QUEUE, *range(20_001))
    for id in "abc":
        redis_client.set(f"jobs:item:{id}", b"x")
    for id in "def":
        redis_client.set(f"jobs:item:{id}", b"x")
        redis_client.lpush(PROCESSING, id)
    redis_client.config_resetstat()
    assert jobs.deep_clean(grace=0) == 6
    # One for the ids in processing, one to count, two for the others.
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] <= 4
    assert ids(redis_client, QUEUE)[3:6] == ["f", "e", "d"]


def test_a_deep_clean_changes_no_correct_item(jobs, redis_client):
    for id in "abc":
        jobs.add_item(Item(id, id=id))
    jobs.lease(10)
    redis_client.set("jobs:item:held", b"x")
    redis_client.set("jobs:lease:held", "another")
    before = {key: redis_client.dump(key) for key in redis_client.keys("*")}
    assert jobs.deep_clean(grace=0) == 0
    assert {key: redis_client.dump(key) for key in redis_client.keys("*")} == before


def test_a_clean_ignores_other_queues(opened, redis_client):
    prefix = "a*[b]?\\"
    redis_client.set(f"{prefix}:item:x", b"x")
    redis_client.set("abcb:item:y", b"y")
    redis_client.set("axxb?\\:item:z", b"z")
    redis_client.rpush(f"{prefix}:item:a-list", "of another queue")
    assert opened(prefix).deep_clean(grace=0) == 1
    assert ids(redis_client, f"{prefix}:queue") == ["x"]


def test_a_clean_waits_only_if_it_finds_an_item_to_requeue(jobs, redis_client, monkeypatch):
    monkeypatch.setattr("delayq.workqueue.cleaner.PAGE", 2)
    for id in "abcdef":
        jobs.add_item(Item("x", id=id))
    jobs.lease(10)
    began = time.monotonic()
    assert jobs.light_clean(grace=30) == jobs.deep_clean(grace="1h") == 0
    assert time.monotonic() - began < 20
    expire(redis_client, "a")
    began = time.monotonic()
    assert jobs.light_clean(grace=0.15) == 1
    assert time.monotonic() - began >= 0.15


# Counting


def test_counts(jobs):
    for id in "abc":
        jobs.add_item(Item(id, id=id))
    item = jobs.lease(10)
    assert (jobs.queue_len(), jobs.processing(), jobs.counts()) == (2, 1, (2, 1))
    assert (jobs.get_item_data("b"), jobs.get_item_data("none")) == (b"b", None)
    jobs.complete(item)
    assert (jobs.get_item_data("a"), jobs.counts()) == (None, (2, 0))


# Clients


@pytest.mark.parametrize("protocol", [2, 3])
def test_any_bytes_and_ids_work_with_a_decoding_client(opened, protocol):
    jobs = opened(decode_responses=True, protocol=protocol)
    data = bytes(range(256))
    assert jobs.add_item(Item(data, id="ä:{}*\n"))
    item = jobs.lease(10, timeout=1)
    assert (item.id(), item.data(), jobs.get_item_data(item.id())) == ("ä:{}*\n", data, data)
    assert jobs.complete(item)
    assert jobs.deep_clean() == 0


@pytest.mark.parametrize("id", [b"\xff\xfe", b"\xed\xb2\x80", b"", b"\x00"])
def test_an_id_that_this_library_would_refuse_can_be_processed(jobs, redis_client, id):
    for _ in range(2):
        redis_client.set(b"jobs:item:" + id, b"x")
        redis_client.lpush(QUEUE, id)
        assert jobs.complete(jobs.lease(10, False))
        assert keys(redis_client) == set()
    redis_client.set(b"jobs:item:" + id, b"x")
    assert jobs.deep_clean() == 1
    assert redis_client.lrange(QUEUE, 0, -1) == [id]


@pytest.mark.long
def test_a_client_with_a_short_timeout_can_wait(opened):
    jobs = opened(socket_timeout=0.5, retry=None)
    began = time.monotonic()
    assert jobs.lease(10, timeout=0.8) is None
    assert time.monotonic() - began >= 0.8


def test_scripts_missing_on_the_server_are_sent_again(jobs, redis_client):
    for id in "ab":
        redis_client.script_flush()
        assert jobs.add_item(Item(id, id=id))
        redis_client.script_flush()
        assert jobs.complete(jobs.lease(10))


@pytest.mark.parametrize("grace", [0, 0.01])
@pytest.mark.parametrize("left", ["orphan", "lost"])
def test_a_full_redis_still_leases_completes_and_cleans(start_redis, grace, left):
    with start_redis().client() as db:
        jobs = WorkQueue(KeyPrefix("jobs"))
        for id in "abc":
            jobs.add_item(db, Item(id, id=id))
        item = jobs.lease(db, 10)
        db.set(f"jobs:item:{left}", b"x")
        if left == "lost":
            db.lpush(PROCESSING, left)
        db.config_set("maxmemory", 1)
        with pytest.raises(redis.OutOfMemoryError):
            jobs.add_item(db, Item("x", id="x"))
        assert not db.exists("jobs:item:x")
        assert jobs.deep_clean(db, grace=grace) == 1
        assert jobs.lease(db, 10, False).id() == "b"
        assert jobs.complete(db, item)
        assert ids(db, QUEUE) == [left, "c"]


def test_a_fakeredis_client_works():
    jobs, db = WorkQueue("jobs"), fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7,)))
    db.set("jobs:item:orphan", b"\xff")
    assert jobs.add_item(db, Item("x", id="a"))
    assert jobs.lease(db, 60, timeout=1).id() == "a"
    expire(db, "a")
    assert jobs.light_clean(db) == 2
    items = [jobs.lease(db, 60, timeout=1) for _ in range(2)]
    assert jobs.lease(db, 60, timeout=0.01) is None
    assert all(jobs.complete(db, item) for item in items)
    assert keys(db) == set()


def test_every_object_is_a_separate_session():
    assert len({WorkQueue("jobs")._session for _ in range(10)}) == 10
    assert uuid.UUID(WorkQueue("jobs")._session)
