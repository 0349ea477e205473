"""Client: both protocols and parsers, a connection that swallows everything, a pool shared with the application."""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial

import pytest
import redis
from redis._parsers import _AsyncRESP2Parser, _AsyncRESP3Parser, _RESP2Parser, _RESP3Parser

from tests.failures.programs import assert_soon
from tests.support.faces import Blocking
from tests.support.faulty_proxy import FaultyProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


def use_every_operation(queue, observer) -> None:
    """Use everything that a queue can do."""
    seen = []
    queue.callback(lambda message: seen.append((message.payload, message.headers)) or message.payload != "bad")
    queue.send_delay_msg({"user": 42}, headers={"a": "ü"})
    queue.send_many(["bad", "good"], retries=0)
    queue.send_delay_msg("later", 60, id="later")
    assert queue.send_delay_msg("later", 60, id="later").status == "exists"
    assert queue.reschedule("later", 90) == "rescheduled"
    queue.start_consume()
    wait_until(lambda: len(seen) == 3)
    wait_until(lambda: queue.counts().dead == 1)
    assert queue.stop_consume()
    assert ({"user": 42}, {"a": "ü"}) in seen
    assert queue.dead.redrive(all=True).redriven == 1
    with queue.lease(block=5) as message:
        assert message.payload == "bad"
    assert [message.id for message in queue.list("pending").messages] == ["later"]
    assert queue.cancel("later") == "cancelled"
    assert [event.kind for event in queue.events()][:1] == ["sent"]
    assert {finding.kind for finding in queue.examine(deep=True).findings} == {"server"}
    assert {finding.kind for finding in queue.repair().findings} == {"server"}
    assert queue.stats().totals == observer.stats().totals
    assert queue.counts().living == 0


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_operation_works_with_both_protocols(open_queue, redis_url, protocol):
    sign = "&" if "?" in redis_url else "?"
    use_every_operation(open_queue(url=f"{redis_url}{sign}protocol={protocol}", events=True), open_queue())


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_operation_works_without_hiredis(open_queue, face, redis_url, protocol):
    if isinstance(face, Blocking):
        parser = {2: _RESP2Parser, 3: _RESP3Parser}[protocol]
    else:
        parser = {2: _AsyncRESP2Parser, 3: _AsyncRESP3Parser}[protocol]
    client = face.do(lambda: face.client(redis_url, protocol=protocol, parser_class=parser))
    use_every_operation(open_queue(url=None, redis=client, events=True), open_queue())
    face.do(lambda: client.aclose() if hasattr(client, "aclose") else client.close())


def test_worker_with_silent_connections_recovers_after_its_socket_timeout(open_queue, redis_url):
    def recovery(number: int) -> float:
        seen, times, name = [], [], f"reminders-{number}"
        with FaultyProxy(redis_url) as proxy:

            def work(message):
                seen.append(message.payload)
                times.append(time.monotonic())

            queue = open_queue(name, url=proxy.url, callback=work, socket_timeout="1s", tick="100ms")
            other = open_queue(name)
            queue.start_consume()
            other.send_delay_msg("before")
            wait_until(lambda: seen == ["before"])

            proxy.freeze()  # for ever, without a reply; only new connections work
            frozen = time.monotonic()
            other.send_delay_msg("after")
            wait_until(lambda: seen == ["before", "after"])
            assert queue.stop_consume()
        assert other.stats().totals["delivered"] == 2
        return times[1] - frozen

    assert_soon(recovery, 1 + 1)


def test_a_pool_is_shared_with_the_application(face, open_queue, redis_url):
    """Neither gets the other's replies, and the queue waits for a pool that the application has exhausted."""
    deliveries, done, wrong = Counter(), threading.Event(), []
    client = face.do(lambda: face.client(redis_url, max_connections=50))
    queue = open_queue(
        url=None, redis=client, concurrency=4, callback=lambda message: deliveries.update([message.payload])
    )

    def application(name: str) -> None:
        number = 0
        while not done.is_set():
            number += 1
            face.do(partial(client.set, name, number))
            got = face.do(partial(client.get, name))
            if got != b"%d" % number:
                wrong.append((name, number, got))

    threads = [threading.Thread(target=application, args=[f"application-{number}"]) for number in range(4)]
    for thread in threads:
        thread.start()
    queue.start_consume()
    try:
        for first in range(0, 1000, 50):
            queue.send_many(range(first, first + 50))
        wait_until(lambda: queue.counts().living == 0)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert queue.stop_consume()
    queue.close()
    assert face.do(client.ping)  # the client of the application stays open
    assert not wrong
    assert deliveries == dict.fromkeys(range(1000), 1)
    face.do(lambda: client.aclose() if hasattr(client, "aclose") else client.close())


def test_queue_waits_for_a_pool_that_the_application_has_exhausted(redis_url):
    from delayq import DelayQueue, UnavailableError

    client = redis.Redis.from_url(redis_url, max_connections=1)
    queue = DelayQueue("reminders", redis=client, deadline="5s")
    queue.counts()
    taken = client.connection_pool.get_connection()
    with pytest.raises(UnavailableError, match="Redis cannot be reached"):
        DelayQueue("reminders", redis=client, deadline="100ms").send_delay_msg("never")
    threading.Timer(0.3, client.connection_pool.release, [taken]).start()
    assert queue.send_delay_msg("hello", 60).new
    assert queue.counts().pending == 1
    client.close()
