"""A process or an event loop that ends releases, uncharged, what its consumer has claimed and not settled."""

from __future__ import annotations

import asyncio
import signal

import pytest

from delayq import AsyncDelayQueue, DelayQueue
from delayq.streams import AsyncStreamQueue, StreamQueue
from tests.failures.programs import program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

BEGIN = """
import asyncio, os, signal, sys, threading
from delayq import AsyncDelayQueue, DelayQueue
from delayq.streams import AsyncStreamQueue, StreamQueue

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
"""
THREADS = (
    BEGIN
    + """
started = threading.Event()

def work(message):
    if message.payload == "slow":
        started.set()
        print("started", flush=True)
        threading.Event().wait()

queue = {kind}Queue("reminders", url=sys.argv[1], callback=work)
{main}
"""
)
ASYNCIO = (
    BEGIN
    + """
async def main():
    started = asyncio.Event()

    async def work(message):
        if message.payload == "slow":
            started.set()
            print("started", flush=True)
            await asyncio.Event().wait()

    queue = Async{kind}Queue("reminders", url=sys.argv[1], callback=work)
    {main}

asyncio.run(main())
"""
)
BLOCKING_IN_ASYNCIO = (
    BEGIN
    + """
async def main():
    started, loop = asyncio.Event(), asyncio.get_running_loop()

    def work(message):
        if message.payload == "slow":
            loop.call_soon_threadsafe(started.set)
            print("started", flush=True)
            threading.Event().wait()

    queue = Async{kind}Queue("reminders", url=sys.argv[1], callback=work)
    {main}

asyncio.run(main())
"""
)
EXIT = "queue.start_consume(); started.wait(); sys.exit(0)"
END_OF_MAIN = "queue.start_consume(); started.wait()"
RUN_ENDED_BY_A_HANDLER = "queue.run(grace=0.1)"
RETURN = "await queue.start_consume(); await started.wait()"
RAISE = "await queue.start_consume(); await started.wait(); raise SystemExit(0)"
RUN_AS_A_TASK = "task = asyncio.create_task(queue.run()); await started.wait()"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Delay", "Stream"])
@pytest.mark.parametrize(
    ("script", "main"),
    [
        pytest.param(THREADS, EXIT, id="exit"),
        pytest.param(THREADS, END_OF_MAIN, id="end of main"),
        pytest.param(THREADS, RUN_ENDED_BY_A_HANDLER, id="run ended by a handler"),
        pytest.param(ASYNCIO, RETURN, id="return from asyncio.run"),
        pytest.param(ASYNCIO, RAISE, id="exception in asyncio.run"),
        pytest.param(ASYNCIO, RUN_AS_A_TASK, id="task of asyncio.run"),
        pytest.param(BLOCKING_IN_ASYNCIO, RETURN, id="return from asyncio.run, in a thread"),
    ],
)
def test_what_has_not_ended_is_released_and_not_charged(redis_url, kind, script, main):
    kind_of_queue = StreamQueue if kind == "Stream" else DelayQueue
    deliveries = []
    with kind_of_queue("reminders", url=redis_url) as queue:
        queue.send_many([*["quick"] * 300, "slow", *["waits"] * 300], retries=0)
        with program(script.format(kind=kind, main=main), redis_url) as process:
            assert process.stdout.readline() == "started\n"
            if main is RUN_ENDED_BY_A_HANDLER:
                process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0

        counts = queue.counts()
        released = counts.living - 301  # on a busy machine a quick one may have waited for a second
        assert (counts.active, counts.dead) == (0, 0)
        queue.callback(lambda message: deliveries.append((message.payload, message.attempt)))
        queue.run(burst=True)
        assert sorted(deliveries) == [*[("quick", 1)] * released, ("slow", 1), *[("waits", 1)] * 300]
        assert queue.counts().dead == 0


def test_run_that_a_handler_ends_by_an_exception_stops_its_consumer(redis_url):
    main = """
def give_up(*_):
    raise LookupError

signal.signal(signal.SIGUSR1, give_up)
try:
    queue.run(grace=0.1)
except LookupError:
    print(queue._consuming.running, queue.counts().active, flush=True)
"""
    with DelayQueue("reminders", url=redis_url) as queue:
        queue.send_many(["slow", *["waits"] * 10])
        with program(THREADS.format(kind="Delay", main=main), redis_url) as process:
            assert process.stdout.readline() == "started\n"
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "False 0\n"


@pytest.mark.long
def test_a_process_ends_although_redis_does_not_answer(start_redis):
    server = start_redis()
    with DelayQueue("reminders", url=server.url) as queue:
        queue.send_many(["slow", *["waits"] * 10])
        main = "queue.start_consume(); started.wait(); sys.stdin.readline()"
        with program(THREADS.format(kind="Delay", main=main), server.url) as process:
            assert process.stdout.readline() == "started\n"
            server.pause()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(60) == 0
        server.resume()


@pytest.mark.long
def test_a_forked_child_that_exits_leaves_the_consumer_of_its_parent_alone(redis_url):
    main = """
queue.start_consume()
started.wait()
if os.fork() == 0:
    sys.exit(0)
print("child ended with", os.wait()[1], flush=True)
sys.stdin.readline()
"""
    with DelayQueue("reminders", url=redis_url) as queue:
        queue.send_delay_msg("slow", id="slow")
        with program(THREADS.format(kind="Delay", main=main), redis_url) as process:
            assert process.stdout.readline() == "started\n"
            assert process.stdout.readline() == "child ended with 0\n"
            assert queue.get("slow").state == "active"
            process.stdin.write("\n")
            process.stdin.flush()
            wait_until(lambda: queue.get("slow").snoozes == 1)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "blocking"), [(AsyncDelayQueue, DelayQueue), (AsyncStreamQueue, StreamQueue)])
def test_claim_that_is_under_way_when_the_event_loop_ends_is_released(redis_url, kind, blocking):
    async def consume(until):
        seen, enough = [], asyncio.Event()

        async def work(message):
            seen.append(message.id)
            if len(seen) == until:
                enough.set()

        queue = kind("reminders", url=redis_url, callback=work)
        await queue.start_consume()
        await enough.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:  # as `asyncio.run` does at its end; the consumer is in a round trip as a rule
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await queue.close()
        return seen

    acked = 0
    with blocking("reminders", url=redis_url) as queue:
        queue.send_many(["quick"] * 5000, retries=0)
        for until in range(1, 200, 10):
            acked += len(asyncio.run(consume(until)))
            counts = queue.counts()
            assert (counts.active, counts.dead, counts.living) == (0, 0, 5000 - acked)


def test_consumer_that_fails_releases_what_it_has_claimed(redis_url, monkeypatch):
    def fail(driver, name):
        raise RuntimeError("can't start new thread")

    with DelayQueue("reminders", url=redis_url, callback=lambda message: None, prefetch=10) as queue:
        queue.send_many(range(10), retries=0)
        monkeypatch.setattr("delayq.worker.drivers.drivers.ThreadDriver._start_runner", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            queue.run()
        monkeypatch.undo()
        assert (queue.counts().ready, queue.counts().living) == (10, 10)
        queue.run(burst=True)
        assert queue.stats().totals["acked"] == 10
