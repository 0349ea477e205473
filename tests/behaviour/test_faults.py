"""Faults: servers that die, connections that break, workers that are killed, processes that fork."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import redis

from delayq import AsyncDelayQueue, DelayQueue, NewMessage, NoReplyError, OutcomeUnknown
from delayq.streams import AsyncStreamQueue
from delayq.worker.drivers.wakeup import AsyncListener
from tests.support.processes import Process
from tests.support.waiting import wait_until, wait_until_started

pytestmark = pytest.mark.faults

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
WAKES = "delayq:{tasks}:wake"
SOURCE = str(Path(__file__).parents[2])


def insist(send):
    """Repeat a call until its answer is known."""
    while True:
        try:
            return send()
        except NoReplyError:
            continue


# The server


def test_no_message_is_lost_when_the_server_is_killed_and_restarted(open_queue, start_redis):
    server = start_redis(*ALWAYS)
    deliveries, sent, done = Counter(), [], threading.Event()
    consumer = open_queue(
        url=server.url, callback=lambda message: deliveries.update([message.payload]), concurrency=4, deadline="500ms"
    )
    producer = open_queue(url=server.url, deadline="500ms")

    def produce():
        number = 0
        while not done.is_set():
            insist(lambda number=number: producer.send_delay_msg(number, number % 3 * 0.1, id=f"m{number}"))
            sent.append(number)
            number += 1

    consumer.start_consume()
    producing = threading.Thread(target=produce)
    producing.start()
    try:
        for _ in range(3):
            so_far = len(sent)
            wait_until(lambda so_far=so_far: len(sent) > so_far + 50)
            server.kill()
            server.start()
    finally:
        done.set()
        producing.join(20)

    wait_until(lambda: set(deliveries) == set(sent))
    wait_until(lambda: consumer.counts().living == 0)
    assert consumer.counts().dead == 0
    assert sum(deliveries.values()) <= len(sent) + 3 * (4 + 500)  # duplicates: messages in flight at each kill
    assert consumer.stats().totals["acked"] == len(sent)


def test_settlement_that_could_not_be_sent_is_sent_again(open_queue, start_redis, gate):
    server, attempts, ended = start_redis(*ALWAYS), [], []

    def work(message):
        attempts.append(message.attempt)
        gate.wait(30)
        ended.append(message.id)

    queue = open_queue(url=server.url, callback=work, deadline="500ms")
    queue.send_delay_msg("hello", id="m")
    queue.start_consume()
    wait_until(lambda: attempts)

    server.kill()
    gate.set()
    wait_until(lambda: ended)
    server.start()

    wait_until(lambda: queue.get("m") is None)
    assert attempts == [1]
    assert queue.stats().totals["acked"] == 1


@pytest.mark.parametrize("act", ["ack", "nack"])
def test_consumer_repeats_a_settlement_by_hand_that_failed(open_queue, start_redis, gate, act):
    server, began, failures = start_redis(*ALWAYS), threading.Event(), []

    def work(message):
        began.set()
        gate.wait(30)
        if message.attempt == 1:
            try:
                getattr(message, act)()
            except NoReplyError as error:
                failures.append(error)

    queue = open_queue(url=server.url, callback=work, deadline="200ms")
    queue.send_delay_msg("hello", id="m")
    queue.start_consume()
    began.wait(30)

    server.kill()
    gate.set()
    wait_until(lambda: failures)
    server.start()

    wait_until(lambda: queue.get("m") is None, 20)  # long before its lease runs out
    assert queue.stats().totals["delivered"] == 1


def test_send_to_a_dead_server_raises_an_error(open_queue, start_redis):
    server = start_redis(*ALWAYS)
    queue = open_queue(url=server.url, deadline="200ms")
    queue.counts()
    server.kill()

    with pytest.raises(NoReplyError):
        queue.send_delay_msg("hello", id="m")

    server.start()
    assert queue.send_delay_msg("hello", id="m").new


@pytest.mark.long
def test_send_waits_for_a_frozen_server(open_queue, start_redis):
    server, seen = start_redis(), []
    queue = open_queue(url=server.url, callback=lambda message: seen.append(message.payload), socket_timeout="300ms")
    queue.start_consume()
    queue.send_delay_msg("before")
    wait_until(lambda: seen == ["before"])

    server.pause()
    sending = threading.Thread(target=lambda: queue.send_delay_msg("meanwhile"))
    sending.start()
    assert not sending.join(1)
    server.resume()

    sending.join(30)
    wait_until(lambda: seen == ["before", "meanwhile"])
    assert queue.stats().totals["sent"] == 2


@pytest.mark.parametrize(
    ("kind", "sent", "left"),
    [
        (AsyncDelayQueue, ("PING",), {"ready": 0, "active": 0, "wakes": 1}),
        (AsyncStreamQueue, ("XADD", "tasks", "*", "payload", "x"), {"ready": 1, "active": 0, "wakes": 0}),
    ],
    ids=["queue", "stream"],
)
def test_what_a_busy_server_gives_to_a_consumer_that_has_stopped_is_passed_on(start_redis, kind, sent, left):
    # The server reads at once: the call that waits, what passes a wake-up on, and a message.
    async def listen_and_stop(server, client):
        async with kind("tasks", url=server.url) as queue:
            await asyncio.gather(*(queue.counts() for _ in range(2)))  # opens a connection for each call
            await queue.executor.call(queue.context.calls.wake())
            client.delete(WAKES)
            listener = AsyncListener(queue.executor, queue.context.calls, lambda: None, print)
            server.pause()
            await asyncio.to_thread(os.waitpid, server.pid, os.WUNTRACED)  # until it has stopped
            listener.listen(on=True)
            await _steps(20)
            closing = asyncio.create_task(listener.close())
            await _steps(20)
            assert listener._task.done()
            client.connection.send_command(*sent)
            server.resume()
            await closing
            client.connection.read_response()
            counts = await queue.counts()
            return {"ready": counts.ready, "active": counts.active, "wakes": client.llen(WAKES)}

    async def _steps(n):
        for _ in range(n):
            await asyncio.sleep(0)

    server = start_redis()
    with redis.Redis.from_url(server.url, single_connection_client=True) as client:
        if kind is AsyncStreamQueue:
            client.xgroup_create("tasks", "workers", "0", mkstream=True)
        assert asyncio.run(listen_and_stop(server, client)) == left


LEFT = {"ready": 1, "active": 0, "wakes": 0}


async def _let_run(n=20):
    for _ in range(n):
        await asyncio.sleep(0)


async def _freeze(server):
    server.pause()
    await asyncio.to_thread(os.waitpid, server.pid, os.WUNTRACED)  # until it has stopped


async def _left(queue, client):
    counts = await queue.counts()
    return {"ready": counts.ready, "active": counts.active, "wakes": client.llen(WAKES)}


@pytest.mark.parametrize(
    ("kind", "sent", "left"),
    [
        (AsyncDelayQueue, ("RPUSH", WAKES, "1"), {"ready": 0, "active": 0, "wakes": 1}),
        (AsyncStreamQueue, ("XADD", "tasks", "*", "payload", "x"), LEFT),
    ],
    ids=["queue", "stream"],
)
def test_what_a_busy_server_gives_to_a_cancelled_lease_is_passed_on(start_redis, kind, sent, left):
    async def wait_and_cancel(server, client):
        async with kind("tasks", url=server.url) as queue:
            await asyncio.gather(*(queue.counts() for _ in range(2)))
            waiting = asyncio.create_task(_claim(queue))
            while client.info("clients")["blocked_clients"] == 0:  # noqa: ASYNC110 - until the server says so
                await asyncio.sleep(0.01)
            await _freeze(server)
            client.connection.send_command(*sent)
            waiting.cancel()
            await _let_run()
            server.resume()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            client.connection.read_response()
            return await _left(queue, client)

    async def _claim(queue):
        await queue.lease(block=10)

    server = start_redis()
    with redis.Redis.from_url(server.url, single_connection_client=True) as client:
        assert asyncio.run(wait_and_cancel(server, client)) == left


@pytest.mark.parametrize("kind", [AsyncDelayQueue, AsyncStreamQueue], ids=["queue", "stream"])
@pytest.mark.parametrize("n", [None, 3])
def test_what_a_lease_has_claimed_when_it_is_cancelled_is_released(start_redis, kind, n):
    async def claim_and_cancel(server, client):
        async with kind("tasks", url=server.url) as queue:
            await asyncio.gather(*(queue.lease() for _ in range(2)))  # opens connections, and loads the scripts
            ids = (await queue.send_many(range(2))).ids
            client.delete(WAKES)
            await _freeze(server)
            lease = queue.lease(block=10, n=n)
            claiming = asyncio.create_task(lease.__aenter__())
            await _let_run()
            claiming.cancel()
            await _let_run()
            server.resume()
            with pytest.raises(asyncio.CancelledError):
                await claiming
            counts = await queue.counts()
            assert (counts.living, counts.active) == (2, 0)
            return [(message.id, message.attempt, message.retries_left) async for message in _claimed(queue)], ids

    async def _claimed(queue):
        async with queue.lease(n=2) as messages:
            for message in messages:
                yield message

    server = start_redis()
    with redis.Redis.from_url(server.url) as client:
        claimed, ids = asyncio.run(claim_and_cancel(server, client))
    assert sorted(claimed) == sorted((id, 1, 3) for id in ids)


def test_lease_that_is_cancelled_by_a_timeout_raises_it_and_claims_nothing(start_redis):
    async def main(url):
        async with AsyncDelayQueue("tasks", url=url) as queue:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.lease(block=30), 0.2)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), queue.lease(block=30):
                    pass
            await queue.send_delay_msg("x")
            async with queue.lease(block=5) as message:
                return message.payload

    assert asyncio.run(main(start_redis().url)) == "x"


def test_cancelled_lease_gives_up_on_a_server_that_does_not_answer(start_redis):
    async def main(server):
        async with AsyncDelayQueue("tasks", url=server.url, socket_timeout="100ms") as queue:
            await queue.counts()
            await _freeze(server)
            claiming = asyncio.create_task(queue.lease(block=10).__aenter__())
            await _let_run()
            began = time.monotonic()
            claiming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claiming
            server.resume()
            return time.monotonic() - began

    assert asyncio.run(main(start_redis())) < 10  # its deadline is 30 s


def test_send_can_be_repeated_after_an_unknown_outcome(open_queue, start_redis):
    server = start_redis()
    queue = open_queue(url=server.url, socket_timeout="100ms", deadline="300ms")
    queue.send_delay_msg("first", 60)

    server.pause()
    with pytest.raises(OutcomeUnknown):
        queue.send_delay_msg("hello", 60, id="m")
    server.resume()

    patient = open_queue(url=server.url)
    patient.send_delay_msg("hello", 60, id="m")
    assert patient.counts().pending == 2


@pytest.mark.long
def test_cut_connections_lose_and_duplicate_no_message(open_queue, redis_client):
    deliveries, done = Counter(), threading.Event()
    queue = open_queue(callback=lambda message: deliveries.update([message.payload]), concurrency=4)

    def cut():
        while not done.is_set():
            redis_client.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.01)

    cutting = threading.Thread(target=cut)
    queue.start_consume()
    cutting.start()
    try:
        for number in range(300):
            insist(lambda number=number: queue.send_delay_msg(number, id=f"m{number}"))
    finally:
        done.set()
        cutting.join()

    wait_until(lambda: queue.counts().living == 0)
    assert deliveries == dict.fromkeys(range(300), 1)
    assert queue.stats().totals["acked"] == 300


def test_flushed_scripts_are_loaded_again(open_queue, redis_client):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    queue.start_consume()

    for number in range(5):
        redis_client.script_flush()
        queue.send_delay_msg(number)
        wait_until(lambda number=number: seen == [*range(number + 1)])


def test_consumer_survives_a_flushed_server(open_queue, redis_client, gate):
    seen = []

    def work(message):
        seen.append(message.payload)
        gate.wait(30)

    queue = open_queue(callback=work)
    queue.start_consume()
    queue.send_delay_msg("lost")
    wait_until(lambda: seen == ["lost"])

    redis_client.flushall()
    gate.set()
    queue.send_delay_msg("after")

    wait_until(lambda: seen == ["lost", "after"])
    wait_until(lambda: queue.counts().living == 0)


def test_key_of_wrong_type_is_logged_and_the_consumer_continues_once_it_is_fixed(open_queue, redis_client, caplog):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload), tick="100ms")
    queue.start_consume()
    queue.send_delay_msg("first")
    wait_until(lambda: seen == ["first"])

    redis_client.set("delayq:{reminders}:ready", "broken")
    wait_until(lambda: "WRONGTYPE" in caplog.text)
    redis_client.delete("delayq:{reminders}:ready")

    queue.send_delay_msg("second")
    wait_until(lambda: seen == ["first", "second"])


def test_stop_does_not_wait_for_a_dead_server(open_queue, start_redis, busy):
    server = start_redis(*ALWAYS)
    queue = open_queue(url=server.url, callback=busy)
    queue.send_delay_msg("hello")
    queue.start_consume()
    wait_until(lambda: busy.seen)
    server.kill()
    began = time.monotonic()

    assert queue.stop_consume(grace="300ms")

    assert time.monotonic() - began < 10


# The worker

WORKER = """
import logging, sys, time
from delayq import DelayQueue

