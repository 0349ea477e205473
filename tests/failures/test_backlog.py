"""Many messages due in one millisecond are promoted in small batches, and other calls run in between."""

from __future__ import annotations

import threading
import time

import pytest

from delayq import NewMessage
from delayq.values.times import from_millis
from tests.failures.programs import one_face
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


def due_at_once(open_queue, start_redis, messages: int, should_retry: float) -> tuple[float, float]:
    """Let many messages become due together; return the longest script and the 99th percentile of PING, in ms."""
    server, seen = start_redis(), []
    queue = open_queue(url=server.url, callback=lambda message: seen.append(1), concurrency=2, deadline=60)
    pings, done = [], threading.Event()
    with server.client() as client:
        client.config_set("slowlog-log-slower-than", "1000")
        client.config_set("slowlog-max-len", "100000")
        now, _ = client.time()
        at = from_millis((now + round(messages / 50_000) + 2) * 1000)
        for first in range(0, messages, 50_000):
            queue.send_many(NewMessage(1, at=at) for _ in range(first, min(first + 50_000, messages)))
        client.slowlog_reset()

        def ping() -> None:
            with server.client() as other:
                while not done.is_set():
                    began = time.perf_counter()
                    other.ping()
                    pings.append((time.perf_counter() - began) * 1000)
                    time.sleep(0.001)

        pinging = threading.Thread(target=ping)
        wait_until(lambda: from_millis(client.time()[0] * 1000) >= at, 60)
        pinging.start()
        queue.start_consume()
        try:
            wait_until(lambda: len(seen) == messages, should_retry, every=0.05)
        finally:
            done.set()
            pinging.join()
        slow = [
            entry["duration"] / 1000 for entry in client.slowlog_get(100_000) if entry["command"].startswith(b"EVALSHA")
        ]
    wait_until(lambda: queue.counts().living == 0)
    assert queue.stop_consume()
    assert queue.stats().totals["delivered"] == messages
    return max(slow, default=0.0), sorted(pings)[len(pings) * 99 // 100]


@pytest.mark.long
@one_face
@pytest.mark.timeout(180)
def test_ten_thousand_messages_due_at_once_are_promoted_in_small_batches(open_queue, start_redis):
    longest, _ = due_at_once(open_queue, start_redis, 10_000, 120)
    assert longest < 500  # a batch of 1,000 takes a few ms on an idle machine


@one_face
@pytest.mark.torture
def test_a_million_messages_due_at_once_are_promoted_in_small_batches(open_queue, start_redis):
    longest, pinged = due_at_once(open_queue, start_redis, 1_000_000, 900)
    print(f"longest script {longest:.1f} ms, PING p99 {pinged:.1f} ms")
    assert longest < 100
    assert pinged < 100
