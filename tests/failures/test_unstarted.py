"""What was never handed to a callback is never charged, whatever becomes of its consumer."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from delayq import DelayQueue, NewMessage
from tests.support.processes import Process
from tests.support.waiting import wait_until_started

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

CONSUMER = """
import os, sys, time
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], lease=1, concurrency=int(sys.argv[2]))

@queue.callback
def work(message):
    if message.payload == "slow":
        print("started", flush=True)
        sys.stdin.readline()
    if message.payload == "poison":
        os._exit(9)

    time.sleep(message.payload == "short" and 0.1)

queue.run(burst=len(sys.argv) > 3)
"""


@pytest.fixture
def queue(redis_url):
    with DelayQueue("reminders", url=redis_url, lease=1) as queue:
        yield queue


def start(url, *words, concurrency=1):
    return Process(
        [sys.executable, "-c", CONSUMER, url, str(concurrency), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def payloads_of_the_dead(queue):
    return [message.payload for message in queue.dead.list().messages]


@pytest.mark.long
def test_killed_consumer_buries_nothing_that_it_had_not_started(queue, redis_url):
    payloads = [*["quick"] * 300, "slow", *["quick"] * 300]
    queue.send_many([NewMessage(payload, retries=0, id=f"{n:03}") for n, payload in enumerate(payloads)])
    with start(redis_url) as consumer:
        assert consumer.stdout.readline() == b"started\n"
        wait_until_started(redis_url, "300")
        consumer.send_signal(signal.SIGKILL)
    with start(redis_url, "burst") as consumer:
        assert consumer.wait(60) == 0
    assert payloads_of_the_dead(queue) == ["slow"]
    assert (queue.counts().living, queue.stats().totals["acked"]) == (0, 600)


@pytest.mark.long
@pytest.mark.parametrize(("concurrency", "other", "number"), [(1, "quick", 300), (10, "quick", 300), (10, "short", 20)])
def test_message_that_kills_its_consumers_takes_no_other_with_it(queue, redis_url, concurrency, other, number):
    payloads = [*[other] * number, "poison", *[other] * number]
    queue.send_many(NewMessage(payload, retries=1, id=f"{n:03}") for n, payload in enumerate(payloads))
    crashes = 0
    while queue.counts().living:
        with start(redis_url, "burst", concurrency=concurrency) as consumer:
            crashes += consumer.wait(60) == 9
    assert payloads_of_the_dead(queue) == ["poison"]
    assert queue.counts().living == 0
    assert crashes in (2, 3)  # its first start may not have been reported
