"""Sending: whatever happens, a message is stored whole or not at all, once, and the caller knows which."""

from __future__ import annotations

import math
import resource
import shutil
import threading
import time
from datetime import datetime, timedelta

import pytest

from delayq import (
    ConfigurationError,
    NewMessage,
    NoReplyError,
    OutcomeUnknown,
    PayloadTooLargeError,
    QueueFullError,
    ServerError,
    UnavailableError,
)
from tests.support.faulty_proxy import FaultyProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

HELD = "delayq:{reminders}:messages"


@pytest.mark.parametrize("times", range(1, 11))
def test_send_whose_reply_is_lost_repeatedly_is_one_message(open_queue, redis_url, monkeypatch, times):
    monkeypatch.setattr("delayq.broker.transport.protocol._FIRST_PAUSE", 0.0)
    with FaultyProxy(redis_url) as proxy:
        queue = open_queue(url=proxy.url)
        queue.counts()
        proxy.drop_replies(times)
        sent = queue.send_delay_msg("hello", 60, id="m")
        assert (sent.new, sent.due) == (True, queue.get("m").due)
        assert proxy.dropped == times
        assert (queue.stats().totals["sent"], queue.counts().pending) == (1, 1)


@pytest.mark.parametrize("many", [False, True])
def test_send_raises_at_the_deadline_if_redis_is_down(open_queue, start_redis, many):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    queue = open_queue(url=server.url, deadline="300ms")
    queue.open()
    server.kill()
    began = time.monotonic()

    with pytest.raises(NoReplyError, match=r"was not carried out|may or may not"):
        queue.send_many(["hello"]) if many else queue.send_delay_msg("hello")

    assert 0.3 <= time.monotonic() - began < 10
    with pytest.raises(UnavailableError, match="send was not carried out: Redis cannot be reached"):
        queue.send_delay_msg("again")  # this time there is no open connection
    server.start()
    assert queue.counts().living == 0


def test_silent_redis_raises_outcome_unknown_with_the_ids(open_queue, start_redis):
    server = start_redis()
    queue = open_queue(url=server.url, socket_timeout="100ms", deadline="300ms")
    queue.send_delay_msg("first", 60)
    server.pause()
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="may or may not have been carried out") as caught:
        queue.send_many([NewMessage("hello", id="a"), NewMessage("hello", id="b")], 60)
    assert 0.3 <= time.monotonic() - began < 10
    server.resume()

    assert caught.value.ids == ("a", "b")
    patient = open_queue(url=server.url)
    patient.send_many([NewMessage("hello", id=id) for id in caught.value.ids], 60)
    assert patient.counts().pending == 3


TIMELESS = [math.inf, -math.inf, math.nan, -1, -0.001, 1e18, True, False, "soon", "-1h", timedelta(-1), timedelta.max]


@pytest.mark.parametrize("delay", TIMELESS, ids=repr)
def test_invalid_delay_is_refused_and_nothing_is_stored(open_queue, redis_client, delay):
    queue = open_queue()
    with pytest.raises(ConfigurationError):
        queue.send_delay_msg("hello", delay)
    with pytest.raises(ConfigurationError):
        queue.send_many(["one", NewMessage("two", delay=delay)])
    with pytest.raises(ConfigurationError):
        queue.send_many(["one"], delay)
    assert list(redis_client.scan_iter()) == []


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), datetime.max, datetime.min, 1e9, "tomorrow", None], ids=repr)  # noqa: DTZ001, DTZ901
def test_naive_or_invalid_time_is_refused_and_nothing_is_stored(open_queue, redis_client, at):
    queue = open_queue()
    with pytest.raises(ConfigurationError):
        queue.send_schedule_msg("hello", at)
    if at is not None:
        with pytest.raises(ConfigurationError):
            queue.send_many([NewMessage("hello", at=at)])
    assert list(redis_client.scan_iter()) == []


def test_a_payload_over_the_limit_is_refused_before_a_byte_is_sent(open_queue, redis_url):
    with FaultyProxy(redis_url) as proxy:
        queue = open_queue(url=proxy.url)
        with pytest.raises(PayloadTooLargeError):
            queue.send_delay_msg("x" * (1 << 20))
        with pytest.raises(PayloadTooLargeError):
            queue.send_many(["fits", "x" * (1 << 20)])
        assert proxy.connections == 0


def test_full_redis_refuses_sends_and_accepts_them_again_with_free_memory(open_queue, start_redis):
    server, took = start_redis(), []
    queue = open_queue(url=server.url, deadline="300ms")
    patient = open_queue(url=server.url, deadline="20s")
    queue.send_many(range(100), 60)
    with server.client() as client:
        before = client.hgetall(HELD), client.zrange("delayq:{reminders}:pending", 0, -1, withscores=True)
        client.config_set("maxmemory", "1")
        for send in (
            lambda: queue.send_delay_msg("hello", id="m"),
            lambda: queue.send_many(["hello"] * 600),
            lambda: queue.send_delay_msg("hello", replace=True, id=next(iter(before[0])).decode()),
        ):
            with pytest.raises(QueueFullError):
                send()
        assert (client.hgetall(HELD), client.zrange("delayq:{reminders}:pending", 0, -1, withscores=True)) == before
        waiting = threading.Thread(target=lambda: took.append(patient.send_delay_msg("hello", 60, id="patient")))
        waiting.start()
        assert not waiting.join(0.2)
        assert not took
        client.config_set("maxmemory", "0")
        waiting.join(30)
        assert took[0].new
    assert queue.send_delay_msg("hello", 60, id="m").new
    assert queue.counts().pending == 102


@pytest.fixture
def start_on_small_disk(start_redis, tmp_path, monkeypatch):
    """Start a server that survives exceeding its file size limit, as it would survive a full disk."""
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {shutil.which('redis-server')} \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return lambda: start_redis("--appendonly", "yes", "--appendfsync", "everysec")


def limit(server, size: int) -> None:
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_full_disk_refuses_sends_and_work_continues_with_free_space(open_queue, start_on_small_disk):
    server, seen = start_on_small_disk(), []
    queue = open_queue(url=server.url, tick="200ms")
    queue.send_many(range(10), 0.5)
    used = max(file.stat().st_size for file in server.folder.rglob("*.aof"))
    limit(server, used + 200)
    sent, refused = [], None

    def fill() -> bool:
        nonlocal refused
        try:
            sent.append(queue.send_delay_msg(len(sent) + 10, 0.5).id)
        except ServerError as error:
            refused = error
        return refused is not None

    wait_until(fill)
    assert "MISCONF" in str(refused)
    with server.client() as client:
        held = client.hlen(HELD)
        assert held == 10 + len(sent) == client.zcard("delayq:{reminders}:pending")

    queue.callback(lambda message: seen.append(message.payload))
    consuming = queue.start_consume()
    with pytest.raises(ServerError, match="MISCONF"):
        queue.send_many(["hello"] * 600)
    limit(server, resource.RLIM_INFINITY)

    wait_until(lambda: not fill_refused(queue))
    wait_until(lambda: queue.counts().living == 0)
    assert consuming.running
    assert sorted(payload for payload in seen if payload != "probe") == list(range(10 + len(sent)))
    assert {finding.kind for finding in queue.examine(deep=True).findings} <= {"server"}
    queue.stop_consume()
    server.kill()
    server.start()
    assert queue.counts().living == 0


def fill_refused(queue) -> bool:
    try:
        queue.send_delay_msg("probe")
    except ServerError:
        return True
    return False
