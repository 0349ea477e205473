"""The libc shim of a server: effects on clock and disk, and data after a power cut."""

import errno
import time

import pytest
import redis

from delayq.testing.torture.disturbing import libc_shim as shim
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


@pytest.fixture
def built(tmp_path):
    try:
        made = shim.build(tmp_path)
    except shim.NoShimError as error:
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.fixture
def server(built):
    with RedisServer("--appendonly", "yes", "--appendfsync", "always", env=built.env) as started:
        yield started


@pytest.fixture
def client(server):
    with server.client() as made:
        yield made


@pytest.mark.parametrize("milliseconds", [-3_600_500, -1, 0, 1, 3_600_500])
def test_shim_shifts_the_clock_of_the_server(built, client, milliseconds):
    built.shift(milliseconds)
    before = time.time()
    seconds, micros = client.time()
    after = time.time()
    assert before - 0.005 <= seconds + micros / 1e6 - milliseconds / 1000 <= after + 0.005


def test_shim_slows_down_fsync(built, client):
    built.slow(0.2)
    began = time.monotonic()
    client.set("a", 1)
    assert time.monotonic() - began >= 0.2
    built.slow(0)


def test_power_cut_loses_only_unsynced_writes(built, server, client):
    client.set("synced", 1)
    client.config_set("appendfsync", "no")
    before = time.monotonic_ns() // 1000
    client.set("written", 1)
    server.kill()
    lost, since = built.cut_power(server.folder)
    assert lost > 0
    assert 0 < since < before
    server.start()
    assert client.keys("*") == [b"synced"]


def test_power_cut_loses_nothing_if_every_write_is_synced(built, server, client):
    for number in range(100):
        client.set(f"key-{number}", number)
    server.kill()
    assert built.cut_power(server.folder) == (0, 0)
    server.start()
    assert client.dbsize() == 100


def test_server_refuses_writes_while_the_disk_is_full(built, server, client):
    client.config_set("appendfsync", "everysec")
    built.fail_writes(errno.ENOSPC)

    def refused():
        try:
            client.set("a", 1)
        except redis.ResponseError as error:
            return "MISCONF" in str(error)
        return False

    wait_until(refused)
    built.fail_writes(0)
    wait_until(lambda: not refused())
    server.restart()
    assert client.get("a") == b"1"


@pytest.mark.long
def test_server_refuses_writes_after_a_failed_fsync_until_a_restart(built, server, client):
    client.config_set("appendfsync", "everysec")
    built.fail_syncs(errno.EIO)

    def refused():
        try:
            client.set("a", 1)
        except redis.ResponseError as error:
            return "MISCONF" in str(error)
        return False

    wait_until(refused)
    built.fail_syncs(0)
    server.restart()
    assert not refused()


def test_missing_compiler_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(shim.NoShimError, match=r"compiler|Linux"):
        shim.build(tmp_path)


SECOND = 5_000_000


@pytest.mark.parametrize(
    ("sync", "at", "since"),
    [
        pytest.param((SECOND + 10, SECOND + 20), SECOND + 500_000, 0, id="all was written"),
        pytest.param((SECOND + 10, 0), SECOND + 500_000, SECOND + 10, id="a sync is under way"),
        pytest.param((SECOND + 10, SECOND + 20), SECOND + 100_000, SECOND + 10, id="a sync is hardly over"),
        pytest.param((4_000_010, 4_000_020), SECOND + 4_000, 4_980_010, id="a sync has been handed over"),
        pytest.param((4_500_000, 4_500_020), SECOND + 4_000, SECOND, id="a second of the server's has begun"),
        pytest.param((4_500_000, 4_500_020), SECOND - 4_000, 0, id="a second of the server's has not begun"),
        pytest.param((0, 0), SECOND + 4_000, SECOND, id="the first sync"),
    ],
)
def test_unsynced_time_is_computed_from_the_last_sync(tmp_path, monkeypatch, sync, at, since):
    made = shim.Shim(tmp_path / "shim.so", tmp_path / "control")
    monkeypatch.setattr(shim.time, "time_ns", lambda: (at + 1_700_000_000_000_000 - 250_000) * 1000)
    made.shift(250)
    for place, when in zip((shim._SYNC_BEGAN, shim._SYNC_ENDED), sync, strict=True):
        made._set(place, when)
    assert made.held_back(at) == since
    made.close()
