"""The workers as the demo controls them: child processes, or threads of this process if there is no Redis server.

Both report to an inbox. `go` lets a worker consume. `kill` ends it in the middle of its callbacks; all of its reports
are in the inbox then. `stop` lets it finish what is in flight and returns at once; a last report follows. `close` ends
it, whatever state it is in, and leaves nothing behind.
"""

from __future__ import annotations

import threading
from functools import wraps
from typing import Any

import msgspec

from delayq.broker.transport.executor import open_executor
from delayq.demo.holidays.demo_worker import LEASE, OPTIONS, Inbox, Report, WorkerReport, reminder_callback
from delayq.demo.holidays.holiday_reminders import HolidayReminder
from delayq.options import QueueOptions, read_settings
from delayq.queue.delay_queue import DelayQueue
from delayq.testing.child_process import ChildProcess


class _ProcessWorker:
    killed_by = "SIGKILL"
    """How `kill` ends it."""

    def __init__(self, number: int, url: str, queue: str, inbox: Inbox) -> None:
        self.number = number
        self._process = ChildProcess("delayq.demo.holidays.demo_worker", str(number), queue, env={"DELAYQ_URL": url})
        self.name = f"worker {number} (pid {self._process.pid})"
        self._reader = threading.Thread(target=self._read, args=(inbox,), name=f"demo-worker-{number}", daemon=True)
        self._reader.start()

    def go(self) -> None:
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._reader.join()

    def stop(self) -> None:
        self._process.close_stdin()

    def close(self) -> None:
        self.stop()
        self._process.wait(2 * LEASE)
        self._reader.join()
        self._process.close()

    def describe_exit(self) -> str:
        self._process.wait(LEASE)
        return self._process.describe_exit()

    def _read(self, inbox: Inbox) -> None:
        decode = msgspec.json.Decoder(Report).decode
        for line in self._process.stdout:
            inbox.put(decode(line))
        inbox.put(WorkerReport(self.number, gone=True))


class _ThreadWorker:
    """Killing it cuts it off from the server and stops its callbacks; its leases remain."""

    killed_by = "abandoned"

    def __init__(self, number: int, url: str, queue: str, inbox: Inbox) -> None:
        self.number = number
        self.name = f"worker {number}"
        self._inbox = inbox
        self._gone = threading.Event()
        self._executor, self._clock = (open_executor({"url": url}, read_settings({})) for _ in range(2))
        self._refuse_when_gone(self._executor.client.connection_pool)
        callback = reminder_callback(number, self._clock, inbox.put, self._gone)
        options: QueueOptions = {**OPTIONS, "redis": self._executor.client}
        self._queue = DelayQueue(queue, payload_type=HolidayReminder, callback=callback, **options)
        inbox.put(WorkerReport(number))

    def go(self) -> None:
        self._queue.start_consume()

    def kill(self) -> None:
        self._gone.set()
        self._inbox.put(WorkerReport(self.number, gone=True))

    def stop(self) -> None:
        threading.Thread(target=self._stop, name=f"demo-worker-{self.number}-end", daemon=True).start()

    def close(self) -> None:
        self._queue.stop_consume(0)
        self._executor.close()
        self._clock.close()

    def describe_exit(self) -> str:
        return ""  # a thread does not end by itself

    def _stop(self) -> None:
        self._queue.stop_consume()
        self._inbox.put(WorkerReport(self.number, gone=True))

    def _refuse_when_gone(self, pool: Any) -> None:
        connect = pool.get_connection

        @wraps(connect)
        def get_connection(*args: Any, **options: Any) -> Any:
            if self._gone.is_set():
                raise ConnectionError("killed by the demo")
            return connect(*args, **options)

        pool.get_connection = get_connection


StartedWorker = _ProcessWorker | _ThreadWorker


def start_worker(number: int, url: str, queue: str, inbox: Inbox, *, embedded: bool) -> StartedWorker:
    """Start a worker; it reports to `inbox` when it is ready."""
    return (_ThreadWorker if embedded else _ProcessWorker)(number, url, queue, inbox)
