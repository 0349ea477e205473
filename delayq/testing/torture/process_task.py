"""What the processes of a run share: their task, the server's clock, readiness, shutdown and stall detection."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor, open_executor
from delayq.errors import CannotConnectError, ConfigurationError, DelayqError, ServerError
from delayq.options import QueueOptions, read_settings
from delayq.queue.placing.layout import names_of
from delayq.testing.torture.history import FaultRecord, Recorder, now

TASK = "DELAYQ_TORTURE"
"""The environment variable with the task of a process: not an argument, because it may hold a password."""
READY = b"ready\n"
EXIT_SIGNAL = signal.SIGUSR1
"""The signal at which a worker ends without stopping its consumer."""
TICK = 0.25
"""Seconds: shorter than the default, because a run waits for messages that come back."""
HEARTBEAT = 0.1
"""Seconds between two checks whether this process was stalled."""


class ProcessTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to do, and where."""

    process: str
    """Its name in the history."""
    history: Path
    url: str
    """The server as the queue reaches it, possibly through a proxy."""
    direct: str
    """The server without the proxy."""
    queue: str
    lease: float
    """Seconds."""
    seed: str
    prefix: str = "delayq-torture"
    number: int = 1
    """Counted from 1 in each role."""
    producers: int = 1
    messages: int = 0
    seconds: float = 0.0
    batch: int = 1
    plain: bool = False
    """Whether to use no limits, priorities, breakers and successors."""
    partitions: int = 1
    """Over how many the queue is spread."""

    @property
    def keys(self) -> dict[str, Keys]:
        """The keys of the queue, or of each of its partitions, by name."""
        return {name: Keys.of(self.prefix, name) for name in names_of(self.queue, self.partitions)}

    @property
    def spread(self) -> QueueOptions:
        """The option that spreads the queue, if it is."""
        return {"partitions": self.partitions} if self.partitions > 1 else {}

    def options(self, **more: Any) -> QueueOptions:
        """Return the options of the queue."""
        options = {"url": self.url, "prefix": self.prefix, "codec": "bytes", "lease": self.lease, "dead_max": 1 << 30}
        return cast("QueueOptions", {**options, "deadline": 5, "socket_timeout": 2, **self.spread, **more})

    def poll_options(self) -> QueueOptions:
        """Return the options of a queue that is only polled: a call that fails is not retried."""
        return {"url": self.direct, "prefix": self.prefix, "deadline": 0.001, "socket_timeout": 5, **self.spread}


def read_task() -> ProcessTask:
    """Return the task of this process."""
    return msgspec.json.decode(os.environ[TASK], type=ProcessTask, dec_hook=lambda kind, value: kind(value))


def write_task(task: ProcessTask) -> dict[str, str]:
    """Return the environment variables that hand the task to a process."""
    return {TASK: msgspec.json.encode(task, enc_hook=str).decode()}


def tolerate(error: Exception) -> None:
    """Raise again what no fault explains: refused credentials, a full memory and a full disk (MISCONF) are faults."""
    refused = isinstance(error, ServerError | ConfigurationError) and not isinstance(error, CannotConnectError)
    if refused and "MISCONF" not in str(error):
        raise error


class ServerClock:
    """The server's clock, read over a connection that no network fault touches."""

    command = RedisCommand(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)

    def __init__(self, url: str) -> None:
        options = self.options(url)
        self._executor: Executor = open_executor(options, read_settings(options))
        self._last_reply = (0, 0.0)

    @staticmethod
    def options(url: str) -> QueueOptions:
        """Return the options of its connection: no retries, since a late reply would be the wrong time."""
        return {"url": url, "deadline": 0.001, "socket_timeout": 1}

    def __call__(self) -> int:
        """Return the time (ms); 0 if Redis does not reply."""
        try:
            return self._executor.call(self.command)
        except DelayqError:
            return 0

    def estimate(self) -> int:
        """Return the time (ms), even while the server is down."""
        server, local = self(), time.monotonic()
        if server:
            self._last_reply = server, local
        return round(self._last_reply[0] + (local - self._last_reply[1]) * 1000)


def report_ready() -> None:
    """Tell the parent that this process is working."""
    os.write(1, READY)


def on_shutdown(stop: Callable[[], object]) -> None:
    """Call `stop` when the parent closes our standard input or ends, however suddenly."""

    def wait() -> None:
        # Not through sys.stdin, whose lock this thread would hold when the interpreter ends.
        while os.read(0, 1024):
            pass
        with suppress(RuntimeError):  # the event loop is already closed
            stop()

    threading.Thread(target=wait, name="torture-parent", daemon=True).start()


def stall_threshold(lease: float) -> float:
    """Return how many microseconds count as a stall: a quarter of a lease, since heartbeats come every third."""
    return lease * 250_000


@contextmanager
def record_stalls(recorder: Recorder, lease: float, process: str) -> Iterator[None]:
    """Record when the machine or SIGSTOP stalls this process for so long that leases may expire.

    `process` is the process that is affected; '' for all of them, if all connections go through this one.
    """
    stopped = threading.Event()

    def watch() -> None:
        before = now()
        while not stopped.wait(HEARTBEAT):
            after = now()
            if after - before > stall_threshold(lease):
                recorder.write(FaultRecord(at=before, until=after, kind="stall", process=process))
            before = after

    thread = threading.Thread(target=watch, name="torture-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
