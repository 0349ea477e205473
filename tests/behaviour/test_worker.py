"""A worker consumes several queues with one pool of callbacks: weights, strict order, limits, stops and failures."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import redis

from delayq import (
    AsyncDelayQueue,
    AsyncWorker,
    ConfigurationError,
    DelayQueue,
    NoCallbackError,
    StoppedByCallbackError,
    StopWorker,
    Worker,
)
from delayq.broker.keys import Keys
from delayq.streams import StreamQueue
from tests.support.processes import PATIENCE, Process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
WEIGHTS = {"critical": 6, "default": 3, "low": 1}


class Starts(list):
    """The names of the queues whose callbacks have started, in order."""

    def of(self, queue, wait=lambda message: None):
        """Have a queue note its starts, each followed by `wait`."""

        def work(message):
            self.append(queue.name)
            wait(message)

        queue.callback(work)
        return queue


@pytest.fixture
def starts():
    return Starts()


@pytest.fixture
def open_worker(face, gate):
    """`open_worker({queue: weight}, **options)` makes a worker of the face, which the end of the test stops."""
    workers = []

    def open_worker(queues, **options):
        workers.append(face.worker(queues, **options))
        return workers[-1]

    yield open_worker
    gate.set()
    for worker in workers:
        worker.stop_consume(0)


def fill(queue, count):
    queue.send_many([str(number) for number in range(count)])


@pytest.fixture
def three(open_queue, starts):
    """Three queues with callbacks that note their starts, and their weights."""
    return {starts.of(open_queue(name)): weight for name, weight in WEIGHTS.items()}


@pytest.mark.long
def test_full_queues_start_in_proportion_to_their_weights(three, starts, open_worker):
    for queue in three:
        fill(queue, 7000)
    worker = open_worker(three, concurrency=4)
    worker.start_consume()
    wait_until(lambda: len(starts) >= 10_000, 100)
    worker.stop_consume()
    counts = Counter(starts[:10_000])
    assert all(abs(counts[name] - 1000 * weight) <= 10 * weight for name, weight in WEIGHTS.items()), counts


def test_one_callback_at_a_time_keeps_the_weights_in_every_window(three, starts, open_worker):
    for queue in three:
        fill(queue, 200)
    worker = open_worker(three, concurrency=1)
    worker.start_consume()
    wait_until(lambda: len(starts) >= 300)
    worker.stop_consume()
    windows = [Counter(starts[at : at + 10]) for at in range(290)]
    assert all(window == WEIGHTS for window in windows), starts[:60]


def test_slow_callbacks_keep_the_weights_too(open_queue, starts, open_worker):
    three = {starts.of(open_queue(name), lambda _: time.sleep(0.12)): weight for name, weight in WEIGHTS.items()}
    for queue in three:
        fill(queue, 20)
    worker = open_worker(three, concurrency=5)
    worker.start_consume()
    wait_until(lambda: len(starts) >= 30)
    worker.stop_consume()
    assert Counter(starts[:30]) == {"critical": 18, "default": 9, "low": 3}


def test_an_empty_queue_leaves_its_share_to_the_others(three, starts, open_worker):
    critical, default, low = three
    fill(default, 60)
    fill(low, 60)
    open_worker(three, concurrency=1).run(burst=True)
    assert Counter(starts[:40]) == {"default": 30, "low": 10}
    assert len(starts) == 120
    assert critical.stats().totals.get("acked", 0) == 0


def test_strict_starts_the_first_queues_first(three, starts, open_worker):
    for queue in three:
        fill(queue, 300)
    open_worker(three, concurrency=1, strict=True).run(burst=True)
    assert starts == ["critical"] * 300 + ["default"] * 300 + ["low"] * 300


def test_limits_bound_the_callbacks_of_one_queue(open_queue, open_worker, gate):
    running, most = Counter(), Counter()

    def work(name):
        def work(message):
            running[name] += 1
            most[name] = max(most[name], running[name])
            gate.wait(30)
            running[name] -= 1

        return work

    high, low = open_queue("high"), open_queue("low")
    high.callback(work("high"))
    low.callback(work("low"))
    fill(low, 20)
    worker = open_worker({high: 1, low: 9}, concurrency=8, limits={low: 3})
    worker.start_consume()
    wait_until(lambda: running["low"] == 3)
    fill(high, 20)
    wait_until(lambda: running["high"] == 5)
    assert running == {"low": 3, "high": 5}
    gate.set()
    wait_until(lambda: low.counts().active + low.counts().ready + high.counts().active + high.counts().ready == 0)
    assert most["low"] == 3
    assert most["high"] >= 5


def test_a_burst_in_low_delays_critical_by_one_callback_at_most(open_queue, starts, open_worker):
    critical = starts.of(open_queue("critical"))

    def work(_):
        """Take 30 ms, and on a busy machine for as long as it takes until what is critical is claimed."""
        time.sleep(0.03)
        with suppress(AssertionError):
            wait_until(lambda: critical.counts().pending + critical.counts().ready == 0, 1)

    low = starts.of(open_queue("low"), work)
    fill(low, 200)
    open_worker({critical: 6, low: 1}, concurrency=1).start_consume()
    for _ in range(5):
        wait_until(lambda: starts[-2:] == ["low", "low"])
        before = starts.count("critical")
        critical.send_delay_msg("now")
        sent = len(starts)
        wait_until(lambda before=before: starts.count("critical") > before)
        at = max(number for number, name in enumerate(starts) if name == "critical")
        assert at - sent <= 1, starts


def test_a_queue_that_redis_refuses_holds_up_no_other(open_queue, starts, open_worker, redis_client, caplog):
    broken, good = starts.of(open_queue("broken")), starts.of(open_queue("good"))
    broken.open()
    redis_client.set(Keys.of("delayq", "broken").ready, "no list")
    redis_client.lpush(Keys.of("delayq", "broken").pending, "no zset")
    fill(good, 500)
    open_worker({broken: 9, good: 1}, concurrency=2).start_consume()
    wait_until(lambda: starts.count("good") == 500)
    good.send_delay_msg("one more")
    wait_until(lambda: starts.count("good") == 501)
    assert "WRONGTYPE" in caplog.text


def test_wake_ups_of_the_wrong_type_hold_up_those_of_no_other_queue(open_queue, starts, open_worker, redis_client):
    broken, good = starts.of(open_queue("broken", tick=60)), starts.of(open_queue("good", tick=60))
    broken.open()
    redis_client.set(Keys.of("delayq", "broken").wake, "no list")
    open_worker({broken: 1, good: 1}, concurrency=2).start_consume()
    for count in range(1, 6):
        good.send_delay_msg("now")
        wait_until(lambda count=count: starts.count("good") == count, 20)


def test_a_burst_ends_when_no_queue_has_anything(open_queue, open_worker):
    seen = []
    first, second = open_queue("first"), open_queue("second")

    def forward(message, to):
        seen.append(message.payload)
        if message.payload < 9:
            to.send_delay_msg(message.payload + 1)

    first.callback(lambda message: forward(message, second))
    second.callback(lambda message: forward(message, first))
    first.send_delay_msg(0)
    open_worker({first: 1, second: 1}).run(burst=True)
    assert seen == [*range(10)]


def test_a_stop_releases_what_has_not_started(open_queue, open_worker, busy, gate):
    queues = {open_queue(name): weight for name, weight in WEIGHTS.items()}
    for queue in queues:
        queue.callback(busy)
        fill(queue, 10)
    worker = open_worker(queues, concurrency=4)
    consuming = worker.start_consume()
    wait_until(lambda: len(busy.seen) == 4)
    consuming.stop()
    assert not consuming.wait(0.05)
    gate.set()
    assert consuming.wait(30)
    assert not consuming.running
    assert len(busy.seen) == 4
    assert sum(queue.stats().totals.get("acked", 0) for queue in queues) == 4
    assert sum(queue.counts().ready for queue in queues) == 26


def test_a_callback_can_stop_the_worker(open_queue, starts, open_worker):
    one, other = starts.of(open_queue("one")), open_queue("other")

    def work(message):
        raise StopWorker("no password")

    other.callback(work)
    other.send_delay_msg("stop")
    worker = open_worker({one: 1, other: 1})
    with pytest.raises(StoppedByCallbackError, match="no password"):
        worker.run()
    assert other.counts().ready == 1


def test_a_worker_can_be_started_again_and_knows_that_it_runs(three, starts, open_worker):
    worker = open_worker(three)
    for _ in range(2):
        consuming = worker.start_consume()
        assert consuming.running
        assert consuming.healthy
        count = len(starts)
        next(iter(three)).send_delay_msg("hello")
        wait_until(lambda count=count: len(starts) > count)
        assert worker.stop_consume()
        assert not consuming.running
    assert worker.stop_consume()


@pytest.mark.long
def test_batches_retries_and_schedules_work_as_in_a_queue_alone(open_queue, open_worker):
    sizes, tries, fired = [], [], []
    batches, failing = open_queue("batches"), open_queue("failing", nack_delay=0.05)
    batches.batch_callback(lambda messages: sizes.append(len(messages)), most=10)

    @failing.callback
    def fail(message):
        tries.append(message.attempt)
        return len(tries) > 2

    scheduled = open_queue("scheduled")

    @scheduled.every("1s")
    def tick(message):
        fired.append(message.id)

    fill(batches, 35)
    failing.send_delay_msg("fails")
    open_worker({batches: 1, failing: 2, scheduled: 1}, concurrency=2).start_consume()
    wait_until(lambda: sum(sizes) == 35 and tries == [1, 2, 3] and fired)
    assert max(sizes) == 10


@pytest.mark.long
def test_queues_on_two_servers_share_one_pool(open_queue, starts, open_worker, start_redis, redis_url):
    other = start_redis()
    here, there = starts.of(open_queue("here")), starts.of(open_queue("there", url=other.url, deadline=1))
    fill(here, 3000)
    fill(there, 3000)
    worker = open_worker({here: 1, there: 1}, concurrency=2)
    worker.start_consume()
    wait_until(lambda: len(starts) == 6000)
    other.kill()
    fill(here, 10)
    wait_until(lambda: len(starts) == 6010)
    assert worker.stop_consume(1)


def called(client, *names):
    """Return how often commands have been called; none of these is called within scripts."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names)


