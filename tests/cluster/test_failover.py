"""A master is killed under load: nothing that was sent is lost, and all go on as soon as there is another."""

import time

import pytest
from redis.crc import key_slot

from delayq.torture.deployments import RedisCluster
from tests.cluster.load import Load

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

GRACE = 3.0
"""Seconds within which everything works again, beyond those after which a silent master is replaced."""
NOISE = 5.0
"""Seconds a machine may add whose processors others use as well."""


def kill_masters(deployment, prefix, times):
    """Kill the master again and again under load; returns the seconds until sends returned, each time."""
    clustered = isinstance(deployment, RedisCluster)
    patience = deployment.node_timeout if clustered else deployment.down_after
    slot = key_slot(b"reminders")
    outages = []
    with Load(deployment.url, "reminders", prefix) as load:
        for _ in range(times):
            load.goes_on()
            killed = deployment.owner(slot) if clustered else deployment.master
            killed.kill()
            began = time.monotonic()
            deployment.await_failover(killed, *[slot] * clustered)
            known = time.monotonic()
            # Once the new master is known, it is found within a pause between two tries.
            assert load.sends_again(known) < 1 + NOISE / 2
            assert load.consumes_again(known) < 1 + NOISE / 2
            outages.append(load.sends_again(began))
            assert outages[-1] < patience + GRACE + NOISE
            deployment.rejoin(killed)
        load.finish()
    assert not load.lost
    assert not load.failed
    print(f"\n{len(load.returned)} sends; back after", *(f"{seconds:.2f}" for seconds in outages), "s")
    return outages


def test_a_master_is_killed(deployment, prefix):
    kill_masters(deployment, prefix, 1)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_masters_are_killed_thirty_times(deployment, prefix):
    outages = kill_masters(deployment, prefix, 30)
    assert sorted(outages)[len(outages) // 2] < 1.0 + GRACE
