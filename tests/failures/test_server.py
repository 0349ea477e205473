"""Server: killed, flushed, busy, loading, full: workers and producers continue, and nothing is half done."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq import OutcomeUnknown, QueueFullError, UnavailableError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

FOREVER = "local function now() local t = redis.call('TIME') return t[1] + 0 end repeat until now() < 0"


def says(server, word: str) -> bool:
    """Return whether a server replies with an error that contains a word."""
    try:
        with redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as client:
            client.ping()
    except redis.RedisError as error:
        return word in str(error)
    return False


def insist(send):
    """Repeat a call until its outcome is known."""
    while True:
        try:
            return send()
        except (OutcomeUnknown, UnavailableError):
            continue


def has_written_everything(server) -> bool:
    """Return whether the append-only file has all writes: `everysec` delays them while a disk is slow."""
    with server.client() as client:
        return client.info("persistence")["aof_buffer_length"] == 0


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_killed_server_loses_no_send_that_returned(open_queue, start_redis, policy):
    # The system keeps the writes of a killed process; fsync matters only after a power cut.
    server = start_redis("--appendonly", "yes", "--appendfsync", policy)
    deliveries, sent = Counter(), []
    queue = open_queue(
        url=server.url,
        callback=lambda message: deliveries.update([message.payload]),
        deadline="500ms",
        concurrency=2,
        lease="5s",  # until messages whose acks were not written are delivered again
    )
    producer = open_queue(url=server.url, deadline="500ms")
    queue.start_consume()
    for life in range(3):
        for number in range(life * 60, life * 60 + 60):
            insist(lambda number=number: producer.send_delay_msg(number, number % 3 * 0.05, id=f"m{number}"))
            sent.append(number)
        wait_until(lambda: has_written_everything(server))
        server.kill()
        server.start()
    wait_until(lambda: set(deliveries) == set(sent))
    wait_until(lambda: queue.counts().living == 0)
    assert queue.stats().totals["acked"] == len(sent)
    assert deliveries.total() <= len(sent) + 3 * (2 + 500)  # duplicates: messages in flight at each kill
    assert {finding.kind for finding in queue.examine(deep=True).findings} <= {"server"}


def test_worker_survives_a_flush_and_delivers_later_messages(open_queue, redis_client):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload), concurrency=2)
    queue.start_consume()
    for number in range(10):
        queue.send_many([f"{number}-{at}" for at in range(20)])
        redis_client.flushall()
        queue.send_delay_msg(number)
        wait_until(lambda number=number: number in seen)
    wait_until(lambda: queue.counts().living == 0)
    assert queue.stop_consume()


PARTS = [
    "pending",
    "ready",
    "unack",
    "retry",
    "garbage",
    "retries",
    "deliveries",
    "messages",
    "meta",
    "wake",
]


@pytest.mark.parametrize("part", PARTS)
def test_worker_survives_a_deleted_key_and_repair_restores_its_messages(open_queue, redis_client, part, gate):
    seen, ended = set(), []

    def work(message):
        seen.add(message.payload)
        if message.attempt == 1:
            gate.wait(30)
        ended.append(message.payload)

    queue = open_queue(callback=work, concurrency=2, prefetch=2, tick="100ms")
    queue.send_many(range(10))
    consuming = queue.start_consume()
    wait_until(lambda: len(seen) >= 2)
    redis_client.delete(f"delayq:{{reminders}}:{part}")
    gate.set()
    queue.repair(deep=True)
    queue.send_many(range(10, 20))

    lost = set(range(10)) if part == "messages" else set()
    wait_until(lambda: seen >= set(range(20)) - lost)
    wait_until(lambda: queue.counts().living == 0)
    assert consuming.running
    assert queue.stop_consume()
    queue.repair(deep=True)
    assert {finding.kind for finding in queue.examine(deep=True).findings} <= {"server"}


def test_constantly_flushed_scripts_are_loaded_again(open_queue, redis_client):
    deliveries, done = Counter(), threading.Event()
    queue = open_queue(callback=lambda message: deliveries.update([message.payload]), concurrency=4)

    def forget() -> None:
        while not done.is_set():
            redis_client.script_flush()
            time.sleep(0.002)

    forgetting = threading.Thread(target=forget)
    forgetting.start()
    queue.start_consume()
    try:
        for first in range(0, 2000, 200):
            queue.send_many(range(first, first + 200))
        wait_until(lambda: queue.counts().living == 0)
    finally:
        done.set()
        forgetting.join()
    assert deliveries == dict.fromkeys(range(2000), 1)
    assert queue.stats().totals["acked"] == 2000


def test_send_waits_while_an_endless_script_blocks_the_server(open_queue, start_redis):
    server, seen, sent = start_redis("--busy-reply-threshold", "50"), [], []
    queue = open_queue(url=server.url, callback=lambda message: seen.append(message.payload), socket_timeout="2s")
    impatient = open_queue(url=server.url, deadline="200ms", socket_timeout="2s")
    queue.start_consume()
    queue.send_delay_msg("before")
    wait_until(lambda: seen == ["before"])
    impatient.counts()
    with server.client() as client, server.client() as killer:
        connection = client.connection_pool.get_connection()
        connection.send_command("EVAL", FOREVER, 0)
        wait_until(lambda: says(server, "BUSY"))
        with pytest.raises(UnavailableError, match=r"Redis is not ready .*BUSY"):
            impatient.send_delay_msg("never")
        sending = threading.Thread(target=lambda: sent.append(queue.send_delay_msg("meanwhile").new))
        sending.start()
        assert not sending.join(0.2)
        assert not sent
        killer.script_kill()
        sending.join(30)
        connection.disconnect()
        client.connection_pool.release(connection)
    assert sent == [True]
    wait_until(lambda: seen == ["before", "meanwhile"])


def test_send_waits_while_the_server_is_loading(open_queue, start_redis):
    server = start_redis("--save", "3600 1", "--loading-process-events-interval-bytes", "1024")
    seen, sent = [], []
    queue = open_queue(url=server.url, callback=lambda message: seen.append(message.payload), deadline="30s")
    queue.send_many(range(200), 60)
    queue.start_consume()
    with server.client() as client:
        client.mset({f"filler-{number}": "x" * 100 for number in range(3000)})
        client.save()
    server.kill()
    server._config = (*server._config, "--key-load-delay", "500")  # microseconds for each key
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        wait_until(lambda: says(server, "loading"))
        impatient = open_queue(url=server.url, deadline="100ms")
        with pytest.raises(UnavailableError, match="not ready"):
            impatient.send_delay_msg("never")
        sending = threading.Thread(target=lambda: sent.append(queue.send_delay_msg("meanwhile").new))
        sending.start()
        assert not sending.join(0.1)
        assert not sent
    finally:
        starting.join()
    sending.join(20)
    assert sent == [True]
    wait_until(lambda: seen == ["meanwhile"])
    assert queue.counts().pending == 200


def is_full(queue, sent) -> bool:
    try:
        sent += queue.send_many([{"number": len(sent), "pad": "x" * 2000}] * 50).ids
    except QueueFullError:
        return True
    return False


def test_full_redis_is_drained_and_then_accepts_sends(open_queue, start_redis):
    server, seen = start_redis(), []
    queue = open_queue(
        url=server.url, deadline="200ms", callback=lambda message: seen.append(message.payload), nack_delay=0
    )
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (3 << 20))
        sent = []
        wait_until(lambda: is_full(queue, sent))
        assert len(sent) > 200
        consuming = queue.start_consume()
        wait_until(lambda: queue.counts().living == 0)
        assert len(seen) == queue.stats().totals["acked"] >= len(sent)
        assert queue.send_delay_msg("again").new
        wait_until(lambda: "again" in seen)
    assert consuming.running
