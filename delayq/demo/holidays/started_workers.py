"""The workers as the demo handles them: processes of their own, or threads of this one where there is no Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import wraps
from typing import Any, Protocol

import msgspec

from delayq.config import QueueOptions, read_settings
from delayq.demo.reminders import Reminder
from delayq.demo.worker import LEASE, OPTIONS, Delivery, Gone, Inbox, Ready, Report
from delayq.executor import open_executor
from delayq.queue import DelayQueue


class Worker(Protocol):
    """A worker as the demo handles it; it reports to the inbox it was made with."""

    number: int
    name: str

    def go(self) -> None:
        """Begin to consume."""

    def kill(self) -> None:
        """End at once, in the midst of everything."""

    def stop(self) -> None:
        """Finish what is under way and end; returns at once, and `Gone` is reported when it is done."""

    def close(self) -> None:
        """Leave nothing behind, whatever state it is in."""

    def last_words(self) -> str:
        """Return what it said before it ended by itself."""


class ProcessWorker:
    """A worker in a process of its own; killing it is SIGKILL."""

    def __init__(self, number: int, url: str, queue: str, inbox: Inbox) -> None:
        """Start the process; it reports when it is ready."""
        self.number = number
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        self._process = subprocess.Popen(  # noqa: S603 - this Python
            [sys.executable, "-m", "delayq.demo.worker", str(number), queue],
            env=os.environ | {"DELAYQ_URL": url},  # not an argument: it may hold a password
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops its workers
        )
        self.name = f"worker {number} (pid {self._process.pid})"
        self._reader = threading.Thread(target=self._read, args=(inbox,), name=f"demo-worker-{number}", daemon=True)
        self._reader.start()

    def go(self) -> None:
        """Begin to consume."""
        assert self._process.stdin  # noqa: S101 - a pipe
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End at once (SIGKILL); all that it had reported is in the inbox then."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def stop(self) -> None:
        """Finish what is under way and end."""
        assert self._process.stdin  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """End the process if it runs."""
        self.stop()
        try:
            self._process.wait(2 * LEASE)
        except subprocess.TimeoutExpired:
            self.kill()
        self._errors.close()

    def last_words(self) -> str:
        """Return the last line of its standard error, and how it ended."""
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f"exit {self._process.wait()}" + (f": {said[-1]}" if said else "")

    def _read(self, inbox: Inbox) -> None:
        decode = msgspec.json.Decoder(Report).decode
        assert self._process.stdout  # noqa: S101 - a pipe
        with self._process.stdout as reports:
            for line in reports:
                inbox.put(decode(line))
        inbox.put(Gone(self.number))


class ThreadWorker:
    """A worker in threads of this process, for where there is no Redis but `memory://`.

    Killing it cuts it off from the server and lets its callbacks do nothing more: it is left behind with its leases.
    """

    def __init__(self, number: int, url: str, queue: str, inbox: Inbox) -> None:
        """Prepare the consumer."""
        self.number = number
        self.name = f"worker {number}"
        self._inbox = inbox
        self._gone = threading.Event()
        self._executor = open_executor({"url": url}, read_settings({}))
        self._cut(self._executor.client.connection_pool)
        self._clock = open_executor({"url": url}, read_settings({}))
        callback = Delivery(number, self._clock, inbox.put, self._gone)
        options: QueueOptions = {**OPTIONS, "redis": self._executor.client}
        self._queue = DelayQueue(queue, payload_type=Reminder, callback=callback, **options)
        inbox.put(Ready(number))

    def go(self) -> None:
        """Begin to consume."""
        self._queue.start_consume()

    def kill(self) -> None:
        """Cut it off."""
        self._gone.set()
        self._inbox.put(Gone(self.number))

    def stop(self) -> None:
        """Finish what is under way and end."""
        threading.Thread(target=self._end, name=f"demo-worker-{self.number}-end", daemon=True).start()

    def close(self) -> None:
        """End what is left of it."""
        self._queue.stop_consume(0)
        self._executor.close()
        self._clock.close()

    def last_words(self) -> str:
        """Return nothing: a thread does not end by itself."""
        return ""

    def _end(self) -> None:
        self._queue.stop_consume()
        self._inbox.put(Gone(self.number))

    def _cut(self, pool: Any) -> None:
        connect = pool.get_connection

        @wraps(connect)
        def get_connection(*args: Any, **options: Any) -> Any:
            if self._gone.is_set():
                raise ConnectionError("killed by the demo")
            return connect(*args, **options)

        pool.get_connection = get_connection
