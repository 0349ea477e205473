"""Redis loses everything while processes run: they open their queue again. Processes with default options."""

from __future__ import annotations

import itertools
import threading

import pytest
import redis

from delayq import DelayQueue
from delayq.broker.keys import Keys, registry
from tests.failures.programs import program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

CONSUMER = """
import sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], events=True, dedupe_window="1d")

@queue.every("1s")
def regularly(message):
    print(message.token, flush=True)

queue.run()
"""
ASYNC_CONSUMER = """
import asyncio, sys
from delayq import AsyncDelayQueue

async def main():
    async with AsyncDelayQueue("reminders", url=sys.argv[1], events=True, dedupe_window="1d") as queue:
        @queue.every("1s")
        async def regularly(message):
            print(message.token, flush=True)

        await queue.run()

asyncio.run(main())
"""
PRODUCER = """
import sys, time
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], events=True, dedupe_window="1d")
while True:
    queue.send_delay_msg("later", "1h")
    print("sent", flush=True)
    time.sleep(0.1)
"""
ASYNC_PRODUCER = """
import asyncio, sys
from delayq import AsyncDelayQueue

async def main():
    async with AsyncDelayQueue("reminders", url=sys.argv[1], events=True, dedupe_window="1d") as queue:
        while True:
            await queue.send_delay_msg("later", "1h")
            print("sent", flush=True)
            await asyncio.sleep(0.1)

asyncio.run(main())
"""
WITHIN = 60
"""Seconds within which a process notices."""


def flush(server):
    with server.client() as client:
        client.flushall()


def restart_empty(server):
    server.kill()
    server.start()


@pytest.fixture(params=[flush, restart_empty])
def lose(request, start_redis):
    """A server, and a function that makes it lose its data."""
    server = start_redis()
    return server, lambda: request.param(server)


def is_open(server):
    """Return whether the queue has what both programs declare."""
    keys = Keys.of("delayq", "reminders")
    with server.client() as client:
        meta = client.hgetall(keys.meta)
        listed = client.sismember(registry("delayq"), "reminders")
    return bool(meta.keys() >= {b"schema", b"events", b"dedupe"} and listed)


@pytest.mark.long
@pytest.mark.parametrize("script", [CONSUMER, ASYNC_CONSUMER], ids=["blocking", "asyncio"])
def test_consumer_opens_its_queue_again_and_its_schedules_go_on(lose, script):
    server, lose_everything = lose
    with program(script, server.url) as consumer:
        tokens = [int(consumer.stdout.readline()) for _ in range(2)]
        lose_everything()
        wait_until(lambda: is_open(server), WITHIN)
        with server.client() as client:
            seconds, micros = client.time()
        tokens += itertools.takewhile(lambda token: token < seconds * 1_000_000 + micros, map(int, consumer.stdout))
        tokens.append(int(consumer.stdout.readline()))
        with DelayQueue("reminders", url=server.url) as queue:
            assert [schedule.name for schedule in queue.schedules.list()] == ["regularly"]
            wait_until(lambda: "acked" in {event.kind for event in queue.events()})
    assert tokens == sorted(set(tokens))  # each is higher than all before, also those before the loss


@pytest.mark.long
@pytest.mark.parametrize("script", [PRODUCER, ASYNC_PRODUCER], ids=["blocking", "asyncio"])
def test_producer_opens_its_queue_again(lose, script):
    server, lose_everything = lose
    with program(script, server.url) as producer:
        producer.stdout.readline()
        reading = threading.Thread(target=producer.stdout.read, daemon=True)
        reading.start()
        lose_everything()
        wait_until(lambda: is_open(server), WITHIN)
        producer.kill()
        reading.join()


@pytest.mark.long
def test_what_others_have_declared_is_left_alone(redis_url):
    # A process that opens the queue first does not keep the others from declaring what is theirs.
    with redis.Redis.from_url(redis_url) as client, program(CONSUMER, redis_url) as consumer:
        consumer.stdout.readline()
        client.flushall()
        with DelayQueue("reminders", url=redis_url) as queue:
            queue.send_delay_msg("later", "1h")
            wait_until(lambda: queue.schedules.list(), WITHIN)
            assert {b"events", b"dedupe"} <= client.hgetall(Keys.of("delayq", "reminders").meta).keys()
            assert queue.counts().pending >= 1