logging.getLogger("delayq.consumer").addHandler(logging.StreamHandler(sys.stdout))

def work(message):
    print("started", message.attempt, flush=True)
    time.sleep(60)

DelayQueue("reminders", url=sys.argv[1], lease="1s", callback=work).run()
"""


def start(script, *arguments):
    return Process(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_message_of_a_killed_worker_is_redelivered_when_its_lease_expires(open_queue, url):
    seen = []
    queue = open_queue(callback=lambda message: seen.append((message.attempt, time.monotonic())))
    queue.send_delay_msg("hello", retries=3, id="m")
    with start(WORKER, url) as worker:
        assert worker.stdout.readline() == "started 1\n"
        wait_until_started(url, "m")
        queue.start_consume()
        worker.kill()
        killed = time.monotonic()

    wait_until(lambda: seen)
    ((attempt, again),) = seen
    assert attempt == 2
    assert again - killed < 20  # some leeway for a busy machine; a lease is 30 s unless it is set


@pytest.mark.long
def test_worker_frozen_past_its_lease_cannot_settle_a_redelivered_message(open_queue, url):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.attempt))
    queue.send_delay_msg("hello", id="m")
    with start(WORKER.replace("sleep(60)", "sleep(0.5)"), url) as worker:
        assert worker.stdout.readline() == "started 1\n"
        wait_until_started(url, "m")
        worker.send_signal(signal.SIGSTOP)
        queue.start_consume()
        wait_until(lambda: queue.counts().living == 0)
        worker.send_signal(signal.SIGCONT)
        assert any("settled elsewhere before this ack" in line for line in worker.stdout)
        worker.kill()

    assert seen == [2]
    assert queue.stats().totals["acked"] == 1


@pytest.mark.long
def test_message_that_kills_its_workers_goes_to_the_dead_letter(open_queue, url):
    queue = open_queue()
    queue.send_delay_msg("poison", retries=1, id="m")
    script = WORKER.replace("time.sleep(60)", "import os; os._exit(9)")
    for attempt in (1, 1, 2):  # not charged where its start was not reported, which it is when it is delivered again
        with start(script, url) as worker:
            assert next(line for line in worker.stdout if line.startswith("started")) == f"started {attempt}\n"

    with queue.lease(block="1500ms") as message:
        assert message is None
    message = queue.get("m")
    assert (message.state, message.attempts, message.error) == ("dead", 2, "lease expired")


@pytest.mark.long
def test_interrupt_finishes_the_running_callback_and_ends_run(open_queue, url):
    queue = open_queue()
    queue.send_many(["first", "second"])
    script = WORKER.replace("sleep(60)", "sleep(0.3)").replace(".run()", ".run(); print('ended', flush=True)")
    with start(script, url) as worker:
        assert worker.stdout.readline() == "started 1\n"
        worker.send_signal(signal.SIGINT)
        assert worker.stdout.readline().startswith("SIGINT: finishing running callbacks for up to ")
        assert worker.stdout.readline() == "ended\n"

    assert worker.returncode == 0
    counts = queue.counts()
    assert (counts.living, counts.ready) == (1, 1)
    assert queue.stats().totals["acked"] == 1


def test_second_interrupt_ends_running_callbacks_at_once(open_queue, url):
    queue = open_queue(nack_delay=60)
    queue.send_many([NewMessage("endless", retries=3, id="a"), NewMessage("waits behind it", id="b")])
    with start(WORKER.replace("url=sys.argv[1]", "url=sys.argv[1], prefetch=1"), url) as worker:
        assert worker.stdout.readline() == "started 1\n"
        wait_until(lambda: queue.counts().active == 2)
        worker.send_signal(signal.SIGINT)
        wait_until(lambda: queue.counts().ready == 1)
        worker.send_signal(signal.SIGINT)

    assert worker.returncode == -signal.SIGINT
    message = queue.get("a")
    assert (message.state, message.retries_left, message.snoozes) == ("ready", 3, 1)


def test_late_ack_of_a_message_that_a_stop_has_cut_off_counts(url, gate):
    acked = []

    def work(message):
        started.set()
        gate.wait(30)
        acked.append(message.ack())

    started, queue = threading.Event(), DelayQueue("reminders", url=url, callback=work)
    queue.send_delay_msg("endless", id="m")
    queue.start_consume()
    assert started.wait(30)
    queue.stop_consume(grace=0)
    assert queue.get("m").state == "ready"

    gate.set()
    wait_until(lambda: acked)
    assert (acked, queue.get("m")) == ([True], None)


FORKING = """
import os, sys
from delayq import DelayQueue

