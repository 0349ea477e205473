"""What delivers the reminders: the callback, what it reports, and the process around it.

A worker reports each delivery before and after it: a process through a pipe, a line a report in one write, so that
what it had begun is known however suddenly it ends. Its standard input is the way back: a line lets it begin, the end
stops it, and the end comes even if its parent is killed.
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

from delayq.backoff import Backoff
from delayq.config import QueueOptions, read_settings
from delayq.demo.reminders import Fate, Reminder
from delayq.executor import Executor, open_executor
from delayq.message import Message
from delayq.outcomes import Discard
from delayq.queue import DelayQueue
from delayq.values import Command

LEASE = 2.0
"""Seconds: a killed worker's reminders are to come back within the run."""
OPTIONS: QueueOptions = {
    "prefix": "delayq-demo",
    "lease": LEASE,
    "concurrency": 32,
    "prefetch": 0,
    "nack_delay": Backoff.exponential(0.1, max=1),
    "grace": LEASE,
    "deadline": 5,
}
"""How every queue of the demo is made. Nothing is prefetched, so that the two workers share a rush evenly."""

_SHORTEST_WORK, _WORK_SPREAD = 0.010, 0.030
"""Seconds a callback takes, from and over what range: that of handing a mail to a server nearby."""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """A worker has started and waits to be let go."""

    worker: int


class Started(msgspec.Struct, tag="started", frozen=True):
    """A callback has begun."""

    worker: int
    id: str
    token: int
    attempt: int
    at: int
    """The server's clock, asked by the callback itself, in microseconds since 1970."""
    lateness: float
    """Seconds."""


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """A callback is about to end; what it says is not yet settled."""

    worker: int
    id: str
    token: int
    outcome: Literal["acked", "failed", "discarded"]
    retries_left: int


class Gone(msgspec.Struct, tag="gone", frozen=True):
    """A worker has ended and all of its reports have been read."""

    worker: int


Report = Ready | Started | Ended | Gone
Inbox = SimpleQueue[Report]


def server_clock(executor: Executor) -> int:
    """Ask the server for its time, in microseconds since 1970."""
    return executor.call(Command(("TIME",), lambda answer: int(answer[0]) * 1_000_000 + int(answer[1])))


class Delivery:
    """The callback: reports, takes its time as handing over a mail would, and ends as the reminder's fate says."""

    def __init__(self, worker: int, clock: Executor, report: Callable[[Report], None], gone: threading.Event) -> None:
        """Deliver as `worker`; once `gone` is set do nothing more, as a process that was killed."""
        self._worker = worker
        self._clock = clock
        self._report = report
        self._gone = gone

    def __call__(self, message: Message[Reminder]) -> None:
        """Deliver one reminder."""
        id, token = message.id, message.token
        self._live()
        at = server_clock(self._clock)
        self._report(Started(self._worker, id, token, message.attempt, at, message.lateness))
        self._gone.wait(_SHORTEST_WORK + _WORK_SPREAD * (zlib.crc32(id.encode()) % 100 / 100))
        self._live()
        fate = message.payload.fate
        failing = fate is Fate.BOUNCES or (fate is Fate.BUSY and message.attempt == 1)
        outcome: Any = "failed" if failing else "discarded" if fate is Fate.UNSUBSCRIBED else "acked"
        self._report(Ended(self._worker, id, token, outcome, message.retries_left))
        if failing:
            raise ConnectionError("no such mailbox" if fate is Fate.BOUNCES else "the mail server is busy")
        if fate is Fate.UNSUBSCRIBED:
            raise Discard("unsubscribed")

    def _live(self) -> None:
        if self._gone.is_set():
            raise SystemExit


def main() -> None:
    """Be a worker process: `python -m delayq.demo.worker NUMBER QUEUE`, with the server in DELAYQ_URL."""
    number, name = int(sys.argv[1]), sys.argv[2]
    encode = msgspec.json.Encoder().encode
    pipe = sys.stdout.fileno()

    def report(report: Report) -> None:
        os.write(pipe, encode(report) + b"\n")  # far below PIPE_BUF: a line comes through whole or not at all

    clock = open_executor({}, read_settings({}))
    callback = Delivery(number, clock, report, threading.Event())
    with DelayQueue(name, payload_type=Reminder, callback=callback, **OPTIONS) as queue:
        queue.counts()  # connected, scripts loaded
        report(Ready(number))
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
