"""What has been claimed when a callback closes its name or the queue, or a breaker trips, does not start; uncharged."""

from __future__ import annotations

import asyncio
import sys

import pytest

from delayq import AsyncDelayQueue, Breaker, DelayQueue, NewMessage, RateLimited, Worker
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere
SENT = 1500
BEFORE = 300
"""Quick callbacks that end before: enough for a large prefetch."""


class Limited:
    """A callback that ends at once, and once is refused for an hour."""

    def __init__(self, scope):
        self.scope = scope
        self.seen = []
        self.after = []
        """What has started since."""
        self.refused = False

    def __call__(self, message):
        if self.refused:
            self.after.append(message)
        self.seen.append(message)
        if len(self.seen) == BEFORE:
            self.refused = True
            raise RateLimited("1h", scope=self.scope)


@pytest.fixture
def patient_threads():
    """Threads that do not take over from a callback between its last line and what its exception closes."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5.0)
    yield
    sys.setswitchinterval(interval)


def send(queue, name="sms"):
    queue.send_many([NewMessage(n, id=f"m{n}", name=name, retries=3) for n in range(SENT)])


async def until(queue, throttled):
    async with asyncio.timeout(20):
        while (await queue.counts()).throttled != throttled:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def uncharged(queue, ids):
    """Return whether these messages have lost neither a retry nor an attempt."""
    return all((found.retries_left, found.attempts) == (3, 0) for found in map(queue.get, ids))


@pytest.mark.parametrize("scope", ["name", "queue"])
def test_rate_limited_starts_nothing_more_that_is_claimed_already(open_queue, scope):
    limited = Limited(scope)
    queue = open_queue(callback=limited)
    send(queue)
    queue.start_consume()
    place = "throttled" if scope == "name" else "ready"
    wait_until(lambda: getattr(queue.counts(), place) == SENT - BEFORE)
    wait_until(lambda: [limit for limit in queue.limits.list() if limit.closed_until is not None])
    assert limited.after == []
    waiting = [message.id for message in queue.list(place, limit=1000).messages]
    assert {*waiting} <= {f"m{n}" for n in range(BEFORE, SENT)}
    assert uncharged(queue, waiting)
    if scope == "name":
        queue.send_delay_msg("other", id="o", name="mail")
        wait_until(lambda: limited.after)
        assert [message.id for message in limited.after] == ["o"]


@pytest.mark.usefixtures("patient_threads")
def test_rate_limited_with_several_workers_lets_end_only_what_runs(open_queue):
    limited = Limited("name")
    queue = open_queue(callback=limited, concurrency=4)
    send(queue)
    queue.start_consume()
    wait_until(lambda: limited.refused and queue.counts().active == 0 and queue.counts().throttled > 50)
    assert len(limited.after) <= 3


def test_what_is_claimed_of_other_names_starts_still(open_queue):
    limited = Limited("name")
    queue = open_queue(callback=limited)
    others = SENT - BEFORE
    queue.send_many([NewMessage(n, name="sms") for n in range(BEFORE)])
    queue.send_many([NewMessage(n, name=("mail", "sms")[n % 2]) for n in range(others)])
    queue.start_consume()
    wait_until(lambda: queue.counts().throttled == others // 2)
    assert {message.name for message in limited.after} == {"mail"}
    wait_until(lambda: len(limited.after) == others // 2)


def test_name_starts_again_when_its_time_is_over(open_queue):
    seen = []

    def work(message):
        seen.append(message.id)
        if len(seen) == BEFORE:
            raise RateLimited("300ms")

    queue = open_queue(callback=work)
    send(queue)
    queue.start_consume()
    wait_until(lambda: queue.counts().living == 0)
    assert len(seen) == SENT + 1


def test_rate_limited_in_a_batch_starts_nothing_more(open_queue):
    seen = []
    queue = open_queue()

    @queue.batch_callback
    def work(messages):
        seen.append(len(messages))
        if len(seen) == BEFORE // 100:
            raise RateLimited("1h")

    send(queue)
    queue.start_consume()
    wait_until(lambda: queue.counts().throttled == SENT - BEFORE)
    assert len(seen) == BEFORE // 100


@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize("name", [None, "sms"])
def test_breaker_that_trips_starts_nothing_more_that_is_claimed_already(open_queue, name, concurrency):
    breaker = Breaker(pause="1h")
    queue = open_queue(concurrency=concurrency, breaker=None if name else breaker, nack_delay="1h")
    tried = []

    @queue.task(name="sms", **{"breaker": breaker} if name else {})
    def sms(n: int) -> None:
        tried.append(n)
        raise ConnectionError("away")

    queue.send_many([sms.message(n) for n in range(SENT)])
    queue.start_consume()
    wait_until(lambda: queue.counts().backoff >= 20 and queue.counts().active == 0)
    assert 20 <= len(tried) < 20 + concurrency
    wait_until(lambda: queue.counts().ready + queue.counts().throttled == SENT - len(tried))


def test_breaker_that_is_resumed_starts_all_that_was_claimed_when_it_tripped(open_queue):
    down, tried = True, []

    def work(message):
        tried.append(message.id)
        if down:
            raise ConnectionError("away")

    queue = open_queue(callback=work, breaker=Breaker(pause="1h"), default_retries=0)
    send(queue)
    queue.start_consume()
    wait_until(lambda: queue.limits.list())
    down = False
    assert queue.resume()
    wait_until(lambda: len(set(tried)) == SENT)


def test_worker_of_several_queues_starts_nothing_more_of_one(url):
    limited, other = Limited("queue"), []
    with DelayQueue("sms", url=url, callback=limited) as queue, DelayQueue("mail", url=url) as mail:
        mail.callback(other.append)
        send(queue)
        mail.send_many(range(SENT))
        worker = Worker({queue: 1, mail: 1}, concurrency=1)  # two could run callbacks of one queue at a time
        worker.start_consume()
        wait_until(lambda: limited.refused and queue.counts().active == 0 and len(other) == SENT)
        worker.stop_consume()
    assert limited.after == []


def test_asyncio_starts_nothing_more_that_is_claimed_already(url):
    limited = Limited("name")

    async def main():
        async with AsyncDelayQueue("reminders", url=url, concurrency=10) as queue:

            @queue.callback
            async def work(message):
                limited(message)

            await queue.send_many([NewMessage(n, name="sms") for n in range(SENT)])
            await queue.start_consume()
            await until(queue, SENT - BEFORE)
            await queue.stop_consume()

    asyncio.run(main())
    assert limited.after == []
