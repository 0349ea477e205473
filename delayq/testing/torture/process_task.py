"""What every process of a run stands on: its task, its history, the clock of the server, and the end of its parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from delayq.config import QueueOptions, read_settings
from delayq.errors import DelayqError, ServerError
from delayq.executor import Executor, open_executor
from delayq.torture.history import Fault, Recorder, now
from delayq.torture.recorded import Telling
from delayq.values import Command

TASK = "DELAYQ_TORTURE"
"""The variable that holds the task of a process: not an argument, for it may hold a password."""
READY = b"ready\n"
TICK = 0.25
"""Seconds: a run waits for what comes back, so workers look more often than by default."""
BEAT = 0.1
"""Seconds between two looks at whether this process has been held up."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to do, and where."""

    process: str
    """Its name in the history."""
    history: Path
    url: str
    """The server as the queue sees it, be it through a proxy."""
    direct: str
    """The server itself."""
    prefix: str
    queue: str
    lease: float
    """Seconds."""
    seed: str
    engine: str = "delay"
    """What kind of queue it is."""
    number: int = 1
    producers: int = 1
    messages: int = 0
    seconds: float = 0.0
    batch: int = 1

    def options(self, **more: Any) -> QueueOptions:
        """Return the options of the queue."""
        made: QueueOptions = {
            "url": self.url,
            "prefix": self.prefix,
            "codec": "bytes",
            "lease": self.lease,
            "dead_max": 1 << 30,
            "deadline": 5,
            "socket_timeout": 2,
        }
        return {**made, **more}  # type: ignore[typeddict-item]  # more are options as well

    def hasty(self) -> QueueOptions:
        """Return the options of a queue that is only looked at, and not waited for."""
        return {"url": self.direct, "prefix": self.prefix, "deadline": 0.001, "socket_timeout": 5}

    def clock(self) -> Clock:
        """Return the clock of the server."""
        return Clock(self.direct)


def read_task() -> Task:
    """Return the task of this process."""
    return msgspec.json.decode(os.environ[TASK], type=Task, dec_hook=lambda kind, value: kind(value))


def write_task(task: Task) -> dict[str, str]:
    """Return what the environment of a process is to hold."""
    return {TASK: msgspec.json.encode(task, enc_hook=str).decode()}


def bear(calls: Telling, error: DelayqError) -> None:
    """Put down that what has no answer raised; raises it anew if no fault explains it: a full disk will not stay so."""
    calls.failed(error)
    if isinstance(error, ServerError) and "MISCONF" not in str(error):
        raise error


class Clock:
    """The server's clock, asked over a connection that no fault of the network touches."""

    command = Command(("TIME",), lambda answer: int(answer[0]) * 1000 + int(answer[1]) // 1000)

    def __init__(self, url: str) -> None:
        """Connect when it is asked."""
        options = self.options(url)
        self.executor: Executor = open_executor(options, read_settings(options))

    @staticmethod
    def options(url: str) -> QueueOptions:
        """Return the options of its connections: an answer that is not there at once would come too late."""
        return {"url": url, "deadline": 0.001, "socket_timeout": 1}

    def __call__(self) -> int:
        """Return its time (ms), 0 if it cannot be had."""
        try:
            return self.executor.call(self.command)
        except DelayqError:
            return 0


def ready() -> None:
    """Tell the parent that work has begun."""
    os.write(1, READY)


def at_the_end(act: Callable[[], object]) -> None:
    """Do something when the parent closes our standard input, or has ended, however suddenly."""

    def wait() -> None:
        # Not through sys.stdin, whose lock this thread would hold when the interpreter ends.
        while os.read(0, 1024):
            pass
        with suppress(RuntimeError):  # an event loop that is closed already
            act()

    threading.Thread(target=wait, name="torture-parent", daemon=True).start()


def held_up(lease: float) -> float:
    """Return the microseconds after which something was held up: a heartbeat comes every third of a lease."""
    return lease * 250_000


@contextmanager
def watch(recorder: Recorder, lease: float, process: str) -> Iterator[None]:
    """Put down when this process is held up, by the machine or by SIGSTOP, for so long that leases may run out.

    `process` is whom that concerns, '' for all: the one that all connections go through.
    """
    enough = threading.Event()

    def look() -> None:
        before = now()
        while not enough.wait(BEAT):
            after = now()
            if after - before > held_up(lease):
                recorder.write(Fault(at=before, until=after, kind="stall", process=process))
            before = after

    thread = threading.Thread(target=look, name="torture-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()
