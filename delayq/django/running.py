"""Runs Django's tasks in a worker: signals, context, errors, and the database connections of the thread."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from delayq.django.records import Attempts, NoTaskError, find_task, result_of
from delayq.django.tasks_api import (
    InvalidTask,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from delayq.errors import DelayqError, PayloadError
from delayq.queue.consuming.unhandled import UnhandledMessages
from delayq.schedules.definition import HEADER
from delayq.values.outcomes import Discard, Outcome, Reject
from delayq.worker.delivery.disposition import describe


def now_millis() -> int:
    """Return the time by this machine's clock, in milliseconds since 1970."""
    return int(time.time() * 1000)


class TaskRunner:
    """The callback of one queue of a backend."""

    def __init__(self, backend: Any, queue: Any) -> None:
        """Run tasks for this backend, of messages of this queue."""
        self._sender, self._using = type(backend), {"backend": backend.alias, "queue_name": queue.name}
        self._queue = queue
        self._unhandled = UnhandledMessages(queue.name, queue.settings.unknown_for)

    def __call__(self, message: Any) -> Any:
        """Run the task of a message, with database connections as around a request; returns what is kept of it."""
        close_old_connections()
        try:
            return self._run(message)
        finally:
            close_old_connections()

    def _run(self, message: Any) -> Any:
        path = message.name or message.headers.get(HEADER, "")
        try:
            task = find_task(path).using(priority=message.priority, **self._using)
        except (NoTaskError, InvalidTask) as error:  # another process may have it, such as one of a newer version
            raise self._unhandled.misfit(message, str(error)) from None
        attempts = Attempts.read(message.progress or {})
        attempts.begin(now_millis(), f"{socket.gethostname()[:48]}-{os.getpid()}")
        _report(message, attempts)
        id = f"{self._queue.name}@{message.id}"
        result = result_of(task, id, message.payload, attempts, TaskResultStatus.RUNNING)
        task_started.send_robust(sender=self._sender, task_result=result)
        context = (TaskContext(task_result=result),) if task.takes_context else ()
        try:
            returned = task.call(*context, *result.args, **result.kwargs)
        except (Reject, Discard) as error:
            self._fail(message, task, attempts, error, is_last=True)
            raise
        except Outcome:
            raise
        except BaseException as error:
            self._fail(message, task, attempts, error, is_last=message.retries_left == 0)
            raise
        attempts.running = False
        sent = message.payload if isinstance(message.payload, dict) else {}
        try:
            kept = {**sent, "returned": normalize_json(returned), "attempts": attempts.stored()}
            message.context.results.encoded(kept, "result", message.context.results.max_result)
        except (TypeError, ValueError, PayloadError) as error:  # to run it once more would change nothing
            self._fail(message, task, attempts, error, is_last=True)
            raise Reject(describe(error)) from error
        self._finish(result, TaskResultStatus.SUCCESSFUL, kept["returned"])
        return kept

    def _fail(self, message: Any, task: Any, attempts: Attempts, error: BaseException, *, is_last: bool) -> None:
        """Keep an error with the message; if it is the last, tell of it."""
        attempts.fail(error)
        _report(message, attempts)
        if is_last:
            id = f"{self._queue.name}@{message.id}"
            self._finish(result_of(task, id, message.payload, attempts, TaskResultStatus.RUNNING), "FAILED", None)

    def _finish(self, result: Any, status: Any, returned: Any) -> None:
        object.__setattr__(result, "status", TaskResultStatus(status))
        object.__setattr__(result, "_return_value", returned)
        object.__setattr__(result, "finished_at", timezone.now())
        task_finished.send_robust(sender=self._sender, task_result=result)


def _report(message: Any, attempts: Attempts) -> None:
    """Keep what is known of the attempts; while Redis is away this costs the task no attempt."""
    with suppress(DelayqError):
        message.report(attempts.stored())
