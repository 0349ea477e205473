"""The final scan reports remaining messages and every inconsistency."""

import pytest

from delayq import DelayQueue
from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand
from delayq.queue.server_check import removal
from delayq.testing.torture.final_scan import scan, scan_all

KEYS = Keys.of("delayq", "scanned")


@pytest.fixture
def queue(redis_url):
    """A queue with a message in most states."""
    with DelayQueue("scanned", url=redis_url, default_retries=1) as queue:
        queue.send_delay_msg("wrong", id="dead")
        with queue.lease() as message:
            message.reject("no")
        queue.send_delay_msg("again", id="backoff", headers={"a": "b"})
        with queue.lease() as message:
            message.nack(delay=60)
        queue.send_delay_msg("held", id="held")
        lease = queue.lease(60)
        lease.__enter__()
        queue.send_delay_msg("later", "1h", id="pending")
        yield queue


@pytest.fixture
def scanned(queue):
    return lambda: scan(queue.executor, KEYS, own=True)


def test_scan_reports_all_messages(scanned):
    final = scanned()
    assert {(id, state) for id, state, _ in final.living} == {
        ("backoff", "backoff"),
        ("held", "leased"),
        ("pending", "pending"),
    }
    assert [(id, *facts) for id, _, *facts in final.dead] == [("dead", 1, 1, "no")]
    assert final.counters["sent"] == 4
    assert "token" not in final.counters
    assert final.leftovers == []


def test_scan_of_partitions_adds_up(redis_url):
    names = [f"spread#{number}" for number in range(3)]
    with DelayQueue("spread", url=redis_url, partitions=3) as queue:
        ids = queue.send_many(range(30), "1h").ids
        queue.executor.call(RedisCommand(("ZADD", Keys.of("delayq", names[1]).pending, 1, "ghost"), int))
        final = scan_all(queue.executor, {name: Keys.of("delayq", name) for name in names}, own=True)
        queue.purge()
        queue.remove()
    assert sorted(id for id, _, _ in final.living) == sorted(ids)
    assert final.counters["sent"] == 30
    assert "spread#1: ghost is in a structure, but not a message" in final.leftovers


def test_removed_queue_leaves_nothing(queue, scanned):
    queue.executor.run(removal(KEYS, "delayq", "scanned"))
    final = scanned()
    assert (final.living, final.dead, final.leftovers) == ([], [], [])


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("ZADD", KEYS.pending, 1, "held"), "held is in 2 structures"),
        (("HDEL", KEYS.meta, "schema"), "the queue has no schema"),
        (("HDEL", KEYS.meta, "identity"), "the queue has no identity"),
        (("HSET", KEYS.dead_messages, "ghost:1", "no message"), "the message of ghost:1 cannot be read"),
        (("ZADD", KEYS.completed, 1, "ghost"), "ghost is completed without a result, or the reverse"),
        (("HSET", KEYS.results, "ghost", "x"), "ghost is completed without a result, or the reverse"),
        (("ZADD", KEYS.unack, 1, "ghost"), "ghost is in a structure, but not a message"),
        (("ZREM", KEYS.pending, "pending"), "pending is a message in no structure"),
        (("HSET", KEYS.retries, "ghost", 1), "ghost has retries, but is not a message"),
        (("HSET", KEYS.deliveries, "ghost", "ready 1 1 1 1 -"), "ghost has deliveries, but is not a message"),
        (("HSET", KEYS.headers, "ghost", "{}"), "ghost has headers, but is not a message"),
        (("HSET", KEYS.errors, "ghost", "x"), "ghost has errors, but is not a message"),
        (("HSET", KEYS.successors, "ghost", "x"), "ghost has successors, but is not a message"),
        (("ZADD", KEYS.dead, 1, "ghost:1"), "ghost:1 is dead without a message"),
        (("HSET", KEYS.dead_ids, "ghost", "1"), "ghost:1 is dead by id or by time, but not by both"),
        (("HINCRBY", KEYS.meta, "backoffs", 1), "backoff: counted as 2, but there are 1"),
        (("HINCRBY", KEYS.meta, "stale_ready", -1), "stale_ready: counted as"),
        (("SET", KEYS.meta + "x", 1), f"unknown key {KEYS.meta}x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_inconsistency_is_reported(scanned, redis_client, command, text):
    redis_client.execute_command(*command)
    assert [found for found in scanned().leftovers if found.startswith(text)]


def test_all_inconsistencies_are_counted_but_some_reported(scanned, redis_client):
    redis_client.zadd(KEYS.unack, {f"ghost-{n}": 1 for n in range(100)})
    leftovers = scanned().leftovers
    assert len(leftovers) == 21
    assert leftovers[-1].startswith("and 8")
