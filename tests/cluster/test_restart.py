"""A server is restarted, or its address moves to another one, under load: clients continue within a second."""

import time
from urllib.parse import urlsplit

import pytest

from tests.cluster.load import UNDOABLE, Load
from tests.support.deployments import REPLICATION
from tests.support.faulty_proxy import FaultyProxy
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

NOISE = 5.0
"""Seconds a machine may add whose processors others use as well."""


@pytest.mark.long
@pytest.mark.parametrize("down", [0.0, 3.0], ids=["at once", "after a while"])
def test_clients_continue_within_a_second_of_a_restart(start_redis, prefix, down):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always", tcp=True)
    with Load(server.url, "reminders", prefix) as load:
        load.goes_on()
        server.kill()
        time.sleep(down)  # so that the pauses between two tries have become as long as they get
        server.start()
        up = time.monotonic()
        sends, consumes = load.sends_again(up), load.consumes_again(up)
        load.finish()
    assert not load.lost()
    assert not load.failed
    assert sends < 1 + NOISE
    assert consumes < 1 + NOISE
    print(f"\nsends again after {sends:.2f} s, consumes again after {consumes:.2f} s")


@pytest.mark.long
def test_clients_leave_a_demoted_master_for_the_new_one_at_its_address(start_redis, prefix):
    first, second = start_redis(*REPLICATION, tcp=True), start_redis(tcp=True)
    old, new = first.client(), second.client()
    with FaultyProxy(first.url) as address, Load(address.url, "reminders", prefix, UNDOABLE) as load:
        load.goes_on()
        new.replicaof("127.0.0.1", first.port)
        wait_until(lambda: new.info("replication")["master_link_status"] == "up")
        # As a managed Redis does it: the old master refuses writes, and a name is given to the new one.
        old.replicaof("127.0.0.1", second.port)
        address._target = urlsplit(second.url)
        new.replicaof("no", "one")
        moved = time.monotonic()
        assert load.sends_again(moved) < 1 + NOISE
        assert load.consumes_again(moved) < 1 + NOISE
        load.finish()
    assert not load.failed
    old.close()
    new.close()
