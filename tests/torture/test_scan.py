"""The final scan: what is left, and that nothing out of order is overlooked."""

import pytest

from delayq import DelayQueue
from delayq.doctor import removal
from delayq.keys import Keys
from delayq.torture.scan import scan

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
    return lambda: scan(queue._executor, KEYS, own=True)


def test_all_that_is_held_is_told(scanned):
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


def test_of_a_queue_that_was_removed_nothing_is_left(queue, scanned):
    queue._executor.run(removal(KEYS, "delayq", "scanned"))
    final = scanned()
    assert (final.living, final.dead, final.leftovers) == ([], [], [])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("ZADD", KEYS.pending, 1, "held"), "held stands in 2 places"),
        (("ZADD", KEYS.unack, 1, "nobody"), "nobody stands in a place and is no message"),
        (("ZREM", KEYS.pending, "pending"), "pending is a message in no place"),
        (("HDEL", KEYS.retries, "held"), "held has no retries"),
        (("HSET", KEYS.retries, "nobody", 1), "nobody has retries and is no message"),
        (("HSET", KEYS.deliveries, "nobody", "ready 1 1 1 1 -"), "nobody has deliveries and is no message"),
        (("HSET", KEYS.headers, "nobody", "{}"), "nobody has headers and is no message"),
        (("HSET", KEYS.errors, "nobody", "x"), "nobody has errors and is no message"),
        (("ZADD", KEYS.dead, 1, "nobody:1"), "nobody:1 is dead without a message"),
        (("HSET", KEYS.dead_ids, "nobody", "1"), "nobody:1 is not dead by id and by time alike"),
        (("HINCRBY", KEYS.meta, "backoffs", 1), "backoff: counted as 2, but there are 1"),
        (("HINCRBY", KEYS.meta, "stale_ready", -1), "stale_ready: counted as"),
        (("SET", KEYS.meta + "x", 1), f"unknown key {KEYS.meta}x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_out_of_order_is_overlooked(scanned, redis_client, command, told):
    redis_client.execute_command(*command)
    assert [text for text in scanned().leftovers if text.startswith(told)]


def test_of_much_in_disorder_some_is_told_and_the_rest_counted(scanned, redis_client):
    redis_client.zadd(KEYS.unack, {f"nobody-{n}": 1 for n in range(100)})
    leftovers = scanned().leftovers
    assert len(leftovers) == 21
    assert leftovers[-1].startswith("and 8")
