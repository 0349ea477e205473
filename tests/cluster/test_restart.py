"""A server that keeps an append-only file is killed and started again under load: all go on within a second."""

import time

import pytest

from tests.cluster.load import Load

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

NOISE = 2.0
"""Seconds a machine may add whose processors others use as well."""


@pytest.mark.parametrize("down", [0.0, 3.0], ids=["at once", "after a while"])
def test_all_go_on_within_a_second_of_a_restart(start_redis, prefix, down):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always", tcp=True)
    with Load(server.url, "reminders", prefix) as load:
        load.goes_on()
        server.kill()
        time.sleep(down)  # so that the pauses between two tries have become as long as they get
        server.start()
        up = time.monotonic()
        sends, consumes = load.sends_again(up), load.consumes_again(up)
        load.finish()
    assert not load.lost
    assert not load.failed
    assert sends < 1 + NOISE
    assert consumes < 1 + NOISE
    print(f"\nsends again after {sends:.2f} s, consumes again after {consumes:.2f} s")
