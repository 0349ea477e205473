"""A worker of the demo: the callback that delivers reminders, its reports, and the process around it.

A worker reports each delivery before and after it. A worker process writes each report as one line to its standard
output, so what it had started is known even if it is killed. It starts consuming when it reads a line from its standard
input, and stops when that ends, which also happens if its parent is killed.
"""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Literal

import msgspec

from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor, open_executor
from delayq.demo.holidays.holiday_reminders import HolidayReminder, SimulatedResult
from delayq.options import QueueOptions, read_settings
from delayq.queue.delay_queue import DelayQueue
from delayq.values.backoff import Backoff
from delayq.values.outcomes import Discard
from delayq.worker.delivery.message import Message

LEASE = 2.0
"""Seconds: short, so that a killed worker's reminders are delivered again within the run."""
OPTIONS: QueueOptions = {
    "prefix": "delayq-demo",
    "lease": LEASE,
    "concurrency": 32,
    "prefetch": 0,
    "nack_delay": Backoff.exponential(0.1, max=1),
    "grace": LEASE,
    "deadline": 5,
}
"""The options of the demo's queue. Nothing is prefetched, so that the two workers share a rush evenly."""

_MIN_WORK, _WORK_SPREAD = 0.010, 0.030
"""Seconds a callback takes, like handing a mail to a server nearby."""


class WorkerReport(msgspec.Struct, tag="worker", frozen=True):
    """A worker is ready and waits for `go`; or it has ended, and all of its reports have been read."""

    worker: int
    gone: bool = False


class StartedReport(msgspec.Struct, tag="started", frozen=True):
    """A callback has started."""

    worker: int
    id: str
    token: int
    attempt: int
    at: int
    """The server's time, read by the callback itself, in microseconds since 1970."""
    lateness: float
    """Seconds."""


class EndedReport(msgspec.Struct, tag="ended", frozen=True):
    """A callback is about to end; its outcome is not settled yet."""

    worker: int
    id: str
    token: int
    outcome: Literal["acked", "failed", "discarded"]
    retries_left: int


Report = WorkerReport | StartedReport | EndedReport
Inbox = SimpleQueue[Report]


def server_clock(executor: Executor) -> int:
    """Return the server's time, in microseconds since 1970."""
    return executor.call(RedisCommand(("TIME",), lambda reply: int(reply[0]) * 1_000_000 + int(reply[1])))


def reminder_callback(
    worker: int, clock: Executor, report: Callable[[Report], None], gone: threading.Event
) -> Callable[[Message[HolidayReminder]], None]:
    """Return the callback of a worker; once `gone` is set it does nothing more, like a killed process.

    It reports, takes as long as sending a mail would, and ends with the reminder's simulated result.
    """

    def exit_if_gone() -> None:
        if gone.is_set():
            raise SystemExit

    def remind(message: Message[HolidayReminder]) -> None:
        id, token, result = message.id, message.token, message.payload.result
        exit_if_gone()
        at = server_clock(clock)
        report(StartedReport(worker, id, token, message.attempt, at, message.lateness))
        gone.wait(_MIN_WORK + _WORK_SPREAD * (zlib.crc32(id.encode()) % 100 / 100))
        exit_if_gone()
        bounces, unsubscribed = result is SimulatedResult.BOUNCES, result is SimulatedResult.UNSUBSCRIBED
        fails = bounces or (result is SimulatedResult.BUSY and message.attempt == 1)
        outcome: Any = "failed" if fails else "discarded" if unsubscribed else "acked"
        report(EndedReport(worker, id, token, outcome, message.retries_left))
        if fails:
            raise ConnectionError("no such mailbox" if bounces else "the mail server is busy")
        if unsubscribed:
            raise Discard("unsubscribed")

    return remind


def main() -> None:
    """Run a worker: `python -m delayq.demo.holidays.demo_worker NUMBER QUEUE`, with the server in DELAYQ_URL."""
    number, name = int(sys.argv[1]), sys.argv[2]
    encode = msgspec.json.Encoder().encode
    pipe = sys.stdout.fileno()

    def report(report: Report) -> None:
        os.write(pipe, encode(report) + b"\n")  # far below PIPE_BUF: a line arrives as a whole or not at all

    clock = open_executor({}, read_settings({}))
    callback = reminder_callback(number, clock, report, threading.Event())
    with DelayQueue(name, payload_type=HolidayReminder, callback=callback, **OPTIONS) as queue:
        queue.counts()  # connects and loads the scripts
        report(WorkerReport(number))
        if not sys.stdin.readline():
            return
        consuming = queue.start_consume()

        def stop_at_end() -> None:
            sys.stdin.read()
            consuming.stop()

        threading.Thread(target=stop_at_end, name="demo-stop", daemon=True).start()
        consuming.wait()


if __name__ == "__main__":
    main()