seen = []
queue = DelayQueue("reminders", url=sys.argv[1], callback=lambda message: seen.append(message.payload))
queue.send_delay_msg("from the parent, before")
child = os.fork()
if child == 0:
    queue.send_delay_msg("from the child")
    queue.run(burst=True)
    os._exit(0 if len(seen) == 2 else 1)
_, status = os.waitpid(child, 0)
queue.send_delay_msg("from the parent, after")
queue.run(burst=True)
assert seen == ["from the parent, after"], seen
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_queue_works_on_both_sides_of_a_fork(url, redis_client):
    with start(FORKING, url) as process:
        assert process.wait(30) == 0


FORKING_WORKER = """
import os, sys, time
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], callback=lambda message: None)
parent = queue.start_consume()
child = os.fork()
if child == 0:
    assert not parent.running
    consuming = queue.start_consume()
    queue.send_delay_msg("hello")
    while queue.counts().living:  # whichever of the two takes it
        time.sleep(0.01)
    os._exit(0 if consuming.running and queue.stop_consume() else 1)
_, status = os.waitpid(child, 0)
assert parent.running
queue.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_forked_child_of_a_consuming_process_can_consume(url, redis_client):
    with start(FORKING_WORKER, url) as process:
        assert process.wait(30) == 0


IMPORT_WATCHER = """
import sys, threading
from delayq import DelayQueue