@pytest.mark.long
@pytest.mark.parametrize("count", [20, 1000])
def test_an_idle_worker_of_many_queues_asks_little_and_needs_few_threads(redis_url, redis_client, count):
    with redis.Redis.from_url(redis_url) as client:
        queues = [DelayQueue(f"queue{number}", redis=client, callback=print) for number in range(count)]
        before = threading.active_count()
        worker, scripts = Worker(dict.fromkeys(queues, 1), concurrency=20), called(redis_client, "evalsha")
        worker.start_consume()
        wait_until(lambda: called(redis_client, "evalsha") >= scripts + 2 * count)  # the first turn of each
        time.sleep(0.5)
        commands = redis_client.info("stats")["total_commands_processed"]
        time.sleep(3)
        commands = redis_client.info("stats")["total_commands_processed"] - commands
        threads = threading.active_count() - before
        worker.stop_consume()
    assert commands <= 3 * (5 + count // 40)
    assert threads <= 2 + count // 100


@pytest.mark.long
def test_queues_whose_messages_are_due_much_later_are_looked_at_some_at_a_time(redis_url, redis_client):
    with redis.Redis.from_url(redis_url) as client:
        queues = [DelayQueue(f"queue{number}", redis=client, callback=print) for number in range(200)]
        for queue in queues:
            queue.send_delay_msg("later", "7d")
        worker, waits = Worker(dict.fromkeys(queues, 1), concurrency=20), called(redis_client, "blpop")
        worker.start_consume()
        wait_until(lambda: called(redis_client, "blpop") >= waits + 200)  # the wake-ups of the sends are taken
        time.sleep(0.5)
        commands = called(redis_client, "evalsha", "blpop")
        time.sleep(3)
        commands = called(redis_client, "evalsha", "blpop") - commands
        worker.stop_consume()
    assert commands <= 3 * 45


@pytest.mark.long
def test_messages_of_a_thousand_queues_are_delivered_when_they_are_due(redis_url):
    late = []

    def work(message):
        late.append((datetime.now(UTC) - message.due).total_seconds())

    with redis.Redis.from_url(redis_url) as client:
        queues = [DelayQueue(f"queue{number}", redis=client, callback=work, tick="20s") for number in range(1000)]
        worker = Worker(dict.fromkeys(queues, 1), concurrency=20)
        worker.start_consume()
        for number, queue in enumerate(queues):
            queue.send_delay_msg("x", (number % 10) / 10)
        wait_until(lambda: len(late) == 1000)
        worker.stop_consume()
    assert min(late) >= 0
    assert sorted(late)[500] < 5  # far from a tick, on any machine


@pytest.mark.long
@pytest.mark.parametrize("later", [False, True], ids=["empty", "with a message for later"])
def test_a_lost_wake_up_is_noticed_within_a_tick(open_queue, starts, open_worker, redis_client, later):
    queues = [starts.of(open_queue(f"queue{number}")) for number in range(3)]
    if later:
        queues[0].send_delay_msg("later", "7d")
    queues[0].open()
    wake = Keys.of("delayq", "queue0").wake
    redis_client.delete(wake)
    thief = threading.Thread(target=redis_client.blpop, args=([wake], 20))
    thief.start()
    wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 1)  # Redis serves it before the worker
    open_worker(dict.fromkeys(queues, 1), concurrency=2).start_consume()
    wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 2)
    queues[0].send_delay_msg("now")
    thief.join()
    wait_until(lambda: starts == ["queue0"])


