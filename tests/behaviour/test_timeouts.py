"""Timeouts: a callback that takes too long has failed, and in asyncio it is cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from delayq import AsyncDelayQueue, AsyncWorker, ConfigurationError, DelayQueue, NewMessage, Worker
from delayq.values.times import monotonic
from tests.behaviour.places import everywhere
from tests.support.faces import Blocking
from tests.support.waiting import wait_until

threads = pytest.mark.parametrize("face", [Blocking], ids=["blocking"], indirect=True)
TOO_LONG = "TimeoutError: the callback took longer than 200ms"


async def until(condition):
    """Wait until an awaited condition is true."""
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - other processes set it
            await asyncio.sleep(0.005)


@everywhere
def test_callback_that_takes_too_long_fails_with_a_clear_error(open_queue, gate):
    """A message's own timeout counts, then `max_consume_duration` of the queue."""
    seen = []

    def work(message):
        seen.append((message.payload, message.attempt))
        if message.payload != "quick":
            gate.wait(30)

    queue = open_queue(callback=work, events=True, concurrency=3, nack_delay=0.1, max_consume_duration="3000s")
    queue.send_many([NewMessage("own", id="own", timeout=0.2, retries=1), NewMessage("patient", id="patient"), "quick"])
    queue.start_consume()
    wait_until(lambda: queue.counts().dead)

    (dead,) = queue.dead.list().messages
    assert (dead.id, dead.attempts, dead.error, dead.timeout) == ("own", 2, TOO_LONG, 0.2)
    assert ("patient", 2) not in seen
    assert queue.get("patient").state == "active"
    assert queue.stats().totals["nacked"] == 2
    errors = [event.error for event in queue.events() if event.kind == "nacked"]
    assert errors == [TOO_LONG, TOO_LONG]


def test_timeout_comes_in_time_though_the_lease_is_long(open_queue, gate):
    queue = open_queue(callback=lambda _: gate.wait(30), lease="1h", concurrency=2)
    queue.start_consume()
    before = monotonic()
    queue.send_delay_msg("hangs", timeout="400ms", retries=0)
    wait_until(lambda: queue.counts().dead)
    assert monotonic() - before < 10


def test_a_task_may_have_a_timeout_and_its_send_another(open_queue, gate):
    queue = open_queue(concurrency=3, nack_delay=0.1)

    @queue.task(timeout=0.2, retries=0)
    def render(page: int) -> None:
        gate.wait(30 if page else 0)

    render.send(0)
    render.options(id="task").send(1)
    render.options(id="patient", timeout="1h").send(2)
    queue.start_consume()
    wait_until(lambda: queue.counts().dead and queue.stats().totals.get("acked"))

    assert [(dead.id, dead.error, dead.timeout) for dead in queue.dead.list().messages] == [("task", TOO_LONG, None)]
    assert queue.get("patient").timeout == 3600.0
    assert queue.get("patient").state == "active"


@threads
@pytest.mark.parametrize("result", [None, "sent"], ids=["nothing", "a result"])
def test_callback_learns_that_its_time_is_over_and_a_late_success_still_counts(open_queue, result):
    """What it has done is not done again while its retry waits."""
    told, queue = threading.Event(), open_queue(nack_delay="1h")

    @queue.callback
    def work(message):
        wait_until(lambda: message.lease_lost)
        told.set()
        wait_until(lambda: queue.counts().backoff)
        return result

    queue.send_delay_msg("late", id="late", timeout=0.1)
    queue.start_consume()
    assert told.wait(30)
    wait_until(lambda: queue.counts().living == 0)

    totals = queue.stats().totals
    assert (totals["delivered"], totals["nacked"], totals["acked"]) == (1, 1, 1)


@threads
def test_late_failure_of_a_callback_is_no_second_one(open_queue, gate, caplog):
    queue = open_queue(nack_delay="1h")

    @queue.callback
    def work(message):
        gate.wait(30)
        raise ValueError("no such user")

    queue.send_delay_msg("late", id="late", timeout=0.1, retries=2)
    queue.start_consume()
    wait_until(lambda: queue.counts().backoff)
    gate.set()
    wait_until(lambda: "message late failed at attempt 1 after its timeout" in caplog.text)
    queue.stop_consume()

    found = queue.get("late")
    assert (found.retries_left, found.error) == (1, "TimeoutError: the callback took longer than 100ms")
    assert queue.stats().totals["nacked"] == 1


def test_a_timeout_that_is_no_failure_charges_nothing(open_queue, gate):
    def is_failure(error):
        return not isinstance(error, TimeoutError)

    queue = open_queue(callback=lambda _: gate.wait(30), is_failure=is_failure, nack_delay="1h")
    queue.send_delay_msg("slow", id="slow", timeout=0.1, retries=0)
    queue.start_consume()
    wait_until(lambda: queue.counts().backoff)
    assert (queue.get("slow").snoozes, queue.get("slow").attempts) == (1, 0)


