"""The Redis servers and helpers that other tests use."""

import subprocess
import sys

import pytest
import redis

from delayq.testing.redis_server import free_port
from tests.support.processes import Process
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until


def test_server_listens_on_a_socket_with_a_short_path(redis_server):
    assert redis_server.url.startswith("unix:///tmp/delayq-")
    assert len(redis_server.url) < 100
    with redis_server.client() as client:
        assert client.ping()


def test_server_can_listen_on_a_port(start_redis):
    server = start_redis(tcp=True)
    assert server.url == f"redis://127.0.0.1:{server.port}/0"
    with server.client() as client:
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


@pytest.mark.parametrize("attempt", [1, 2])
def test_every_test_gets_an_empty_redis(redis_client, attempt):
    assert redis_client.dbsize() == 0
    redis_client.set("left", "behind")


@pytest.mark.faults
@pytest.mark.parametrize("tcp", [False, True])
def test_restarted_server_has_the_same_address_and_no_data(start_redis, tcp):
    server = start_redis(tcp=tcp)
    url, pid = server.url, server.pid
    with server.client() as client:
        client.set("k", "v")
        server.kill()
        assert not server.is_running
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.restart()
        assert client.get("k") is None
    assert (server.url, server.pid == pid) == (url, False)


@pytest.mark.faults
def test_killed_server_with_an_append_only_file_keeps_its_data(start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    with server.client() as client:
        client.set("k", "v")
        server.kill()
        server.start()
        assert client.get("k") == b"v"


@pytest.mark.faults
def test_a_paused_server_answers_nothing_until_resumed(start_redis):
    server = start_redis()
    server.pause()
    with redis.Redis.from_url(server.url, socket_timeout=0.1) as client:
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        wait_until(client.ping)


@pytest.mark.faults
def test_a_paused_server_can_be_stopped(start_redis):
    server = start_redis()
    server.pause()
    server.stop()
    assert not server.is_running


def test_closing_leaves_no_process_and_no_files(redis_server):
    with RedisServer() as server:
        assert server.folder.exists()
    assert not server.is_running
    assert not server.folder.exists()


def test_a_server_that_cannot_start_says_why(redis_server):
    server = RedisServer("--no-such-option", "yes")
    with pytest.raises(RuntimeError, match="no-such-option"), server:
        pass
    assert not server.folder.exists()


@pytest.mark.long
def test_free_port_never_returns_a_port_twice():
    among = range(19_000, 19_100)
    program = (
        f"from delayq.testing.redis_server import free_port; print(*[free_port({among!r}) for _ in range(30)]); input()"
    )
    with Process([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        its = other.stdout.readline().split()
        mine = [free_port(among) for _ in range(30)]
        other.communicate(b"\n")
    assert len({*map(int, its), *mine}) == 60


def test_wait_until_returns_when_the_condition_is_met():
    replies = iter([False, None, 0, "yes"])
    wait_until(lambda: next(replies))
    assert next(replies, "none left") == "none left"


def test_wait_until_fails_with_its_message():
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: the moon"):
        wait_until(lambda: False, timeout=0.02, message="the moon")
