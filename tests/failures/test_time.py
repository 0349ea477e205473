"""Time: no client's clock matters, the server's may jump, and local waits use a monotonic clock."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import timedelta

import pytest

from delayq import NewMessage
from delayq.testing.torture.disturbing.libc_shim import NoShimError, build
from tests.failures.programs import one_face, program
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

DAY, HOUR = 86_400, 3_600_000


@pytest.fixture
def shim(tmp_path):
    """The shim that moves the server's clock."""
    try:
        built = build(tmp_path)
    except NoShimError as error:
        pytest.skip(str(error))
    yield built
    built.close()


@pytest.fixture
def shifted(shim):
    """A server whose clock can be moved."""
    with RedisServer("--appendonly", "yes", "--appendfsync", "no", env=shim.env) as server:
        yield server


ELSEWHEN = """
import sys, time

off, real = float(sys.argv[2]), time.time
time.time = lambda: real() + off
time.time_ns = lambda: int((real() + off) * 1e9)

from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], lease="1s", tick="200ms")

@queue.callback
def work(message):
    print(message.payload, message.attempt, flush=True)
    return message.payload != "nacked" or message.attempt == 2

queue.send_delay_msg("at once")
queue.send_delay_msg("soon", "300ms")
queue.send_delay_msg("nacked", "600ms", retries=3)
queue.send_delay_msg("tomorrow", "1d", id="tomorrow")
queue.start_consume()
sys.stdin.readline()
print(queue.stop_consume())
"""


@pytest.mark.long
@one_face
@pytest.mark.parametrize("off", [DAY, -DAY])
def test_process_with_a_wrong_clock_sends_and_consumes_normally(open_queue, url, off):
    queue = open_queue()
    with program(ELSEWHEN, url, str(off)) as process:
        lines = [process.stdout.readline().strip() for _ in range(4)]
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "True\n"
    assert lines == ["at once 1", "soon 1", "nacked 1", "nacked 2"]
    found = queue.get("tomorrow")
    assert timedelta(hours=23) < found.due - queue.stats().at < timedelta(hours=25)
    assert queue.counts().living == 1


def test_local_waits_are_monotonic(open_queue, monkeypatch):
    seen, real, jumps = [], time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + jumps[0])
    queue = open_queue(callback=lambda message: seen.append(message.payload), tick="200ms", lease="1s")
    queue.start_consume()
    for number, jump in enumerate((DAY, -DAY, 365 * DAY, 0)):
        jumps[0] = jump
        began = time.monotonic()
        queue.send_delay_msg(number, "100ms")
        wait_until(lambda number=number: number in seen)
        assert time.monotonic() - began >= 0.1
    began = time.monotonic()
    with open_queue("empty").lease(block=0.3) as message:
        jumps[0] = DAY
        assert message is None
    assert 0.3 <= time.monotonic() - began < 10


@pytest.mark.long
def test_server_clock_set_forward_redelivers_only_messages_in_flight(open_queue, shifted, shim):
    deliveries, early, gate = Counter(), [], threading.Event()

    def work(message):
        deliveries[message.payload] += 1
        early.append(message.lateness)
        if message.payload == "held" and message.attempt == 1:
            gate.wait(20)

    queue = open_queue(url=shifted.url, callback=work, concurrency=4, tick="200ms", lease="30s")
    queue.send_delay_msg("held", retries=3)
    queue.send_many([NewMessage(number, delay=number * 60) for number in range(1, 100)])
    queue.start_consume()
    wait_until(lambda: deliveries["held"] == 1)

    shim.shift(HOUR)
    wait_until(lambda: len(deliveries) == 1 + 60)  # the messages of the skipped hour, and the one in flight
    wait_until(lambda: deliveries["held"] == 2)  # its lease expires by the server's clock
    gate.set()
    wait_until(lambda: queue.counts().living == 99 - 60)
    assert min(early) >= 0
    assert set(deliveries) == {"held", *range(1, 61)}
    assert deliveries.total() <= len(deliveries) + 1
    assert queue.stats().totals["acked"] == 61
    queue.send_delay_msg("later", "200ms")
    wait_until(lambda: deliveries["later"] == 1)


@pytest.mark.long
def test_server_clock_set_back_delays_messages_by_that_time_and_tokens_rise(open_queue, shifted, shim):
    tokens, deliveries = [], Counter()

    def work(message):
        deliveries[message.payload] += 1
        tokens.append(message.token)
        return message.payload != "nacked" or message.attempt == 2

    queue = open_queue(url=shifted.url, callback=work, tick="200ms", lease="1s")
    queue.send_delay_msg("before")
    queue.send_delay_msg("later", "500ms")
    queue.start_consume()
    wait_until(lambda: deliveries["before"])

    shim.shift(-HOUR)
    queue.send_delay_msg("at once")
    queue.send_delay_msg("nacked", retries=2)
    wait_until(lambda: deliveries["at once"] and deliveries["nacked"] == 2)
    assert timedelta(minutes=59) < queue.stats().next_due - queue.stats().at < timedelta(minutes=61)

    shim.shift(0)
    wait_until(lambda: deliveries["later"] == 1)
    wait_until(lambda: queue.counts().living == 0)
    assert deliveries == {"before": 1, "later": 1, "at once": 1, "nacked": 2}
    assert tokens == sorted(set(tokens))


@pytest.mark.long
def test_server_clock_steps_lose_nothing_and_duplicate_only_messages_in_flight(open_queue, shifted, shim):
    deliveries = Counter()

    def work(message):
        deliveries[message.payload] += 1
        time.sleep(0.005)

    queue = open_queue(url=shifted.url, callback=work, concurrency=2, prefetch=5, tick="100ms", lease="1s")
    producer = open_queue(url=shifted.url)
    queue.start_consume()
    steps = [HOUR, 0, -HOUR, 0, 2 * HOUR, 0]
    for round_, step in enumerate(steps):
        producer.send_many(range(100 * round_, 100 * round_ + 100))
        shim.shift(step)
        wait_until(lambda: queue.counts().ready < 50)
    shim.shift(3 * HOUR)  # later than every due time
    wait_until(lambda: set(deliveries) == set(range(600)))
    wait_until(lambda: queue.counts().living == 0)
    assert deliveries.total() - 600 <= (len(steps) + 1) * (2 + 5)
    assert queue.stats().totals["acked"] == 600
    assert {finding.kind for finding in queue.examine(deep=True).findings} <= {"server"}


def test_results_and_settled_ids_go_without_a_consumer_but_not_before_their_time(open_queue, shifted, shim):
    queue = open_queue(url=shifted.url, dedupe_window="1h")
    queue.send_delay_msg("done", id="one", retention="2h", unique_for="30m")
    with queue.lease() as message:
        message.ack({"rows": 7})
    kept = [getattr(queue.context.calls.keys, part) for part in ("done", "completed", "results")]
    with shifted.client() as client:
        open_queue(url=shifted.url, dedupe_window="1d").open()  # a wider window, for what is settled as well
        shim.shift(119 * HOUR // 60)
        assert queue.result("one") == {"rows": 7}
        shim.shift(23 * HOUR)
        assert queue.send_delay_msg("again", id="one").status == "settled"
        assert client.exists(kept[0])
        wait_until(lambda: not client.exists(*kept[1:]))
        shim.shift(27 * HOUR)
        wait_until(lambda: not client.exists(*kept))
        assert queue.send_delay_msg("again", id="one").new