PROGRAM = """
import sys, time
from delayq import DelayQueue, Worker

def work(message):
    print(f"{message.queue} {message.payload}\\n", end="", flush=True)
    time.sleep(0.02)

queues = [DelayQueue(name, url=sys.argv[1], callback=work) for name in ("critical", "default", "low")]
Worker(dict(zip(queues, (6, 3, 1))), concurrency=5).run()
print("left", flush=True)
"""
ASYNCIO = """
import asyncio, sys
from delayq import AsyncDelayQueue, AsyncWorker

async def work(message):
    print(message.queue, message.payload, flush=True)
    await asyncio.sleep(0.02)

async def main():
    queues = [AsyncDelayQueue(name, url=sys.argv[1], callback=work) for name in ("critical", "default", "low")]
    await AsyncWorker(dict(zip(queues, (6, 3, 1))), concurrency=5).run()
    for queue in queues:
        await queue.close()
    print("left", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [PROGRAM, ASYNCIO], ids=["blocking", "asyncio"])
def test_sigterm_loses_nothing_and_releases_what_has_not_started(redis_url, program):
    queues = [DelayQueue(name, url=redis_url) for name in WEIGHTS]
    for queue in queues:
        fill(queue, 500)
    with Process([sys.executable, "-c", program, redis_url], stdout=subprocess.PIPE) as process:
        lines = [process.stdout.readline().decode().split() for _ in range(100)]
        process.send_signal(signal.SIGTERM)
        out = process.stdout.read()  # `communicate` would lose what `readline` has read ahead
        process.wait(PATIENCE)
    lines += [line.split() for line in out.decode().splitlines()]
    assert (process.returncode, lines.pop()) == (0, ["left"])
    started = Counter(name for name, _ in lines)
    assert len(set(map(tuple, lines))) == len(lines)
    for queue in queues:
        counts = queue.counts()
        assert (counts.ready + counts.retry, counts.active) == (500 - started[queue.name], 0)
        assert queue.stats().totals.get("acked", 0) == started[queue.name]
        assert not any(message.attempts for message in queue.list("ready").messages)
        queue.close()


def test_a_stream_queue_can_be_served_beside_a_delay_queue(redis_url, starts):
    with DelayQueue("delays", url=redis_url) as delays, StreamQueue("stream", url=redis_url) as stream:
        starts.of(delays)
        starts.of(stream)
        worker = Worker({delays: 1, stream: 1}, concurrency=2)
        worker.start_consume()
        for count in range(1, 4):
            delays.send_delay_msg("a")
            stream.send("b")
            wait_until(lambda count=count: Counter(starts) == {"delays": count, "stream": count})
        assert worker.stop_consume()


def bad(queue, other, silent):
    yield {}, {}, "at least one queue"
    yield [queue], {}, "with their weights"
    yield {queue: 0}, {}, "weight of one"
    yield {queue: -1}, {}, "weight of one"
    yield {queue: True}, {}, "weight of one"
    yield {queue: 1.5}, {}, "weight of one"
    yield {queue: 1001}, {}, "from 1 to 1000"
    yield {"one": 1}, {}, "must be"
    yield {silent: 1}, {}, "has no callback"
    yield {queue: 1, type(queue)("one", url=queue._options["url"], callback=lambda _: None): 1}, {}, "given twice"
    yield {queue: 1}, {"limits": {other: 1}}, "does not serve"
    yield {queue: 1}, {"limits": {queue: 0}}, "limit of one"
    yield {queue: 1}, {"limits": {queue: True}}, "limit of one"
    yield {queue: 1}, {"limits": 5}, "limits must be a mapping"
    yield {queue: 1}, {"limits": {"one": 5}}, "does not serve"
    yield {queue: 1}, {"concurrency": 0}, "concurrency"
    yield {queue: 1}, {"concurrency": True}, "concurrency"
    yield {queue: 1}, {"strict": 1}, "strict"


@pytest.mark.parametrize(("kind", "worker"), [(DelayQueue, Worker), (AsyncDelayQueue, AsyncWorker)])
def test_wrong_options_are_refused_with_what_to_do(kind, worker):
    nowhere = "redis://127.0.0.1:1"
    queue, other = (kind(name, url=nowhere, callback=lambda message: None) for name in ("one", "other"))
    for queues, options, text in bad(queue, other, kind("silent", url=nowhere)):
        with pytest.raises((ConfigurationError, NoCallbackError), match=text):
            worker(queues, **options)


def test_a_queue_of_the_other_kind_is_refused():
    with pytest.raises(ConfigurationError, match="DelayQueue or a StreamQueue"):
        Worker({AsyncDelayQueue("one", callback=lambda message: None): 1})
    with pytest.raises(ConfigurationError, match="AsyncDelayQueue or AsyncStreamQueue"):
        AsyncWorker({DelayQueue("one", callback=lambda message: None): 1})


def test_a_busy_worker_claims_nothing_ahead_before_it_knows_how_long_callbacks_take(open_queue, open_worker, busy):
    queues = {open_queue(name): weight for name, weight in WEIGHTS.items()}
    for queue in queues:
        queue.callback(busy)
    critical, default, low = queues
    open_worker(queues, concurrency=1).start_consume()
    low.send_delay_msg("first")
    wait_until(lambda: len(busy.seen) == 1)
    for queue in (critical, default):  # an idle worker could start them
        queue.send_delay_msg("second")
        wait_until(lambda queue=queue: queue.counts().ready == 1)  # the worker has looked
    assert (critical.counts().active, default.counts().active, low.counts().active) == (0, 0, 1)
    assert not any(queue.stats().totals.get("delivered") for queue in (critical, default))  # nor released since
