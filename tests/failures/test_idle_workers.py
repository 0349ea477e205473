"""A due message does not wait beside an idle worker: two processes with default options."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from delayq import DelayQueue
from delayq.broker.keys import Keys
from delayq.streams import StreamQueue
from delayq.worker.parts import presence
from tests.failures.programs import program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

BLOCKING = """
import sys
from delayq import DelayQueue
from delayq.streams import StreamQueue

queue = {kind}("reminders", url=sys.argv[1])

@queue.callback
def work(message):
    if message.payload == "slow":
        print("started", flush=True)
        sys.stdin.readline()

queue.run()
"""
ASYNCIO = """
import asyncio, sys
from delayq import AsyncDelayQueue

async def work(message):
    if message.payload == "slow":
        print("started", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

async def main():
    async with AsyncDelayQueue("reminders", url=sys.argv[1], callback=work) as queue:
        await queue.run()

asyncio.run(main())
"""


@pytest.fixture(params=["DelayQueue", "AsyncDelayQueue", "StreamQueue"])
def workers(request, redis_url):
    """A queue and two processes that consume it; a message "slow" is processed until its worker is told to go on."""
    kind = request.param
    script = ASYNCIO if kind == "AsyncDelayQueue" else BLOCKING.format(kind=kind)
    queue = (StreamQueue if kind == "StreamQueue" else DelayQueue)("reminders", url=redis_url)
    with ExitStack() as stack:
        stack.enter_context(queue)
        yield queue, [stack.enter_context(program(script, redis_url)) for _ in range(2)]


def go_on(worker):
    worker.stdin.write("\n")
    worker.stdin.flush()


def test_two_idle_workers_take_one_of_two_slow_messages_each(workers):
    queue, both = workers

    queue.send_many(["slow", "slow"])

    wait_until(lambda: len({message.consumer for message in queue.list("active").messages}) == 2)
    for worker in both:
        assert worker.stdout.readline() == "started\n"
        go_on(worker)
    wait_until(lambda: queue.counts().living == 0)
    assert queue.counts().dead == 0


@pytest.mark.long
def test_what_was_prefetched_behind_a_slow_callback_is_processed_by_the_other_worker(workers):
    queue, both = workers
    queue.send_many(["quick"] * 1000)  # now both prefetch as much as they ever do
    wait_until(lambda: queue.counts().living == 0)

    queue.send_many(["slow", *["quick"] * 400])

    wait_until(lambda: queue.counts().living == 1)
    (slow,) = queue.list("active").messages
    assert slow.payload == "slow"
    for worker in both:
        go_on(worker)
    wait_until(lambda: queue.counts().living == 0)
    assert queue.counts().dead == 0


@pytest.mark.long
def test_a_wake_up_that_is_lost_delays_no_message_though_idle_workers_look_in_turn(
    redis_url, redis_client, monkeypatch
):
    monkeypatch.setattr(presence, "PRESENCE_EVERY", 0.1)
    delivered, wake = threading.Event(), Keys.of("delayq", "reminders").wake
    thief = threading.Thread(target=redis_client.blpop, args=([wake], 30))
    thief.start()  # Redis serves it before the workers
    wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 1)
    with ExitStack() as stack:
        queues = [stack.enter_context(DelayQueue("reminders", url=redis_url)) for _ in range(8)]
        for queue in queues:
            queue.callback(lambda _: delivered.set())
            queue.start_consume()
        wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 9)
        wait_until(lambda: len(queues[0].workers()) == 8)
        queues[0].send_delay_msg("lost")
        thief.join()
        assert delivered.wait(10)
