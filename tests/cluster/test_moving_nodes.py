"""A worker follows the partitions of its queue over the nodes of a Cluster, also to one that was added."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from delayq.queue.partitioned import consuming
from tests.cluster.load import Load
from tests.cluster.test_partitions import open_partitions, slot_of
from tests.support.deployments import HOST, REPLICATION, Node, RedisCluster, free_port, until
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

PARTITIONS = 4


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(consuming, "LOOK_EVERY", 0.1)


def loops():
    """Return how many threads run the loops of a worker, apart from its first one."""
    return sum(thread.name.endswith("-loop") for thread in threading.enumerate())


def move(cluster, target):
    """Move all partitions to a node."""
    for number in range(PARTITIONS):
        slot = slot_of(number)
        if cluster.owner(slot) is not target:
            cluster.migrate(slot, target, lambda: None)
            wait_until(partial(cluster.agrees, slot, target))


def test_a_node_that_had_no_partition_for_a_while_is_served_again(redis_cluster, prefix):
    masters = [*redis_cluster.masters()]
    with Load(redis_cluster.url, "reminders", prefix, {"partitions": PARTITIONS}) as load:
        load.goes_on()
        for target in (*masters, masters[0]):
            move(redis_cluster, target)
            load.goes_on()
            time.sleep(3 * consuming.LOOK_EVERY)  # so that loops without partitions would have ended
        load.finish()
    assert not load.failed
    assert not load.lost()
    assert not load.doubled


@pytest.mark.long
def test_a_node_that_was_added_gets_a_loop_of_its_own(prefix):
    with RedisCluster() as cluster:
        bus = free_port()
        added = Node(
            "--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", str(bus), *REPLICATION
        )
        with open_partitions(cluster, prefix, PARTITIONS) as queue:
            started: list[str] = []
            queue.callback(lambda message: started.append(message.id))
            queue.start_consume()
            wait_until(lambda: loops() == 3)  # beside its first one two for nodes, and one that shares out limits
            added.start()
            try:
                cluster.servers[0].ask("CLUSTER", "MEET", HOST, added.port, bus)
                cluster.servers.append(added)
                until("all know the node", lambda: all(cluster._known(one) == "7" for one in cluster.servers))
                until("the node serves", lambda: added.facts("CLUSTER", "INFO")["cluster_state"] == "ok")
                cluster.migrate(slot_of(1), added, lambda: None)  # 2 stays at the same node
                wait_until(partial(cluster.agrees, slot_of(1), added))
                wait_until(lambda: loops() == 4, message="no loop for the node")
                ids = queue.send_many(range(200)).ids
                wait_until(lambda: {*started} == {*ids})
                assert len(started) == len(ids)
                assert queue.stop_consume()
            finally:
                added.close()