def test_a_batch_has_the_time_of_its_most_impatient_message(open_queue, gate):
    queue = open_queue(concurrency=2, nack_delay="1h")
    sizes = []

    def work(messages):
        sizes.append(len(messages))
        gate.wait(30)

    queue.batch_callback(work, most=3)
    queue.send_many([NewMessage(1, timeout="1h"), NewMessage(2, timeout=0.2), NewMessage(3)])
    queue.start_consume()
    wait_until(lambda: queue.counts().backoff == 3)
    assert sizes == [3]


def test_asyncio_callback_is_cancelled_at_its_timeout(redis_url):
    ended = []

    async def work(message):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append((message.id, message.attempt))
            raise

    async def main():
        async with AsyncDelayQueue("reminders", url=redis_url, callback=work, nack_delay=0.1) as queue:
            await queue.send_delay_msg("slow", id="slow", timeout=0.2, retries=1)
            await queue.run(burst=True)
            (dead,) = (await queue.dead.list()).messages
            assert (dead.attempts, dead.error) == (2, TOO_LONG)
            assert (await queue.stats()).totals["nacked"] == 2

    asyncio.run(main())
    assert ended == [("slow", 1), ("slow", 2)]


@pytest.mark.parametrize("pooled", [False, True])
def test_blocking_callback_of_an_asyncio_queue_runs_on_and_the_queue_goes_on(redis_url, gate, pooled):
    seen = []

    def work(message):
        seen.append(message.payload)
        if message.payload == "hangs":
            gate.wait(30)

    async def has_seen(*payloads):
        return seen == [*payloads]

    async def is_empty(queue):
        return (await queue.counts()).living == 0

    async def main():
        async with AsyncDelayQueue("reminders", url=redis_url, callback=work, nack_delay="1h") as queue:
            await queue.send_delay_msg("hangs", id="hangs", timeout=0.2)
            consumer = AsyncWorker({queue: 1}, concurrency=1) if pooled else queue
            await consumer.start_consume()
            await until(lambda: has_seen("hangs"))
            await queue.send_delay_msg("next")
            await until(lambda: has_seen("hangs", "next"))
            assert (await queue.get("hangs")).state == "backoff"
            gate.set()
            await until(lambda: is_empty(queue))  # it has succeeded after all
            await consumer.stop_consume()

    asyncio.run(main())


def test_many_queues_of_one_asyncio_worker_cancel_what_takes_too_long(redis_url):
    cancelled = []

    async def work(message):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(message.queue)
            raise

    async def main():
        names = ("high", "low")
        high, low = (AsyncDelayQueue(name, url=redis_url, callback=work) for name in names)
        async with high, low:
            for queue in (high, low):
                await queue.send_delay_msg("slow", timeout=0.2, retries=0)
            await AsyncWorker({high: 6, low: 1}, concurrency=2).run(burst=True)
            for queue in (high, low):
                assert [dead.error for dead in (await queue.dead.list()).messages] == [TOO_LONG]

    asyncio.run(main())
    assert sorted(cancelled) == ["high", "low"]


def test_many_queues_of_one_worker_replace_what_hangs(redis_url, gate):
    seen = []

    def work(message):
        seen.append(message.payload)
        if message.payload == "hangs":
            gate.wait(30)

    queues = [DelayQueue(name, url=redis_url, callback=work) for name in ("high", "low")]
    queues[0].send_delay_msg("hangs", timeout=0.2, retries=0)
    worker = Worker(dict.fromkeys(queues, 1), concurrency=1)
    worker.start_consume()
    try:
        wait_until(lambda: seen)
        queues[1].send_delay_msg("next")
        wait_until(lambda: "next" in seen)
        wait_until(lambda: queues[0].counts().dead)
        assert [dead.error for dead in queues[0].dead.list().messages] == [TOO_LONG]
    finally:
        gate.set()
        worker.stop_consume()
        for queue in queues:
            queue.close()


@pytest.mark.parametrize("timeout", [0, -1, "soon", True, "5ms", "2000000d", []])
def test_timeout_that_cannot_be_is_refused_with_one_line(queue, timeout):
    def remind(user: int) -> None:
        raise AssertionError(user)

    with pytest.raises(ConfigurationError, match=r"^timeout ") as refused:
        queue.send_delay_msg("x", timeout=timeout)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigurationError, match=r"^timeout "):
        queue.send_many(["y", NewMessage("x", timeout=timeout)])
    with pytest.raises(ConfigurationError, match=r"^timeout "):
        queue.task(timeout=timeout)(remind)
    assert queue.counts().living == 0
