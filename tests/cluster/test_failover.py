"""A master is killed under load: sent messages are kept, and clients continue with the new master."""

import time

import pytest
from redis.crc import key_slot

from delayq import NotReplicatedError
from tests.cluster.load import PRODUCERS, UNDOABLE, Load
from tests.support.deployments import RedisCluster

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

GRACE = 3.0
"""Seconds within which everything works again, beyond those after which a silent master is replaced."""
NOISE = 5.0
"""Seconds a machine may add whose processors others use as well."""
SLOT = key_slot(b"reminders")


def kill_master(deployment):
    """Kill the master of the queue; return it, the time of the kill, and the time of the failover."""
    clustered = isinstance(deployment, RedisCluster)
    killed = deployment.owner(SLOT) if clustered else deployment.master
    at = time.monotonic()
    killed.kill()
    deployment.await_failover(killed, *[SLOT] * clustered)
    return killed, at, time.monotonic()


def kill_masters(deployment, prefix, times):
    """Kill the master again and again under load; returns the seconds until sends returned, each time."""
    should_retry = deployment.node_timeout if isinstance(deployment, RedisCluster) else deployment.down_after
    kills, outages = [], []
    with Load(deployment.url, "reminders", prefix, UNDOABLE) as load:
        for _ in range(times):
            load.goes_on()
            killed, at, known = kill_master(deployment)
            kills.append(at)
            # Once the new master is known, it is found within a pause between two tries.
            outages.append(known - at + load.sends_again(known))
            assert outages[-1] < known - at + 1 + NOISE / 2
            assert load.consumes_again(known) < 1 + NOISE / 2
            assert outages[-1] < should_retry + GRACE + NOISE
            deployment.rejoin(killed)
        load.finish()
    # Redis writes an answer and its copy to the replica one after the other. A kill may come in between.
    assert not load.lost(but_at=kills)
    assert len(load.lost()) <= PRODUCERS * times
    assert not load.failed
    took = " ".join(f"{seconds:.2f}" for seconds in outages)
    print(f"\n{len(load.returned)} sends, {len(load.lost())} lost in the instant of a kill; back after {took} s")
    return outages


def kill_masters_of_replicated_sends(deployment, prefix, times):
    """Kill the master again and again under load that waits for a replica; returns how many sends returned."""
    options = UNDOABLE | {"durability": "replicated", "replication_timeout": "200ms"}
    with Load(deployment.url, "reminders", prefix, options) as load:
        for _ in range(times):
            load.goes_on()
            killed, _, _ = kill_master(deployment)
            deployment.rejoin(killed)  # from now on the new master has a replica again
            assert load.sends_again(time.monotonic()) < 1 + NOISE
        load.finish()
    assert not load.lost()
    assert {type(error) for error in load.failed} <= {NotReplicatedError}
    print(f"\n{len(load.returned)} sends confirmed by a replica, {len(load.failed)} not, 0 lost")
    return len(load.returned)


def test_killed_master_loses_no_message(deployment, prefix):
    kill_masters(deployment, prefix, 1)


@pytest.mark.long
def test_killed_master_loses_no_replicated_send(redis_cluster, prefix):
    kill_masters_of_replicated_sends(redis_cluster, prefix, 1)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_thirty_killed_masters_lose_no_message(deployment, prefix):
    outages = kill_masters(deployment, prefix, 30)
    assert sorted(outages)[len(outages) // 2] < 1.0 + GRACE


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_thirty_killed_masters_lose_no_replicated_send(deployment, prefix):
    assert kill_masters_of_replicated_sends(deployment, prefix, 30) > 5_000
