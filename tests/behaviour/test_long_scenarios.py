"""Whole scenarios at full size: a deploy, a pause of two days, and 100,000 results that processes wait for."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from subprocess import PIPE
from time import monotonic

import pytest
from freezegun import freeze_time

from delayq import DelayQueue, NewMessage
from delayq.broker.keys import Keys
from delayq.queue.results.result_waits import RENEW_EVERY
from tests.support.processes import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

WORKER = """
import sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1])
for name in sys.argv[2:]:
    queue.on(name)(lambda message, name=name: print(name, message.payload, flush=True))
queue.start_consume()
sys.stdin.read()
queue.stop_consume()
"""
WAITERS = """
import asyncio, os, sys
import redis.asyncio
from delayq import AsyncDelayQueue

processes, each = int(sys.argv[2]), int(sys.argv[3])

async def main(numbers):
    async with AsyncDelayQueue("reminders", url=sys.argv[1], socket_timeout="1h") as queue:
        results = await asyncio.gather(*(queue.result(f"r{n}", timeout="4m") for n in numbers))
    os._exit(0 if results == [*numbers] else 1)

for first in range(processes):
    if not os.fork():
        asyncio.run(main(range(first, processes * each, processes)))
print(*(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(processes)))
"""
"""They wait for results; only the socket timeout, and the renewal, would end a blocking read that brings nothing."""
MANY = 1_000


def start(stack: ExitStack, script: str, *arguments: str) -> Process:
    process = stack.enter_context(
        Process([sys.executable, "-c", script, *arguments], stdin=PIPE, stdout=PIPE, text=True)
    )
    stack.callback(process.kill)
    return process


def test_worker_of_old_code_among_new_ones_lets_nothing_die(redis_url):
    names = ["mail", "report"] * (MANY // 2)
    with DelayQueue("reminders", url=redis_url) as queue, ExitStack() as stack:
        old = start(stack, WORKER, redis_url, "mail")
        queue.send_many([NewMessage(n, name=names[n]) for n in range(100)])
        wait_until(lambda: queue.stats().totals.get("released", 0) > 0)  # it has got some that it does not know
        new = [start(stack, WORKER, redis_url, "mail", "report") for _ in range(2)]
        queue.send_many([NewMessage(n, n / 1000, name=names[n]) for n in range(100, MANY)])
        wait_until(lambda: queue.counts().living == 0, 120)
        by_old, *by_new = [process.communicate("")[0].splitlines() for process in (old, *new)]
        totals = queue.stats().totals
    assert sorted([*by_old, *by_new[0], *by_new[1]]) == sorted(f"{name} {n}" for n, name in enumerate(names))
    assert {line.split()[0] for line in by_old} == {"mail"}
    assert (totals["acked"], totals.get("nacked", 0), totals.get("dead", 0)) == (MANY, 0, 0)


@pytest.fixture
def clock():
    """A clock that is frozen until a test calls `tick`; the event loop keeps its own."""
    with freeze_time(datetime(2026, 1, 1, tzinfo=UTC), real_asyncio=True, ignore=["_pytest.timing"]) as frozen:
        yield frozen


@pytest.mark.parametrize("url", ["memory"], indirect=True)
@pytest.mark.parametrize("name", [None, "mail"], ids=["queue", "name"])
def test_what_has_waited_for_two_days_of_pause_is_let_go_at_the_pace_asked(clock, open_queue, name):
    queue, seen, many = open_queue(), [], 600

    def process() -> int:
        for message in queue.lease(n=10).messages:
            seen.append(message.payload)
            assert message.ack()
        return len(seen)

    queue.pause(name=name, reason="the provider is down")
    sent = queue.send_many([NewMessage(n, timedelta(days=2) * n / many, name="mail") for n in range(many)])
    for _ in range(48):
        clock.tick(timedelta(hours=1))
        assert process() == 0

    assert queue.resume(name=name, spread="1h")
    started = [process()]
    for _ in range(many):
        clock.tick(timedelta(hours=1) / many)
        started.append(process())

    assert len(sent.new) == many
    assert seen == [*range(many)]
    assert all(abs(count - number) <= 1 for number, count in enumerate(started)), started
    assert queue.counts().living == 0


def test_a_hundred_processes_wait_for_a_thousand_results_each_in_one_blocking_read(redis_url, redis_client):
    processes, keys = 100, Keys.of("delayq", "reminders")

    def reads() -> int:
        return redis_client.info("commandstats").get("cmdstat_xread", {"calls": 0})["calls"]

    def all_wait() -> bool:
        waited, blocked = redis_client.zcard(keys.waited), redis_client.info("clients")["blocked_clients"]
        return (waited, blocked) == (processes * MANY, processes)

    with DelayQueue("reminders", url=redis_url, concurrency=4) as queue, ExitStack() as stack:
        queue.callback(lambda message: message.payload)
        queue.send_many([NewMessage(n, id=f"r{n}", retention="1d") for n in range(processes * MANY)])
        before, began = reads(), monotonic()
        waiters = start(stack, WAITERS, redis_url, str(processes), str(MANY))
        wait_until(all_wait, 120, every=0.1)
        assert reads() - before <= processes * (1 + (monotonic() - began) // RENEW_EVERY)

        queue.run(burst=True)
        assert waiters.communicate()[0].split() == ["0"] * processes
    assert redis_client.info("clients")["blocked_clients"] == 0