class Watcher:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            print("loaded beside the main thread:", name)

seen = []
queue = DelayQueue("reminders", url=sys.argv[1], nack_delay=0.01, default_retries=1)

@queue.callback
def work(message):
    seen.append(message.payload)
    if message.payload == "return False":
        return False
    if message.payload == "raise":
        raise ValueError

sys.meta_path.insert(0, Watcher())
queue.start_consume()
queue.send_many(["return", "return False", "raise"])
while len(seen) < 7 or queue.counts().living:  # a message of each schedule, and a second attempt of two others
    threading.Event().wait(0.01)
queue.stop_consume()
"""


def test_consumer_threads_import_no_modules(url, redis_client):
    """A fork during an import would leave the child with a locked import system."""
    with DelayQueue("reminders", url=url) as queue:
        queue.schedules.add("sweep", cron="* * * * * *", payload="schedule")
        queue.schedules.add("rent", rrule="FREQ=HOURLY", payload="schedule")
        redis_client.zadd(queue.context.calls.keys.schedules, {"rent": int(1000 * (time.time() - 1))})
    with start(IMPORT_WATCHER, url) as process:
        assert process.communicate(timeout=30) == ("", None)
        assert process.returncode == 0


def test_signal_received_by_another_thread_is_handled_in_time(redis_url):
    with DelayQueue("signals", url=redis_url, callback=lambda message: None) as queue:
        consuming = queue.start_consume()
        before = signal.signal(signal.SIGUSR1, lambda *_: consuming.stop())
        try:
            # To a thread that is not the main one, which waits: as when it comes just before the main one begins to.
            taker = threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1))
            taker.start()
            assert consuming.wait(5)
            assert not consuming.running
        finally:
            signal.signal(signal.SIGUSR1, before)
            taker.join()
