"""Consuming a queue over partitions: one worker takes from all, and leases from those that have something."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from opentelemetry import metrics, trace

from delayq import ConfigurationError, DelayQueue, NewMessage, State, Worker
from delayq.telemetry import instrument
from tests.behaviour.places import everywhere
from tests.partitioned.places import PARTITIONS, claim, ids_of, one_of_each
from tests.support.faces import Blocking
from tests.support.waiting import wait_until
from tests.telemetry.recorded import Recorded


@everywhere
def test_one_consumer_takes_from_all_partitions(queue):
    seen: list[str] = []
    queue.callback(lambda message: seen.append(message.id))
    ids = [f"m{number}" for number in range(200)]
    queue.send_many([NewMessage("x", id=id) for id in ids])

    queue.run(burst=True)

    assert sorted(seen) == sorted(ids)
    assert queue.counts().living == 0


def test_several_workers_share_the_partitions(open_queue):
    seen: list[str] = []
    workers = [open_queue(partitions=PARTITIONS, callback=lambda message: seen.append(message.id)) for _ in range(3)]
    for worker in workers:
        worker.start_consume()
    sent = workers[0].send_many(range(600))
    wait_until(lambda: len(seen) >= 600)
    for worker in workers:
        assert worker.stop_consume()
    assert sorted(seen) == sorted(sent.ids)


def test_a_full_partition_does_not_starve_the_others(open_queue):
    started: list[str] = []
    queue = open_queue(partitions=PARTITIONS, concurrency=1, callback=lambda message: started.append(message.queue))
    crowd, few = ids_of(1, 400), [id for number in (0, 2, 3) for id in ids_of(number, 5)]
    queue.send_many([NewMessage("x", id=id) for id in crowd])
    queue.send_many([NewMessage("x", id=id) for id in few])

    queue.run(burst=True)

    assert len(started) == 415
    last = max(at for at, name in enumerate(started) if not name.endswith("#1"))
    assert last < 120, Counter(started[:100])


def test_a_worker_of_several_queues_refuses_one_with_partitions_and_its_pattern_finds_them(redis_url):
    seen: list[int] = []
    plain = DelayQueue("plain", url=redis_url, callback=lambda message: seen.append(message.payload))
    whole = DelayQueue("many", url=redis_url, partitions=PARTITIONS, callback=lambda _: None)
    text = r"does not serve many, which has partitions: call its own run\(\)"
    with pytest.raises(ConfigurationError, match=text):
        Worker({plain: 1, whole: 2})
    with pytest.raises(ConfigurationError, match=text):
        Worker.matching("*", whole)
    with plain, whole:
        whole.send_many(range(40))
        Worker.matching("many*", plain).run(burst=True)
    assert sorted(seen) == list(range(40))


@pytest.mark.parametrize("number", range(PARTITIONS))
def test_an_idle_consumer_is_woken_by_any_partition(queue, number):
    seen: list[str] = []
    queue.callback(lambda message: seen.append(message.id))
    queue.start_consume()
    for id in ids_of(number, 3):
        queue.send_delay_msg("x", id=id)
        wait_until(lambda id=id: seen[-1:] == [id], 10)
    assert queue.stop_consume()


def test_a_delayed_message_is_delivered_when_it_is_due(queue):
    late: list[float] = []
    queue.callback(lambda message: late.append(time.time() - message.due.timestamp()))
    queue.start_consume()
    queue.send_many([NewMessage("x", id=id, delay=0.5) for id in one_of_each()])
    wait_until(lambda: len(late) == PARTITIONS)
    assert min(late) >= -0.002
    assert max(late) < 5


@everywhere
def test_failed_and_rejected_messages_are_settled_in_their_partitions(queue):
    tried: Counter[str] = Counter()

    def work(message):
        tried[message.id] += 1
        if tried[message.id] == 1:
            raise ValueError("not yet")

    queue.callback(work)
    queue.send_many([NewMessage("x", id=id, retries=0 if id == "last" else 3) for id in [*one_of_each(), "last"]])
    queue.start_consume()
    wait_until(lambda: queue.counts().dead == 1)
    for id in one_of_each():
        wait_until(lambda id=id: (found := queue.get(id)) is None or found.state is State.BACKOFF)
        queue.reschedule(id, 0)
    wait_until(lambda: queue.counts().living == 0)
    assert tried == {**dict.fromkeys(one_of_each(), 2), "last": 1}


@everywhere
def test_lifespan_is_entered_once(open_queue):
    seen: list[str] = []

    def connect():
        seen.append("connected")
        yield "connection"
        seen.append("closed")

    queue = open_queue(partitions=PARTITIONS, lifespan=connect, callback=lambda message: seen.append(message.resources))
    queue.send_many([NewMessage("x", id=id) for id in one_of_each()])
    queue.run(burst=True)
    queue.send_delay_msg("x")
    queue.run(burst=True)

    assert seen == ["connected", *["connection"] * 4, "closed", "connected", "connection", "closed"]


@pytest.mark.parametrize("face", [Blocking], ids=["blocking"], indirect=True)
def test_callbacks_of_all_partitions_share_the_threads(open_queue):
    running, most = 0, 0
    lock = threading.Lock()

    def work(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    queue = open_queue(partitions=PARTITIONS, concurrency=3, callback=work)
    queue.send_many(range(60))
    queue.run(burst=True)
    assert most == 3


# Leases


@everywhere
def test_a_lease_takes_from_all_partitions_what_it_wants(queue):
    queue.send_many([NewMessage("x", id=f"m{n}") for n in range(20)])
    with queue.lease("60s", n=15) as messages:
        assert len(messages) == queue.counts().active == 15
    assert queue.counts().living == 5
    with queue.lease() as message:
        assert message.payload == "x"
    assert len(claim(queue)) == 4


@everywhere
def test_a_lease_of_nothing_is_none_or_empty(queue):
    with queue.lease() as message:
        assert message is None
    with queue.lease(n=5) as messages:
        assert messages == []


@everywhere
def test_what_a_lease_raises_fails_its_messages(queue):
    queue.send_many([NewMessage("x", id=id, retries=0) for id in one_of_each()])
    with pytest.raises(ValueError, match="broken of 4"), queue.lease("60s", n=10) as messages:
        raise ValueError(f"broken of {len(messages)}")
    assert queue.counts().dead == 4


@everywhere
def test_a_lease_waits_for_the_first_message(queue):
    queue.send_delay_msg("soon", 0.3, id="m")
    began = time.monotonic()
    with queue.lease(block=20) as message:
        assert message.id == "m"
    assert time.monotonic() - began < 15


def test_an_expired_lease_lets_another_take_the_message(queue):
    queue.send_delay_msg("x", id="m")
    (first,) = queue.lease("100ms", n=1)
    (again,) = queue.lease("60s", n=1, block=10)
    assert (again.id, again.attempt) == ("m", first.attempt + 1)
    assert again.token > first.token
    assert again.ack()


@pytest.mark.parametrize("n", [0, -1, 1.5, True, 100_000])
def test_wrong_numbers_of_messages_are_refused(queue, n):
    with pytest.raises(ConfigurationError, match="n must"):
        list(queue.lease(n=n))


# Hooks and telemetry


@everywhere
def test_hooks_of_sends_and_callbacks_see_the_queue(queue):
    told, sent = [], []

    @queue.hooks.around_send
    def stamp(sending):
        for message in sending.messages:
            message.headers["tenant"] = "acme"
        yield
        sent.append((sending.queue, len(sending.messages), {one.status for one in sending.sent}))

    queue.hooks.on("acked")(lambda ended: told.append(ended.id))
    queue.send_delay_msg("a", id="a")
    queue.send_many(["b", NewMessage("c", id="c"), *range(10)])
    assert sent == [("reminders", 1, {"new"}), ("reminders", 12, {"new"})]
    assert queue.get("c").headers == {"tenant": "acme"}

    queue.callback(lambda message: None)
    queue.run(burst=True)
    wait_until(lambda: len(told) == 13)
    assert {"a", "c"} < {*told}


@pytest.mark.parametrize("face", [Blocking], ids=["blocking"], indirect=True)
def test_sends_and_callbacks_are_recorded(open_queue, monkeypatch):
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    monkeypatch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)
    recorded = Recorded()
    queue = open_queue(partitions=PARTITIONS, callback=lambda message: None)
    instrument(queue, **recorded.providers)
    queue.send_delay_msg("x", id="m")
    queue.send_many([NewMessage("x", id=id) for id in one_of_each()])
    queue.run(burst=True)

    assert len(recorded.spans("process")) == 5
    assert len(recorded.spans("send")) >= 2
