"""What the consumers of a process count, and what the probes of a worker say."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from delayq import AsyncDelayQueue, AsyncWorker, DelayQueue, Discard, Reject, Snooze, Worker
from delayq.broker.message.attributes import Attributes
from delayq.metrics import process_metrics
from delayq.metrics.process_metrics import WorkerMonitor
from delayq.streams import StreamQueue
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.parts import meter
from delayq.worker.parts.meter import MAX_NAMES, OTHER_NAMES, Meter
from tests.metrics.samples import samples_of
from tests.support.faulty_proxy import FaultyProxy
from tests.support.waiting import wait_until


@pytest.fixture
def monitor(monkeypatch):
    """A monitor of consumers that the test puts into `watched`."""
    monkeypatch.setattr(meter, "_counting", False)
    made = WorkerMonitor()
    made.watched = []
    made.consumers = lambda: made.watched
    return made


@pytest.fixture
def open_queue(redis_url):
    with ExitStack() as stack:
        yield lambda name="jobs", **options: stack.enter_context(
            DelayQueue(name, url=redis_url, tick="50ms", **options)
        )


def outcomes(monitor, queue="jobs"):
    """Return how many messages ended with each outcome, by name if there is one."""
    found = {}
    for family in monitor.collect():
        for sample in family.samples:
            if sample.name == "delayq_worker_messages_total" and sample.labels["queue"] == queue:
                found[sample.labels["name"], sample.labels["outcome"]] = sample.value
    return found


def work(message):
    match message.payload:
        case "fail":
            return False
        case "discard":
            raise Discard("x")
        case "reject":
            raise Reject("x")
        case "snooze":
            raise Snooze("1h")
        case "by hand":
            message.ack()
    return None


def test_outcomes_durations_and_what_is_in_flight(monitor, open_queue):
    queue = open_queue(nack_delay="1h", callback=work)
    for payload in ("ack", "ack", "fail", "discard", "reject", "snooze", "by hand"):
        queue.send_delay_msg(payload)
    monitor.watched.append(queue.start_consume(concurrency=2))
    wait_until(lambda: sum(outcomes(monitor).values()) == 7)
    assert outcomes(monitor) == {
        ("", "acked"): 3, ("", "nacked"): 1, ("", "discarded"): 1, ("", "rejected"): 1, ("", "released"): 1,
    }  # fmt: skip
    found = samples_of(monitor)
    assert found['delayq_worker_delivered_total{queue="jobs"}'] == 7
    assert found['delayq_callback_duration_seconds_count{name="",queue="jobs"}'] == 7
    assert found['delayq_callback_duration_seconds_bucket{le="+Inf",name="",queue="jobs"}'] == 7
    assert found['delayq_callback_duration_seconds_sum{name="",queue="jobs"}'] > 0
    assert found['delayq_worker_in_flight{queue="jobs"}'] == found['delayq_worker_running{queue="jobs"}'] == 0
    assert "process_cpu_seconds_total" in found  # with what the program itself has registered


def test_callbacks_that_run(monitor, open_queue):
    queue, gate = open_queue(), threading.Event()
    remind = queue.task(name="remind")(lambda user: gate.wait(30) and None)
    remind.send("ada")
    monitor.watched.append(queue.start_consume())
    wait_until(lambda: samples_of(monitor).get('delayq_worker_running{queue="jobs"}') == 1)
    assert samples_of(monitor)['delayq_worker_in_flight{queue="jobs"}'] == 1
    gate.set()
    wait_until(lambda: outcomes(monitor) == {("remind", "acked"): 1})
    assert samples_of(monitor)['delayq_callback_duration_seconds_count{name="remind",queue="jobs"}'] == 1


def test_asyncio_and_workers_of_many_queues(monitor, redis_url, open_queue):
    queues = {open_queue(name, callback=work): 1 for name in ("a", "b")}
    for queue in queues:
        queue.send_many(["ack", "ack"])
    worker = Worker(queues)
    monitor.watched.append(worker.start_consume())
    wait_until(lambda: [outcomes(monitor, name) for name in "ab"] == [{("", "acked"): 2}] * 2)
    assert (monitor.dead(), monitor.unready()) == ("", "")
    worker.stop_consume()
    assert monitor.unready() == "draining"

    async def consume(make):
        async def done(message):
            pass

        async with AsyncDelayQueue("c", url=redis_url, callback=done) as queue:
            await queue.send_many([1, 2, 3])
            of = make(queue)
            monitor.watched[:] = [await of.start_consume()]
            while sum(outcomes(monitor, "c").values()) < 3:  # noqa: ASYNC110 - what metrics say is no event
                await asyncio.sleep(0.005)
            assert (outcomes(monitor, "c"), monitor.dead(), monitor.unready()) == ({("", "acked"): 3}, "", "")
            await of.stop_consume()

    asyncio.run(consume(lambda queue: queue))
    asyncio.run(consume(lambda queue: AsyncWorker({queue: 1})))


def test_series_of_queues_that_a_worker_serves_no_more_vanish(monitor, redis_client, open_queue, monkeypatch):
    monkeypatch.setattr("delayq.queue.pooling.matching_queues.REREAD_EVERY", 0.05)
    like = open_queue("tenant-1", callback=work)
    like.send_delay_msg("ack")
    worker = Worker.matching("tenant-*", like)
    monitor.watched.append(worker.start_consume())
    wait_until(lambda: outcomes(monitor, "tenant-1") == {("", "acked"): 1})
    redis_client.delete("delayq:queues", *redis_client.keys("delayq:{tenant-1}:*"))
    wait_until(lambda: not any("tenant-1" in name for name in samples_of(monitor)))
    worker.stop_consume()


def test_streams_are_counted_as_well(monitor, redis_url):
    with StreamQueue("tasks", url=redis_url, callback=work) as queue:
        queue.send("ack")
        monitor.watched.append(queue.start_consume())
        wait_until(lambda: outcomes(monitor, "tasks") == {("", "acked"): 1})


def test_nothing_is_counted_unless_asked(monkeypatch, open_queue):
    monkeypatch.setattr(meter, "_counting", False)
    consuming = open_queue(callback=work).start_consume()
    assert [loop.parts.find(Meter) for loop in consuming._run.driver.loops] == [None]


def test_names_are_bounded():
    counting = Meter()
    for number in range(MAX_NAMES + 50):
        delivery = SimpleNamespace(attributes=Attributes.of(f"name=n{number}".encode()), by_hand="")
        counting.on_completed([Completion([delivery], Disposition.ACK, "", None, 0.2)], 0.0)
    assert len(counting.durations) == MAX_NAMES + 1
    assert counting.ended[OTHER_NAMES, "acked"] == sum(counting.durations[OTHER_NAMES].numbers) == 50


def test_attempt_that_decides_nothing_is_late():
    counting = Meter()
    delivery = SimpleNamespace(attributes=Attributes.of(b""), by_hand="")
    counting.on_completed([Completion([delivery], Disposition.NOTHING, "", None, 0.2)], 0.0)
    assert counting.ended == {("", "late"): 1}


# Probes


def test_a_worker_is_ready_while_it_consumes(monitor, open_queue):
    assert (monitor.dead(), monitor.unready()) == ("", "starting")
    monitor.watched.append(None)
    assert (monitor.dead(), monitor.unready()) == ("", "starting")
    queue, gate = open_queue(), threading.Event()
    queue.callback(lambda message: gate.wait(30) and None)
    queue.send_delay_msg(1)
    monitor.watched[:] = [consuming] = [queue.start_consume()]
    wait_until(lambda: samples_of(monitor)['delayq_worker_running{queue="jobs"}'] == 1)
    assert (monitor.dead(), monitor.unready(), samples_of(monitor)["delayq_worker_up"]) == ("", "", 1)
    consuming.stop()
    assert (monitor.dead(), monitor.unready(), samples_of(monitor)["delayq_worker_up"]) == ("", "draining", 0)
    gate.set()
    assert consuming.wait()
    assert (monitor.dead(), monitor.unready()) == ("", "draining")


@pytest.mark.parametrize("make", [lambda queue: queue, lambda queue: Worker({queue: 1})], ids=["queue", "worker"])
def test_without_redis_it_lives_and_is_not_ready(monitor, redis_url, make, monkeypatch):
    monkeypatch.setattr(process_metrics, "ALIVE_WITHIN", 2.0)
    with FaultyProxy(redis_url) as proxy:
        options = {"url": proxy.url, "tick": "50ms", "socket_timeout": "100ms"}
        with DelayQueue("jobs", callback=work, **options) as queue:
            consumer = make(queue)
            monitor.watched.append(consumer.start_consume())
            wait_until(lambda: not monitor.unready())
            proxy.darken()  # new connections, too: one of them would be answered at once
            wait_until(monitor.unready)
            assert (monitor.dead(), "Redis does not answer" in monitor.unready()) == ("", True)
            proxy.lighten()
            wait_until(lambda: not monitor.unready())
            consumer.stop_consume()


def test_a_blocked_event_loop_is_dead(monitor, redis_url, monkeypatch):
    monkeypatch.setattr(process_metrics, "ALIVE_WITHIN", 0.1)
    gate = threading.Event()

    async def block(message):
        gate.wait(30)

    async def consume():
        async with AsyncDelayQueue("jobs", url=redis_url, callback=block, tick="50ms") as queue:
            await queue.send_delay_msg(1)
            monitor.watched.append(await queue.start_consume())
            await queue.run()

    thread = threading.Thread(target=asyncio.run, args=(consume(),))
    thread.start()
    try:
        wait_until(monitor.dead)
        assert "has not turned for 0 s" in monitor.dead()
    finally:
        gate.set()
        monitor.watched[0].stop()
        thread.join()
