"""A queue moves from node to node under load: nothing is lost or duplicated, and all clients follow."""

import time

import pytest
from redis.crc import key_slot

from delayq import DelayQueue
from tests.cluster.load import Load
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

SLOT = key_slot(b"reminders")
KEYS_APART = 0.02
"""Seconds between two keys that are moved: so long the queue is torn in two."""
NOISE = 5.0
"""Seconds a machine may add whose processors others use as well."""


def migrate(cluster, prefix, times):
    """Move the queue's slot again and again under load; returns the seconds until all went on, each time."""
    waits = []
    with Load(cluster.url, "reminders", prefix) as load:
        for _ in range(times):
            load.goes_on()
            source = cluster.owner(SLOT)
            target = next(node for node in cluster.masters() if node is not source)
            cluster.migrate(SLOT, target, lambda: time.sleep(KEYS_APART))
            moved = time.monotonic()
            waits.append(max(load.sends_again(moved), load.consumes_again(moved)))
            assert waits[-1] < 1 + NOISE
            wait_until(lambda to=target: cluster.agrees(SLOT, to))
        load.finish()
        with DelayQueue("reminders", url=cluster.url, prefix=prefix) as queue:
            totals = queue.stats().totals
    assert not load.failed
    assert not load.lost()
    assert not load.doubled
    assert totals["sent"] == totals["delivered"] == totals["acked"] == len(load.returned)
    print(f"\n{len(load.returned)} sends; went on after", *(f"{seconds:.2f}" for seconds in waits), "s")
    return waits


@pytest.mark.long
def test_queue_moves_to_another_node_under_load(redis_cluster, prefix):
    migrate(redis_cluster, prefix, 2)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_queue_moves_a_hundred_times_under_load(redis_cluster, prefix):
    waits = migrate(redis_cluster, prefix, 100)
    assert sorted(waits)[90] < 1


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "empty"])
def test_queue_that_moves_while_idle_is_found_again(redis_cluster, prefix, stored):
    with DelayQueue("reminders", url=redis_cluster.url, prefix=prefix) as queue:
        if stored:
            queue.send_many(range(10))
        source = redis_cluster.owner(SLOT)
        target = next(node for node in redis_cluster.masters() if node is not source)
        redis_cluster.migrate(SLOT, target, lambda: None)
        queue.send_delay_msg("more")
        assert queue.counts().ready == (11 if stored else 1)
        wait_until(lambda: redis_cluster.agrees(SLOT, target))
