"""Options of one run of a consumer: burst, concurrency, grace and connect_timeout, for `run` and `start_consume`."""

import signal
import subprocess
import sys

import pytest

from delayq import ConfigurationError, DelayQueue, UnavailableError
from tests.support.processes import Process, run
from tests.support.waiting import wait_until

NO_SERVER = "redis://127.0.0.1:1"

WORKER = """
import signal, sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], concurrency=3, prefetch=1)

@queue.callback
def work(message):
    print("started", flush=True)
    sys.stdin.readline()
    print("ended", flush=True)

signal.signal(signal.SIGTERM, lambda *_: queue._consuming.stop())
queue.start_consume(burst=sys.argv[2] == "burst", concurrency=1, grace=sys.argv[3]).wait()
print("left", flush=True)
"""


@pytest.fixture
def reminders(redis_url):
    """The queue that the processes consume."""
    with DelayQueue("reminders", url=redis_url) as queue:
        yield queue


@pytest.fixture
def start_worker(redis_url):
    """Start a process that consumes one message at a time, each until it reads a line."""
    workers = []

    def start_worker(mode, grace):
        command = [sys.executable, "-c", WORKER, redis_url, mode, grace]
        workers.append(Process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return workers[-1]

    yield start_worker
    for worker in workers:
        with worker:
            worker.kill()


def go_on(worker):
    worker.stdin.write("\n")
    worker.stdin.flush()


def test_start_consume_can_run_a_burst(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    queue.send_many(["one", "two"])
    queue.send_delay_msg("later", delay="1h")

    assert queue.start_consume(burst=True).wait(30)

    assert sorted(seen) == ["one", "two"]
    assert queue.counts().pending == 1


@pytest.mark.parametrize(
    "consume", [lambda queue, **more: queue.run(**more), lambda queue, **more: queue.start_consume(**more).wait(30)]
)
def test_concurrency_option_applies_to_one_run(open_queue, gate, consume):
    running, at_a_time = [], []
    queue = open_queue(concurrency=1)

    @queue.callback
    def work(message):
        running.append(message.id)
        at_a_time.append(len(running))
        if len(running) == 3:
            gate.set()
        gate.wait(30)
        running.remove(message.id)

    queue.send_many(range(9))
    consume(queue, burst=True, concurrency=3)
    assert max(at_a_time) == 3

    at_a_time.clear()
    queue.send_many(range(9))
    queue.run(burst=True)
    assert max(at_a_time) == 1
    assert queue.settings.concurrency == 1


def test_grace_option_applies_to_one_run(open_queue, busy):
    queue = open_queue(callback=busy, nack_delay=60, grace="1h")
    queue.send_delay_msg("endless", id="m")
    queue.start_consume(grace="100ms")
    wait_until(lambda: busy.seen)

    assert queue.stop_consume()

    assert queue.get("m").snoozes == 1
    assert queue.settings.grace == 3_600_000


INTERRUPTED = """
import sys, threading
from delayq import DelayQueue

queue, started = DelayQueue("reminders", url=sys.argv[1], concurrency=1), threading.Event()

@queue.callback
def work(message):
    started.set()
    sys.stdin.readline()

class Interrupted(threading.Thread):
    def start(self):
        super().start()
        if self.name == "delayq-reminders":
            started.wait()
            raise KeyboardInterrupt

threading.Thread = Interrupted
queue.run()
print("left", flush=True)
"""


def test_interrupt_finishes_callbacks_that_run_before_the_start_has_returned(reminders, redis_url):
    reminders.send_delay_msg("slow")
    worker = run([sys.executable, "-c", INTERRUPTED, redis_url], input=b"go on\n", capture_output=True, timeout=60)
    assert (worker.returncode, worker.stdout) == (0, b"left\n")
    assert b"Traceback" not in worker.stderr
    assert reminders.stats().totals["acked"] == 1


def test_none_means_the_option_of_the_queue(open_queue):
    queue = open_queue(callback=print)
    queue.run(burst=True, concurrency=None, grace=None, connect_timeout=None)


@pytest.mark.parametrize("schedules", [False, True])
def test_run_raises_if_redis_is_not_reached_within_the_connect_timeout(open_queue, schedules):
    queue = open_queue(url=NO_SERVER, callback=print, deadline="1h")
    if schedules:
        queue.every("1h")(print)
    for consume in (queue.run, queue.start_consume):
        with pytest.raises(UnavailableError, match="connecting to 127"):
            consume(connect_timeout="100ms")
    with pytest.raises(UnavailableError, match="connecting to 127"):
        queue.open(connect_timeout="100ms")


def test_connect_timeout_can_be_longer_than_the_deadline_of_the_queue(open_queue, start_redis):
    server = start_redis()
    server.kill()
    queue = open_queue(url=server.url, callback=print, deadline="1ms")
    with pytest.raises(UnavailableError):
        queue.run(burst=True)
    server.start()
    queue.run(burst=True, connect_timeout="30s")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"concurrency": 0}, "concurrency must be a whole number from 1 to 10000, not 0"),
        ({"grace": -1}, "grace"),
        ({"connect_timeout": "soon"}, "connect_timeout"),
        ({"burst": "yes"}, "burst must be True or False, not 'yes'"),
        ({"concurency": 4}, "unknown option 'concurency', did you mean 'concurrency'?"),
    ],
)
def test_invalid_option_is_refused_before_anything_is_sent(open_queue, wrong, message):
    queue = open_queue(url=NO_SERVER, callback=print, deadline="1h")
    for consume in (queue.run, queue.start_consume):
        with pytest.raises(ConfigurationError) as refused:
            consume(**wrong)
        assert message in str(refused.value)


def test_a_process_ends_after_a_burst(reminders, start_worker):
    reminders.send_many(range(2))
    worker = start_worker("burst", "30s")
    assert worker.communicate("\n\n", timeout=60)[0] == "started\nended\nstarted\nended\nleft\n"
    assert worker.returncode == 0


def test_terminated_process_waits_for_running_callbacks(reminders, start_worker):
    reminders.send_many(range(3))
    worker = start_worker("forever", "30s")
    assert worker.stdout.readline() == "started\n"
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: reminders.counts().ready == 2)  # the consumer gives back what it has not started
    go_on(worker)
    assert worker.stdout.read() == "ended\nleft\n"
    assert worker.wait(30) == 0
    assert reminders.stats().totals["acked"] == 1


def test_terminated_process_ends_callbacks_that_exceed_the_grace_period(reminders, start_worker):
    reminders.send_delay_msg("endless", id="m")
    worker = start_worker("forever", "100ms")
    assert worker.stdout.readline() == "started\n"
    worker.send_signal(signal.SIGTERM)
    assert worker.stdout.readline() == "left\n"
    assert reminders.get("m").snoozes == 1
