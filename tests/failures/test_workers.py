"""Workers: killed, frozen, stopped, or with nonsensical callbacks: nothing is lost and nothing hangs."""

from __future__ import annotations

import signal
import time

import pytest

from tests.failures.programs import assert_soon, one_face, program
from tests.support.waiting import wait_until, wait_until_started

pytestmark = pytest.mark.faults

WORKER = """
import sys, time
from delayq import DelayQueue

def work(message):
    print("started", message.attempt, flush=True)
    time.sleep(float(sys.argv[2]))
    print("ended", flush=True)

queue = DelayQueue("reminders", url=sys.argv[1], lease="1s", prefetch=5, grace="30s", callback=work)
queue.start_consume()
queue.run()
print("left", flush=True)
"""


@one_face
def test_messages_of_a_killed_worker_are_redelivered_when_leases_expire(open_queue, url):
    def redelivery(number: int) -> float:
        times = []
        queue = open_queue(callback=lambda message: times.append((message.attempt, time.monotonic())), concurrency=5)
        sent = queue.send_many(range(5), retries=3)
        with program(WORKER, url, "60") as worker:
            assert worker.stdout.readline() == "started 1\n"
            wait_until(lambda: queue.counts().active == 5)
            wait_until_started(url, sent.ids[0])
            queue.start_consume()
            worker.kill()
            killed = time.monotonic()
            wait_until(lambda: len(times) == 5)
        assert sorted(attempt for attempt, _ in times) == [1, 1, 1, 1, 2]  # one had started
        assert queue.stop_consume()
        assert queue.stats().totals["expired"] == number + 1
        return max(at for _, at in times) - killed

    assert_soon(redelivery, 1 + 1)


@pytest.mark.long
@one_face
def test_interrupted_worker_finishes_and_releases_the_rest(open_queue, url):
    queue = open_queue()
    queue.send_many(range(4), retries=3)
    with program(WORKER, url, "0.3") as worker:
        assert worker.stdout.readline() == "started 1\n"
        wait_until(lambda: queue.counts().active == 4)
        worker.send_signal(signal.SIGINT)
        assert worker.stdout.read() == "ended\nleft\n"
        assert worker.wait(30) == 0
    waiting = queue.list("ready").messages
    assert [(message.attempts, message.retries_left) for message in waiting] == [(0, 3)] * 3
    assert queue.stats().totals["acked"] == 1


@pytest.mark.long
@one_face
def test_second_signal_ends_the_worker_at_once(open_queue, url):
    queue = open_queue()
    queue.send_delay_msg("endless", retries=3, id="m")
    with program(WORKER, url, "60") as worker:
        assert worker.stdout.readline() == "started 1\n"
        worker.send_signal(signal.SIGINT)
        with pytest.raises(AssertionError, match="not within"):
            wait_until(lambda: worker.poll() is not None, 0.3)
        began = time.monotonic()
        worker.send_signal(signal.SIGINT)
        assert worker.wait(30) == -signal.SIGINT
        assert time.monotonic() - began < 10
    message = queue.get("m")
    assert (message.retries_left, message.snoozes) == (3, 1)


def test_callback_that_stops_and_starts_its_own_queue_does_not_hang(open_queue):
    seen = []

    def work(message):
        seen.append(message.payload)
        queue.stop_consume()
        queue.stop_consume()
        queue.start_consume()
        queue.start_consume()

    queue = open_queue(callback=work)
    queue.stop_consume()
    queue.send_delay_msg("hello")
    consuming = queue.start_consume()
    assert consuming.wait(30)
    assert queue.stop_consume()
    assert queue.stop_consume()
    assert seen == ["hello"]
    assert queue.counts().living == 0


def test_worker_survives_exceptions_that_normally_end_programs(open_queue):
    raised = [SystemExit(3), KeyboardInterrupt(), MemoryError(), GeneratorExit(), RecursionError("too deep")]
    seen = []

    def work(message):
        seen.append(message.payload)
        if message.payload < len(raised) and message.attempt == 1:
            raise raised[message.payload]

    queue = open_queue(callback=work, nack_delay=0.05)
    queue.send_many(range(len(raised) + 5), retries=1)
    consuming = queue.start_consume()
    wait_until(lambda: queue.counts().living == 0)
    assert consuming.running
    assert sorted(seen) == sorted([*range(len(raised) + 5), *range(len(raised))])
    totals = queue.stats().totals
    assert (totals["nacked"], totals["acked"]) == (len(raised), len(raised) + 5)


STOPPED_BY_A_HANDLER = """
import signal, sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], callback=lambda message: None)
queue.open()
signal.signal(signal.SIGUSR1, lambda *_: queue.stop_consume())

FILES = ("consuming/consumer.py", "consuming/starting.py", "drivers/drivers.py", "threading.py")

def interrupt_at(line):
    # Line by line of what waits, locks and starts threads, from the moment on when there is a consumer to stop.
    before = queue._consuming

    def trace(frame, event, _):
        nonlocal line
        if not frame.f_code.co_filename.endswith(FILES):
            return None
        if event == "line" and queue._consuming is not before:
            line -= 1
            if line == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGUSR1)
        return trace

    sys.settrace(trace)

for line in range(1, 61):
    interrupt_at(line)
    queue.run()
    print(line, flush=True)
"""


@pytest.mark.long
def test_stop_in_a_signal_handler_ends_run_wherever_the_signal_comes(redis_url):
    with program(STOPPED_BY_A_HANDLER, redis_url) as worker:
        assert worker.stdout.read().split() == [str(line) for line in range(1, 61)]
